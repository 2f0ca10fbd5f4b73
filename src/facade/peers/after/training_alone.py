"""What a site says at the end, and what it would have had alone."""

from __future__ import annotations

from typing import Any

from facade.algorithms.local import Local
from facade.analysis import metrics
from facade.core.engine import drive, play
from facade.core.types import Row
from facade.learning.torch_threads import one_intra_op_thread
from facade.peers.after.outcome import Outcome
from facade.peers.node.site_epoch import SiteEpoch, inbox_of
from facade.runs.rows import RowsFile


def alone(epoch: SiteEpoch) -> Row:
    """The confusion matrix and the measures of this site's model after training alone, on the same batches."""
    rounds = play(Local(), epoch.shard, epoch.plan, epoch.setup.federation)
    with one_intra_op_thread():
        played = drive(rounds, lambda post: inbox_of(epoch.number, post.outbox, {}, False))
    return {key: played.rows[-1][key] for key in ("confusion", "measures")}


def facts(outcome: Outcome, epoch: SiteEpoch, rows: RowsFile, own: Row | None) -> dict[str, Any]:
    """What site.json holds: counts and the ledger; no data, no weights."""
    last: dict[str, Row] = {}
    closed = 0
    for row in rows:
        last[row["kind"]] = row
        closed += row.get("gate_closed", False)
    keep = ("round", "confusion", "flat_confusion", "own_confusion", "measures", "choice", "bytes", "gate_closed")
    site_facts: dict[str, Any] = {
        "id": outcome.id,
        "federation": outcome.federation,
        "epoch": outcome.epoch,
        "policy": outcome.policy,
        "experiment_sha256": outcome.experiment,
        "algorithm": epoch.setup.experiment.algorithm["name"],
        "classes": epoch.membership.schema_.classes,
        "rounds": epoch.plan.rounds,
        "images": int(sum(len(held) for held in epoch.shard.data.rows)),
        "final": {key: last["final"][key] for key in keep if key in last["final"]},
        "ledger": outcome.ledger,
        "gate_closed": closed,
    }
    if own is not None:
        site_facts["alone"] = own
        site_facts["gain"] = _accuracy(last["final"]["confusion"]) - _accuracy(own["confusion"])
    return site_facts


def _accuracy(confusion: list[list[int]]) -> float:
    import numpy as np

    return float(metrics.accuracy(np.array([confusion]))[0])
