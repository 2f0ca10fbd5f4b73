"""A simulated run, on one machine or on Ray: what its files say, while it goes on and afterwards."""

from __future__ import annotations

import gzip
import json
import time
import tomllib
from pathlib import Path
from typing import Any

from facade.core.names import short
from facade.core.types import Row
from facade.runs.honest_nodes import attack_in_words
from facade.watch.followed_file import FollowedFile
from facade.watch.node_groups import NodeGroups
from facade.watch.pace import Pace
from facade.watch.round_graph import RoundGraph
from facade.watch.run_record import RunRecord
from facade.watch.subject import Looked, Section, Subject, signature

_LAPS = 3
"""Of timings.jsonl, the last ones say how fast a run goes."""


class WatchedRun(Subject):
    """A run directory."""

    def __init__(self, path: Path, title: str) -> None:
        self.path = path
        self.title = title
        self._described: tuple[Any, ...] = ()
        """What the description of the run looked like when it was read."""
        self._forget()

    def _forget(self) -> None:
        self._experiment: Row = {}
        self._groups: NodeGroups | None = None
        self._graphs: RoundGraph | None = None
        self._record: RunRecord | None = None
        self._rows, self._timings = FollowedFile(self.path / "rows.jsonl"), FollowedFile(self.path / "timings.jsonl")
        self._laps: list[Row] = []
        self._pace = Pace()
        self._finished = False

    @property
    def quiet(self) -> bool:
        return self._finished and self._record is not None and self._record.final is not None

    def look(self) -> Looked:
        described = signature(self.path / "experiment.toml"), signature(self.path / "federation.json")
        changed = described != self._described
        if changed:  # another run, or the same begun again
            self._forget()
            self._described = described
            self._read_description()
        if self._record is None or self._groups is None:
            return Looked(changed)
        added = self._rows.read()
        if added.anew:
            self._record, self._pace = RunRecord(self._experiment, self._groups), Pace()
        self._record.feed(added.content)
        if not added.more:
            self._pace.add(time.monotonic(), self._record.done)
        laps = self._timings.read()
        self._laps = ([] if laps.anew else self._laps) + [_lap(line) for line in laps.content.splitlines()]
        self._laps = self._laps[-_LAPS:]
        finished = (self.path / "result.json").exists()
        changed |= bool(added.content) or added.anew or finished != self._finished
        self._finished = finished
        if finished and not self._record.done:
            self._read_kept()
        return Looked(changed, added.more)

    def _read_description(self) -> None:
        """What the run is; nothing while its first files are not there. They are put in their places whole."""
        try:
            self._experiment = tomllib.loads((self.path / "experiment.toml").read_text())
            facts = json.loads((self.path / "federation.json").read_text())
            self._groups = NodeGroups.of(self._experiment, facts)
            self._graphs = RoundGraph(self._experiment, len(facts["images"]))
        except OSError:
            return
        self._record = RunRecord(self._experiment, self._groups)

    def _read_kept(self) -> None:
        """The rows of a run of which only facts are kept."""
        kept = self.path / "rows.jsonl.gz"
        if kept.exists() and self._record is not None:
            with gzip.open(kept) as file:
                self._record.feed(file.read())

    def sections(self) -> dict[str, Section]:
        if self._record is None or self._groups is None or self._graphs is None:
            about = {"title": self.title, "kind": "run", "facts": []}
            return {"about": about, "progress": {"phase": "waiting", "says": "no rows yet", "done": 0, "rounds": 0}}
        record = self._record
        sections: dict[str, Section | None] = {
            "about": self._about(self._groups),
            "progress": self._progress(record),
            "quality": record.quality(),
            "losses": record.losses(),
            "traffic": record.traffic(),
            "heads": record.heads(),
            "graph": record.graph(self._graphs),
            "guard": record.guard(),
        }
        return {name: section for name, section in sections.items() if section is not None}

    def _about(self, groups: NodeGroups) -> Section:
        experiment = self._experiment
        data, n = experiment["data"], len(groups.names)
        facts = [
            ("algorithm", short(experiment["algorithm"]["name"])),
            ("data", f"{data['source']}, {n} {'sites' if groups.of_sites else 'nodes'}"),
            *([] if groups.of_sites else [("clusters", f"{data['clusters']}, skew {data['skew']}")]),
            ("model", short(experiment["model"]["name"])),
            ("seed", str(experiment["seed"])),
            ("directory", str(self.path)),
        ]
        notes = [sentence for sentence in [attack_in_words(experiment, n)] if sentence]
        return {"title": self.title, "kind": "run", "facts": facts, "notes": notes, "groups": groups.groups}

    def _progress(self, record: RunRecord) -> Section:
        rounds, seconds = int(self._experiment["training"]["rounds"]), self._seconds(record.done)
        phase = "finished" if self._finished else "running" if record.done else "waiting"
        says = {"finished": "finished", "running": "", "waiting": "the first round is under way"}[phase]
        if phase == "running" and record.done >= rounds:
            says = "writes its result" if record.final else "the final exchange is under way"
        left = None if self._finished or seconds is None else seconds * (rounds - record.done)
        written = signature(self.path / "rows.jsonl")
        return {
            "phase": phase, "says": says, "done": record.done, "rounds": rounds, "seconds": seconds, "left": left,
            "written": None if written is None else written[2] / 1e9,
        }  # fmt: skip

    def _seconds(self, done: int) -> float | None:
        """Seconds a round: as timings.jsonl says, else as seen here, else since the run began."""
        if len(self._laps) == _LAPS:
            played = self._laps[-1]["round"] - self._laps[0]["round"]
            return sum(lap["seconds"] for lap in self._laps[1:]) / played if played > 0 else None
        if self._pace.seconds is not None:
            return self._pace.seconds
        began, written = signature(self.path / "environment.json"), signature(self.path / "rows.jsonl")
        if began is None or written is None or not done:
            return None
        return max(0.0, (written[2] - began[2]) / 1e9 / done)


def _lap(line: bytes) -> Row:
    try:
        lap: Row = json.loads(line)
    except ValueError:
        return {"round": 0, "seconds": 0.0}
    return lap
