"""The order of the runs below a directory: as a sweep planned them, and by name where nobody said otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from facade.files import store

FILE = "order.txt"
"""Names of directories, one a line."""


def keep_order(directory: Path, names: Sequence[str]) -> None:
    """Note the order of the runs in a directory; those noted earlier and not named now come behind them."""
    earlier = [name for name in _noted(directory) if name not in names]
    wanted = list(dict.fromkeys([*names, *earlier]))
    if wanted != _noted(directory):
        store.replace(directory / FILE, "".join(f"{name}\n" for name in wanted).encode())


def in_order(directory: Path, children: Iterable[Path]) -> list[Path]:
    """What lies in a directory: first what its order names, then the rest by name."""
    place = {name: i for i, name in enumerate(_noted(directory))}
    return sorted(children, key=lambda child: (place.get(child.name, len(place)), child))


def _noted(directory: Path) -> list[str]:
    try:
        return (directory / FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):  # nobody noted it, or it is damaged: names are an order too
        return []
