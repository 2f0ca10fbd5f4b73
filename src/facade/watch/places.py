"""What there is to watch at the places that somebody named: runs, sites, networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from facade.errors import RunDirectoryError
from facade.runs.run_order import in_order
from facade.watch.subject import Subject
from facade.watch.watched_network import WatchedNetwork
from facade.watch.watched_run import WatchedRun

_DEEPEST = 4
"""Directories below a named one in which runs are looked for."""
_MOST = 200
"""Runs that are watched at a time."""


class Places:
    """The paths that somebody named. Directories are looked through again and again, for a sweep begins runs as it
    goes."""

    def __init__(self, paths: Sequence[Path], awaited: bool = False) -> None:
        """`awaited`: what is named may not be there yet."""
        for path in paths:
            if not path.exists() and not awaited:
                raise RunDirectoryError(
                    f"{path} does not exist; give a run directory, a directory that holds runs, a site's home, or a"
                    " network"
                )
        self._others = [path for path in paths if path.suffix == ".json"]
        self._paths = [path for path in paths if path.suffix != ".json"]
        self._known: dict[Path, Subject] = {}
        if not self._paths or (self._others and not any(_sites_of(path) for path in self._paths)):
            raise RunDirectoryError(
                "site.json files of others are shown beside a site; give the home of one as well, as made by"
                " facade node init"
            )

    def subjects(self) -> list[Subject]:
        """All that is there now, in order; what was there before is the same object."""
        found: dict[Path, Subject] = {}
        for path in self._paths:
            for place in self._below(path, _DEEPEST):
                if len(found) < _MOST:
                    found[place] = self._known.get(place) or self._made(place, path)
        self._known = found
        return list(found.values())

    def _below(self, path: Path, depth: int) -> Iterator[Path]:
        found = [path] if _sites_of(path) or (path / "experiment.toml").exists() else []
        found += _studies_of(path)
        if found:
            yield from found
        elif depth and path.is_dir():
            try:
                children = [child for child in path.iterdir() if child.is_dir() and not child.is_symlink()]
            except OSError:
                return
            for child in in_order(path, [child for child in children if not child.name.startswith(".")]):
                yield from self._below(child, depth - 1)

    def _made(self, place: Path, named: Path) -> Subject:
        title = str(place.relative_to(named)) if place != named else (place.name or place.resolve().name)
        homes = _sites_of(place)
        return WatchedNetwork(place, title, homes, self._others) if homes else WatchedRun(place, title)


def _sites_of(path: Path) -> list[Path]:
    """The homes, each with one study, of which a directory is a network: those below its `sites`, or itself."""
    if _is_study(path):
        return [path]
    try:
        return sorted(home for home in (path / "sites").iterdir() if _is_study(home))
    except OSError:
        return []


def _studies_of(home: Path) -> list[Path]:
    """The studies below a site's home."""
    try:
        return sorted(study for study in (home / "studies").iterdir() if _is_study(study))
    except OSError:
        return []


def _is_study(path: Path) -> bool:
    """Whether a site takes part in one study here: its list, or what it has written, is in this very directory."""
    listed = (path / "membership.json").exists() and not (path / "sites").exists()
    return (listed or (path / "run").is_dir()) and _is_below_home(path)


def _is_below_home(path: Path) -> bool:
    return any((place / "node.toml").exists() for place in (path, path.resolve().parent.parent))
