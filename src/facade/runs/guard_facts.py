"""What a guard did in a run, and what came of a backdoor, from the rows of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from facade.algorithms.local import Local
from facade.analysis.metrics import Counts, Floats
from facade.attacks.poisoned_data import TARGET
from facade.core.plan import deliver
from facade.core.turn import listed
from facade.core.types import Row
from facade.experiment.setup import Setup
from facade.runs.honest_nodes import honest_nodes

FIRST_ROUNDS = 40
"""Rounds, if they are not more than a third of a run, in which models are too weak to say who is dropped."""


class GuardSums:
    """Of what honest nodes heard, the share that they dropped, in part or whole, by who sent it; and how often their
    last gate closed. The first rounds are left out. Who was heard follows from the graphs: of an algorithm that picks
    its peers itself, as if it had followed them."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._guarded = setup.experiment.guard.rule != "none" and not isinstance(setup.algorithm, Local)
        n = setup.federation.n
        self._honest = honest_nodes(setup.experiment.model_dump(), n)
        self._after = min(FIRST_ROUNDS, setup.plan.rounds // 3)
        self._dropped, self._closed, self._listening = np.zeros(n), 0, frozenset(self._honest.tolist())

    def add(self, rows: Sequence[Row]) -> None:
        """Take in the rows of the next moment."""
        if not self._guarded or rows[0]["kind"] != "round" or rows[0]["round"] <= self._after:
            return
        attacked = rows[0]["round"] > self._setup.experiment.attack.start  # before, attackers are as honest as others
        for row in rows:
            if row["node"] in self._listening:
                self._closed += row["gate_closed"]
                senders = {sender for sender in row["dropped"] if sender >= 0}
                self._dropped[[s for s in senders if s in self._listening or attacked]] += 1

    def facts(self) -> Row:
        """Of the finished run; nothing without a guard."""
        if not self._guarded:
            return {}
        setup, dropped, honest, after = self._setup, self._dropped, self._honest, self._after
        n, rounds, first = setup.federation.n, setup.plan.rounds, setup.experiment.attack.start
        bad = np.setdiff1d(np.arange(n), honest)
        heard = _heard(setup, honest, range(after, rounds))
        if first > after:  # before, attackers are not counted
            heard[bad] = _heard(setup, honest, range(first, rounds))[bad]
        shares: Row = {"honest": _share(dropped, heard, honest)}
        if (cluster := setup.federation.cluster) is not None:
            groups = (np.intersect1d(honest, np.nonzero(cluster == c)[0]) for c in range(int(cluster.max()) + 1))
            shares["clusters"] = [_share(dropped, heard, group) for group in groups]
        if len(bad):
            shares["attackers"] = _share(dropped, heard, bad)
        closed = self._closed / (len(honest) * (rounds - after))
        return {"guard": {"after_round": after, "dropped": shares, "gate_closed": closed}}


def _heard(setup: Setup, by: Counts, rounds: Iterable[int]) -> Floats:
    """[n] how many messages of each node those nodes heard in these rounds."""
    counts = np.zeros(setup.federation.n)
    shard = setup.shard(np.arange(setup.federation.n))
    for round in rounds:
        edges = listed(shard, deliver(setup.plan.network, shard, round, setup.plan.turn(shard, round).edges))
        counts += np.bincount(edges.sender[np.isin(edges.receiver, by)], minlength=len(counts))
    return counts


def _share(dropped: Floats, heard: Floats, of: Counts) -> float | None:
    return float(dropped[of].sum() / heard[of].sum()) if heard[of].sum() else None


def backdoor_facts(finals: Sequence[Row], cluster: Counts | None) -> Row:
    """Of triggered samples that are not of the target class, the share that the final models take for it: the mean over
    the nodes of these rows, and over those of every cluster (`cluster` [n] is of all nodes)."""
    matrices = np.array([row["triggered_confusion"] for row in finals], dtype=np.int64)
    success = matrices[:, :, TARGET].sum(1) / matrices.sum((1, 2))
    facts: Row = {"all": float(success.mean())}
    if cluster is not None:
        of = cluster[[row["node"] for row in finals]]
        facts["clusters"] = [float(success[of == c].mean()) for c in range(int(cluster.max()) + 1)]
    return {"backdoor": facts}


def guard_in_words(facts: Mapping[str, Any], names: Sequence[str]) -> str:
    """What a guard did, in one sentence; `names` are those of the clusters."""
    dropped, after = facts["dropped"], facts["after_round"]
    words = f"Of what honest nodes sent, honest nodes dropped {_percent(dropped['honest'])} after round {after}"
    words += _by_cluster(dropped.get("clusters", []), names)
    if dropped.get("attackers") is not None:
        words += f"; of what attackers sent, {_percent(dropped['attackers'])}"
    return f"{words}. Their last gate closed in {_percent(facts['gate_closed'])} of node-rounds."


def backdoor_in_words(facts: Mapping[str, Any], names: Sequence[str]) -> str:
    """How often a backdoor works, in one sentence."""
    by_cluster = _by_cluster(facts.get("clusters", []), names)
    return f"The backdoor works on {_percent(facts['all'])} of triggered test samples{by_cluster}."


def _by_cluster(shares: Sequence[float | None], names: Sequence[str]) -> str:
    if len(shares) < 2:
        return ""
    return f" ({', '.join(f'{name} {_percent(share)}' for name, share in zip(names, shares, strict=True))})"


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{100 * share:.1f} %"
