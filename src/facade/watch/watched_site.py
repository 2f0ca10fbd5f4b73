"""One study of a real site: what its files say, while it goes on and afterwards."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from facade.analysis.measures import recorded, values
from facade.core.types import Row
from facade.errors import DamagedFileError
from facade.files import seals
from facade.peers.node.journal import event_of
from facade.watch.followed_file import FollowedFile
from facade.watch.round_graph import RoundGraph
from facade.watch.site_events import Exchange, SiteEvents
from facade.watch.subject import Looked, measure_of, number, signature
from facade.watch.thinned import ThinnedLines


class SiteRows:
    """The rows of one site, as far as they go."""

    def __init__(self) -> None:
        self.done = 0
        self.quality, self.losses = ThinnedLines(), ThinnedLines()
        self.choices: list[tuple[int, int]] = []
        """(round, head) of what was read and not yet taken."""
        self.value: float | None = None
        self.final: float | None = None
        self.choice: int | None = None
        self.closed = 0
        """How often the last gate closed."""
        self.bytes = 0

    def add(self, row: Row, experiment: Row) -> None:
        """Take one row."""
        self.closed += bool(row.get("gate_closed"))
        self.bytes += int(row.get("bytes", 0))
        if row["kind"] == "round":
            self.done = int(row["round"])
            loss = row.get("train_loss")
            self.losses.add(self.done, [float("nan") if loss is None else loss])
            if row.get("choice") is not None:
                self.choice = int(row["choice"])
                self.choices.append((self.done, self.choice))
            return
        judged = values(measure_of(experiment), np.array([row["confusion"]], dtype=np.int64), recorded([row]))
        self.value = number(float(judged[0]))
        if row["kind"] == "final":
            self.final = self.value
        else:
            self.quality.add(int(row["round"]), [float(judged[0])])


class WatchedSite:
    """A directory with `membership.json` and `run/`: a site's home, or a study below it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.run = home / "run"
        self.id = _own_id(home)
        self.members: list[str] = []
        self.experiment: Row = {}
        self.federation = ""
        self.policy = ""
        self.graphs: RoundGraph | None = None
        self.events = SiteEvents()
        self.rows = SiteRows()
        self.ledger: dict[str, Any] = {}
        self.anew = False
        """Whether the last look has found rows that begin again: the site went back."""
        self._log, self._rows_file = FollowedFile(self.run / "log.jsonl"), FollowedFile(self.run / "rows.jsonl")
        self._has_checksums = False
        """Whether lines of the log have them; then one without is damaged."""
        self._seen: dict[Path, Any] = {}

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to come."""
        return bool(self.events.ended) and self.rows.final is not None

    def look(self) -> Looked:
        """Read what was written since the last look."""
        log = self._log.read()
        self._has_checksums |= b'"crc32":' in log.content
        for line in log.content.splitlines():
            event = event_of(line, self._has_checksums)
            if event is not None:
                with contextlib.suppress(LookupError, TypeError, ValueError):  # of another version, say
                    self.events.add(event)
        listed = self._read_list()
        rows = self._rows_file.read()
        self.anew = rows.anew
        if rows.anew:
            self.rows = SiteRows()
        for line in rows.content.splitlines():
            with contextlib.suppress(LookupError, TypeError, ValueError):
                self.rows.add(json.loads(line), self.experiment)
        told = self._changed(self.run / "status.json")
        if told:
            with contextlib.suppress(DamagedFileError):
                self.ledger = seals.read_json(self.run / "status.json").content.get("ledger", {})
        return Looked(listed or told or rows.anew or bool(log.content or rows.content), log.more or rows.more)

    def _read_list(self) -> bool:
        """Who takes part in what: by the list of the epoch that the site is in, else the one in its home; whether that
        has changed."""
        epoch = self.run / "epochs" / f"{self.events.epoch}.json"
        path = epoch if epoch.exists() else self.home / "membership.json"
        if not self._changed(path):
            return False
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            listed = json.loads(path.read_text())["membership"]
            self.experiment = listed["experiment"]
            self.members = [member["id"] for member in listed["members"]]
            self.federation, self.policy = str(listed["federation"]), str(listed["policy"])
            self.graphs = RoundGraph(self.experiment, len(self.members))
        return True

    def _changed(self, path: Path) -> bool:
        """Whether a file is another than when this was asked last."""
        now = signature(path)
        changed = now is not None and self._seen.get(path) != now
        self._seen[path] = now
        return changed

    @property
    def rounds(self) -> int:
        """Rounds of the run."""
        return self.events.rounds or int(self.experiment.get("training", {}).get("rounds", 0))

    def expected(self, round: int) -> list[str]:
        """Whom the site hears in a round, counted from 0; nobody where that is not known."""
        if self.graphs is None or self.id not in self.members:
            return []
        if round >= self.rounds:
            return [id for id in self.members if id != self.id]
        return (
            []
            if self.graphs.why_not
            else [self.members[i] for i in self.graphs.into(self.members.index(self.id), round)]
        )

    def exchange(self) -> tuple[int, Exchange]:
        """The exchange to show: the one under way, or the last that is over."""
        under_way = self.events.exchanges.get(self.events.round)
        if under_way is None and self.events.round - 1 in self.events.exchanges and not self.waits_for():
            return self.events.round - 1, self.events.exchanges[self.events.round - 1]
        return self.events.round, under_way or Exchange()

    def waits_for(self) -> list[str]:
        """Whose messages of this round are still to come."""
        now = self.events.exchanges.get(self.events.round, Exchange())
        if now.over or self.events.ended or not self.events.last:
            return []
        return [id for id in self.expected(self.events.round) if id not in now.heard | now.missed]

    def state(self) -> str:
        """In words, what the site is doing."""
        events = self.events
        if events.ended or events.trouble:
            return events.ended or events.trouble
        if not events.last:
            return "has not begun"
        waits = self.waits_for()
        return f"waits for {', '.join(waits)}" if waits else "trains"


def _own_id(home: Path) -> str:
    """The id of a site, by the node.toml of its home; a study lies two directories below it."""
    for place in (home, home.parent.parent):
        with contextlib.suppress(OSError, ValueError, LookupError):
            return str(tomllib.loads((place / "node.toml").read_text())["id"])
    return home.name
