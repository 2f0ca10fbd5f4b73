"""What the rows of a run have come to, without any file: fed with new rows, asked for sections."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np

from facade.analysis.measures import recorded, values
from facade.core.types import Row
from facade.watch.head_strip import HeadStrip
from facade.watch.node_groups import ATTACKERS, NodeGroups, mean_of_known
from facade.watch.round_graph import RoundGraph
from facade.watch.round_rows import Round, RoundRows
from facade.watch.subject import MOST_DRAWN, Section, described, measure_of, number
from facade.watch.thinned import ThinnedLines


class RunRecord:
    """A run of n nodes as far as its rows go."""

    def __init__(self, experiment: Row, groups: NodeGroups) -> None:
        self.done = 0
        """Rounds that all nodes have played."""
        self.final: list[float] | None = None
        """Of each line after the final exchange; None before it."""
        self._experiment = experiment
        self._groups = groups
        self._measure = measure_of(experiment)
        self._n = len(groups.names)
        self._rows = RoundRows(self._n, self._guarded)
        self._quality, self._losses, self._drops = ThinnedLines(), ThinnedLines(), ThinnedLines()
        self._shares = [ThinnedLines() for _ in groups.groups]
        self._strip = HeadStrip(self._n)
        self._values: list[float | None] = []
        """[n] by the last evaluation."""
        self._heard = self._heard_finally = 0.0
        self._last: Round | None = None
        self._dropped: Counter[int] = Counter()
        """By sender, over all rounds."""
        self._closed = 0

    def feed(self, content: bytes) -> None:
        """Take new lines of rows.jsonl."""
        for round in self._rows.rounds(content):
            self._add(round)
        for rows in self._rows.evaluations(content):
            self._judge(rows)

    def _add(self, round: Round) -> None:
        self.done, self._last = round.round, round
        self._heard += sum(round.bytes) / self._n
        self._losses.add(round.round, self._groups.means(round.losses))
        if round.choice and self._n <= MOST_DRAWN:
            self._strip.add(round.round, round.choice)
        elif round.choice:
            chosen = np.array(round.choice)
            for lines, members in zip(self._shares, self._groups.members, strict=True):
                lines.add(round.round, (np.bincount(chosen[members]) / max(1, len(members))).tolist())
        if self._guarded:
            self._dropped.update(sender for _, sender in round.dropped)
            self._closed += round.closed
            by_group = Counter(self._group_of[sender] for _, sender in round.dropped)
            self._drops.add(round.round, [by_group[group] for group in range(len(self._senders))])

    @property
    def _guarded(self) -> bool:
        return bool(self._experiment.get("guard", {}).get("rule", "none") != "none")

    @functools.cached_property
    def _group_of(self) -> list[int]:
        return self._groups.group_of()

    @functools.cached_property
    def _senders(self) -> list[str]:
        """Names of groups, that of the attackers among them where there are any."""
        return self._groups.groups + [ATTACKERS] * bool(self._groups.attackers)

    def _judge(self, rows: tuple[Row, ...]) -> None:
        confusion = np.array([row["confusion"] for row in rows], dtype=np.int64)
        judged = values(self._measure, confusion, recorded(rows))
        self._values = [number(value) for value in judged]
        lines = self._groups.means(judged.tolist())
        if len(self._groups.groups) < len(self._groups.members[0]) and self._groups.of_sites:
            lines.append(self._worst(judged))
        if rows[0]["kind"] == "final":
            self.final = lines
            self._heard_finally = sum(row["bytes"] for row in rows) / len(rows)
        else:
            self._quality.add(rows[0]["round"], lines)

    def _worst(self, judged: Any) -> float:
        known = judged[self._groups.honest]
        known = known[~np.isnan(known)]
        return self._measure.worst(known) if len(known) else float("nan")

    # Sections

    def quality(self) -> Section:
        """How good models are: a line for each group, and every node now."""
        names = [*self._groups.groups, "worst site"]
        plain = self._quality.plain()
        final = [number(value) for value in self.final or []]
        count = max(len(plain["values"]), len(final))
        lines = [
            {"name": names[j], "rounds": plain["rounds"]}
            | {"values": plain["values"][j] if j < len(plain["values"]) else []}
            | {"final": final[j] if final else None}
            for j in range(count)
        ]
        section: Section = {"measure": described(self._measure), "lines": lines, "of_sites": self._groups.of_sites}
        if self._values:
            judged = np.array([np.nan if value is None else value for value in self._values])
            section["worst"] = number(self._worst(judged))
            section["mean"] = number(mean_of_known(judged[self._groups.honest].tolist()))
            section["final"] = self.final is not None
        if self._values and self._n <= MOST_DRAWN:
            section["nodes"] = [
                {"name": self._groups.names[i], "group": self._group_of[i], "value": value}
                for i, value in enumerate(self._values)
            ]
        return section

    def losses(self) -> Section:
        """Mean training losses: a line for each group."""
        plain = self._losses.plain()
        lines = zip(self._groups.groups, plain["values"], strict=False)
        return {"lines": [{"name": name, "rounds": plain["rounds"], "values": each} for name, each in lines]}

    def traffic(self) -> Section:
        """Payload bytes that a node heard, the mean over nodes."""
        last = sum(self._last.bytes) / self._n if self._last else 0
        return {"total": self._heard, "last": last, "final": self._heard_finally}

    def heads(self) -> Section | None:
        """Who chose which head; None where there are none."""
        if self._last is None or not self._last.choice:
            return None
        if self._n > MOST_DRAWN:
            pairs = zip(self._groups.groups, self._shares, strict=True)
            shares = [{"name": name} | _without_gaps(lines.plain(3)) for name, lines in pairs]
            return {"shares": shares, "done": self.done}
        strip = self._strip.plain() or {}
        order = sorted(self._groups.honest.tolist(), key=lambda node: self._group_of[node])
        rows = [{"name": self._groups.names[i], "group": self._group_of[i], "place": i} for i in order]
        return strip | {"rows": rows, "groups": self._groups.groups, "done": self.done}

    def guard(self) -> Section | None:
        """What the guard dropped; None where there is none."""
        if not self._guarded:
            return None
        plain = self._drops.plain(2)
        lines = zip(self._senders, plain["values"], strict=False)
        section: Section = {"rule": self._experiment["guard"]["rule"], "closed": self._closed}
        section["lines"] = [{"name": name, "rounds": plain["rounds"], "values": each} for name, each in lines]
        section["last"] = len(self._last.dropped) if self._last else 0
        most = self._dropped.most_common(5)
        section["most"] = [{"name": self._groups.names[node], "count": count} for node, count in most]
        return section

    def graph(self, graphs: RoundGraph) -> Section:
        """Who heard whom in the last round."""
        if graphs.why_not or self._last is None:
            return {"why_not": graphs.why_not or "No round is over yet."}
        receiver, sender = graphs.edges(self._last.round - 1)
        section: Section = {"round": self._last.round, "messages": len(receiver), "groups": self._senders}
        if self._n > MOST_DRAWN:
            return section | self._between_groups(receiver, sender)
        refused = set(self._last.dropped)
        heads: list[int | None] = [*self._last.choice] or [None] * self._n
        order = sorted(range(self._n), key=lambda node: self._group_of[node])
        place = {node: i for i, node in enumerate(order)}
        section["nodes"] = [
            {"name": self._groups.names[i].removeprefix("node "), "group": self._group_of[i], "head": heads[i]}
            for i in order
        ]
        section["edges"] = [
            [place[r], place[s], int((r, s) in refused)]
            for r, s in zip(receiver.tolist(), sender.tolist(), strict=True)
        ]
        return section

    def _between_groups(self, receiver: Any, sender: Any) -> Section:
        """Of many nodes: how many messages a node of each group heard from each group, in the mean."""
        of, count = np.array(self._group_of), len(self._senders)
        heard = np.bincount(of[receiver] * count + of[sender], minlength=count * count).reshape(count, count)
        sizes = np.maximum(1, np.bincount(of, minlength=count))
        return {"between": np.round(heard / sizes[:, None], 2).tolist(), "sizes": sizes.tolist()}


def _without_gaps(plain: Section) -> Section:
    """Shares of heads; a head that nobody has chosen yet has none."""
    return plain | {"values": [[share or 0.0 for share in line] for line in plain["values"]]}
