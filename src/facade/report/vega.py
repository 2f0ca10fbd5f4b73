"""The JavaScript that draws a page's charts, kept in the user's cache."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from importlib.metadata import version
from pathlib import Path

from facade.errors import StorageError
from facade.files import store
from facade.report.panels import VEGA_LITE


@functools.cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script. Putting it together takes seconds, so it is kept."""
    path = _cached_file()
    script = _read(path)
    if script is None:
        script = _put_together()
        with contextlib.suppress(StorageError):  # a home that cannot be written costs those seconds every time
            store.replace(path, _with_checksum(script))
    return script


def _cached_file() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "facade"
    return cache / f"vega-{version('vl-convert-python')}-{VEGA_LITE}-embed.js"


def _put_together() -> str:
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    return script.replace("</script", "<\\/script")


def _with_checksum(script: str) -> bytes:
    """The content of the cached file: a comment with the script's SHA-256, then the script."""
    content = script.encode()
    return b"// sha256 " + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _read(path: Path) -> str | None:
    """The script in a cached file; None if there is none, or one that was cut off or changed."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    script = content.partition(b"\n")[2].decode(errors="replace")
    return script if content == _with_checksum(script) else None
