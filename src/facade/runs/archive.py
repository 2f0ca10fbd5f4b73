"""What a finished run found, without its models: small enough to be kept for good, in a repository say.
`facade show`, `facade report` and `facade paper` read it like the run itself."""

from __future__ import annotations

import gzip
from pathlib import Path

from facade.data.section import DataSection
from facade.errors import RunDirectoryError
from facade.experiment.config import Experiment
from facade.experiment.decisive_settings import decisive_settings
from facade.files import seals, store
from facade.runs.run_directory import RunDirectory

_COPIED = ("federation.json", "environment.json", "timings.jsonl")


def archive(run: str | Path, into: str | Path) -> Path:
    """Keep a finished run as INTO/its name; the same run gives the same bytes. Where its data and its
    directory were on this machine is left out. Its files are checked before, and sealed again if they are sealed."""
    run = Path(run).resolve()  # "." has a name, too
    directory, kept = RunDirectory(run), Path(into) / run.name
    if not directory.finished:
        raise RunDirectoryError(f"{run} holds no finished run; finish it before it is archived")
    directory.experiment()  # which is checked
    experiment = Experiment.load(run / "experiment.toml").with_(
        f"data.root='{DataSection.model_fields['root'].default}'"
    )
    rows = directory.rows
    if rows.path.suffix == ".gz":
        raise RunDirectoryError(f"{run} is archived already: it holds no models")
    rows.check()
    other = RunDirectory(kept)
    if other.started and decisive_settings(other.experiment()) != decisive_settings(experiment.model_dump()):
        raise RunDirectoryError(f"{kept} keeps a run of another experiment; rename one of them, or archive elsewhere")
    if other.finished:
        with store.writing(kept):
            (kept / "result.json").unlink()  # until all files are there it is not finished
    summary = {name: value for name, value in directory.read("result.json").items() if name != "run_dir"}
    files = {name: directory.content(name) for name in _COPIED} | {
        "experiment.toml": seals.sealed_text(experiment.toml()) if directory.seals else experiment.toml().encode(),
        "rows.jsonl.gz": gzip.compress(rows.path.read_bytes(), mtime=0),
    }
    for name, content in files.items():
        store.replace(kept / name, content)
    sealed = {name: seals.sha256(content) for name, content in files.items()}
    if directory.seals:
        store.replace(kept / "result.json", seals.sealed_json(summary, sealed))
    else:  # what nobody knows to be whole is not called so from now on
        store.replace_json(kept / "result.json", summary)
    return kept
