"""The round loop. It is a generator that never touches a network: it yields a `Post` and is sent an
`Inbox`, and every runtime (simulator, Ray, real peers) drives this same function."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from facade.core import tree
from facade.core.algorithm import Algorithm
from facade.core.local_parts import finished, mixed, published
from facade.core.messages import EVERYONE, Deliveries, Inbox, Post
from facade.core.plan import OTHER_PRIOR, Plan, deliver
from facade.core.turn import Shard, Turn
from facade.core.types import Ids, Row
from facade.data.federation import Federation
from facade.data.samples import Labelled
from facade.errors import DivergedError, ExperimentError
from facade.learning.learner import Examined, Learner
from facade.learning.measures import as_row

P = TypeVar("P")
I = TypeVar("I")  # noqa: E741 - for inboxes
R = TypeVar("R")


class Played(NamedTuple):
    """The end of a shard's run."""

    state: Any
    rows: list[Row]


def play(
    algorithm: Algorithm[Any], shard: Shard, plan: Plan, federation: Federation, start: tuple[int, Any] | None = None
) -> Generator[Post, Inbox, Played]:
    """Play all rounds of a run for one shard; `start` = (round, state) continues an earlier one.

    The federation is asked for tests only; the algorithm sees the shard.
    """
    watch = shard.learner.stopwatch
    first, state = start if start is not None else (0, algorithm.init(shard))
    del start  # which would keep the first state through the whole run
    _check_state(state)
    rows: list[Row] = []
    for round in range(first, plan.rounds):
        with watch.phase("topology"):
            turn = plan.turn(shard, round)
        before = state
        online = torch.from_numpy(plan.network.online(shard.seed, round, shard.nodes))
        state = _trained(algorithm, turn, state, online)
        wanted = deliver(plan.network, shard, round, algorithm.wanted(turn, state))
        inbox = yield Post(round, published(algorithm, turn, state), wanted, before, rows)
        heard, before = _heard(shard, inbox), None if online.all() else before
        with watch.phase("mix"):
            state = mixed(algorithm, turn, state, inbox)
            if before is not None:
                state = tree.where(online, state, before)
        del before
        inbox.pool = None  # it holds as much as the state, and whoever sent the inbox may hold it for another round
        rows = _notes(algorithm, shard, state, round, heard)
        if plan.evaluates(round + 1):
            rows += _evaluations(algorithm, shard, plan, federation, state, round + 1)
    if not plan.all_reduce:
        last = [row for row in rows if row["kind"] == "evaluation"]
        return Played(state, rows + [{**row, "kind": "final", "bytes": 0} for row in last])
    turn = plan.turn(shard, plan.rounds)
    inbox = yield Post(plan.rounds, published(algorithm, turn, state), EVERYONE, state, rows)
    heard = _heard(shard, inbox)
    with watch.phase("mix"):
        state = finished(algorithm, turn, state, inbox)
    inbox.pool = None
    finals = _evaluations(algorithm, shard, plan, federation, state, plan.rounds)
    notes = _each(algorithm.final_notes(state), len(shard.nodes))
    return Played(state, [{**row, "kind": "final", "bytes": heard[i]} | notes[i] for i, row in enumerate(finals)])


class RoundLoop(Generic[P, I, R]):
    """A round loop under way, advanced one exchange at a time."""

    def __init__(self, rounds: Generator[P, I, R]) -> None:
        self._rounds = rounds
        self.post: P | None = None
        """What was published and waits for an inbox; None when the rounds are over."""
        self.end: R | None = None
        """What the rounds came to, when they are over."""
        self._step(lambda: next(rounds))

    def advance(self, inbox: I) -> None:
        """Hand over what arrived, and go on to the next exchange or the end."""
        self.post = None  # and with it the state before the round
        self._step(lambda: self._rounds.send(inbox))

    def _step(self, play_on: Callable[[], P]) -> None:
        try:
            self.post = play_on()
        except StopIteration as over:
            self.end = over.value


def drive(rounds: Generator[P, I, R], exchange: Callable[[P], I]) -> R:
    """Play rounds to their end: every post becomes an inbox by `exchange`, which is all that runtimes differ in."""
    loop = RoundLoop(rounds)
    while loop.post is not None:
        loop.advance(exchange(loop.post))
    return cast(R, loop.end)


def _check_state(state: Any) -> None:
    """Refuse a state of a user's own algorithm that could not be kept."""
    for name, leaf in tree.flatten(state).items():
        if leaf.dtype not in tree.DTYPES:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in tree.DTYPES)
            raise ExperimentError(
                f"the algorithm keeps '{name}' as {leaf.dtype}, which a checkpoint cannot hold; use one of: {known}"
            )


def _heard(shard: Shard, inbox: Inbox) -> list[int]:
    """Payload bytes each hosted node heard."""
    size = tree.row_bytes(inbox.pool)
    if not isinstance(inbox.deliveries, Deliveries):
        return [size * (shard.n - 1)] * len(shard.nodes)
    counts = torch.bincount(inbox.deliveries.receiver, minlength=len(shard.nodes))
    return [int(count) * size for count in counts]


def _notes(algorithm: Algorithm[Any], shard: Shard, state: Any, round: int, heard: list[int]) -> list[Row]:
    """One row per hosted node: what the algorithm notes, and the bytes heard in this round."""
    with shard.learner.stopwatch.phase("record"):
        noted_values = algorithm.notes(state)
        _check_notes(noted_values, len(shard.nodes))
        notes = _each(noted_values, len(shard.nodes))
        return [
            {"kind": "round", "round": round + 1, "node": node, "bytes": heard[i]} | notes[i]
            for i, node in enumerate(shard.nodes.tolist())
        ]


def _each(notes: Mapping[str, Tensor], nodes: int) -> list[Row]:
    """What is noted of each of the hosted nodes."""
    recorded = {name: _recorded(values) for name, values in notes.items()}
    return [{name: values[i] for name, values in recorded.items()} for i in range(nodes)]


def _check_notes(notes: Mapping[str, Tensor], nodes: int) -> None:
    """Refuse notes of a user's own algorithm that rows could not hold, or readers would stumble over."""
    taken = sorted({"kind", "round", "node", "bytes"} & set(notes))
    if taken:
        raise ExperimentError(f"notes() has '{taken[0]}', which every row has already; call it something else")
    if "train_loss" not in notes:
        raise ExperimentError(f"notes() has no 'train_loss' [S], only {', '.join(notes) or 'nothing'}; note it as well")
    for name, values in notes.items():
        if not isinstance(values, Tensor) or values.shape[:1] != (nodes,):
            given = f"shape {list(values.shape)}" if isinstance(values, Tensor) else f"type {type(values).__name__}"
            raise ExperimentError(f"notes() has '{name}' of {given}; expected a tensor with {nodes} rows, one per node")
    if "choice" in notes and notes["choice"].dtype != torch.int64:
        raise ExperimentError(f"notes() has 'choice' of {notes['choice'].dtype}; expected the heads' numbers as int64")


def _recorded(values: Tensor) -> list[Any]:
    """Values as JSON knows them: null for what was not computed (NaN) or is no number that it has."""
    listed = values.tolist()
    if not values.is_floating_point() or values.isfinite().all():
        return list(listed)
    return [_known(v) for v in listed]


def _known(value: Any) -> Any:
    if isinstance(value, list):
        return [_known(v) for v in value]
    return value if math.isfinite(value) else None


def _trained(algorithm: Algorithm[Any], turn: Turn, state: Any, online: Tensor) -> Any:
    """The state after the local work of the nodes that are online [S]."""
    if online.all():
        return algorithm.local(turn, state)
    rows = torch.nonzero(online).flatten()
    if not len(rows):
        return state
    worked = algorithm.local(turn.only(rows), tree.rows(state, rows))
    return tree.map(lambda old, new: old.index_copy(0, rows, new), state, worked)


def _evaluations(
    algorithm: Algorithm[Any], shard: Shard, plan: Plan, federation: Federation, state: Any, done: int
) -> list[Row]:
    """One row per hosted node: the confusion matrix of its model on its test set, and the measures beside it."""
    with shard.learner.stopwatch.phase("evaluate"):
        models = algorithm.models(state) if plan.head == "oracle" else [algorithm.model(state)]
        tests = {"": federation.tests, "validation_": federation.validations, "triggered_": federation.triggered}
        rows: list[Row] = [{"kind": "evaluation", "round": done, "node": node} for node in shard.nodes.tolist()]
        prior = plan.prior_for(federation)
        priors = _priors(shard, prior)
        for prefix, sets in tests.items():
            if sets is None:
                continue
            examined = evaluate(shard, models, sets, federation.test_of[shard.nodes], priors)
            broken = shard.nodes[~torch.isfinite(examined.loss).numpy()]
            if len(broken):
                raise DivergedError(
                    f"the model of node {broken[0]} gives no finite loss on its test data after round {done}; try a"
                    " smaller training.lr"
                )
            for i, row in enumerate(rows):
                row[f"{prefix}confusion"] = examined.confusion[i].tolist()
                row[f"{prefix}loss"] = examined.loss[i].item()
                row[f"{prefix}measures"] = as_row(examined.measures[i], row[f"{prefix}loss"])
                if priors is not None:
                    row[f"{prefix}{OTHER_PRIOR[prior]}_confusion"] = examined.others[i, 0].tolist()
        choice = algorithm.notes(state).get("choice")
        if choice is not None:
            rows = [{**row, "choice": c} for row, c in zip(rows, choice.tolist(), strict=True)]
        return rows


def _priors(shard: Shard, prior: str) -> Tensor | None:
    """[S, 2, classes] what is added to outputs before a prediction: for the one that counts, and for the other. None
    with the plain loss, by which models learn how frequent labels are."""
    own = shard.learner.log_shares(shard.data)
    if own is None:
        return None
    flat = torch.zeros_like(own)
    return torch.stack([own, flat] if prior == "own" else [flat, own], 1).cpu()


def evaluate(
    shard: Shard, models: list[dict[str, Tensor]], tests: list[Labelled], test_of: Ids, priors: Tensor | None = None
) -> Examined:
    """Every node's model on its own test set, under its priors [S, 1 + p, classes] if there are any; of several models
    (the oracle), the one with the lowest test loss. Equal models on the same test set are evaluated once."""
    results = [_examine(shard.learner, model, tests, test_of, priors) for model in models]
    best = torch.stack([r.loss for r in results]).argmin(0)
    rows = torch.arange(len(best))
    return Examined(*(torch.stack(part)[best, rows] for part in zip(*results, strict=True)))


def _examine(
    learner: Learner, model: dict[str, Tensor], tests: list[Labelled], test_of: Ids, priors: Tensor | None
) -> Examined:
    groups = _twins(model, test_of)
    first = np.array([group[0] for group in groups])
    theirs = None if priors is None else [priors[group] for group in groups]
    different = model if len(first) == len(test_of) else tree.rows(model, torch.from_numpy(first))
    examined = learner.examine(different, tests, test_of[first], theirs)
    if priors is None:  # what one of the twins gets, all get
        examined = tree.rows(examined, torch.tensor([i for i, group in enumerate(groups) for _ in group]))
    return tree.rows(examined, torch.from_numpy(np.argsort(np.concatenate(groups))))


def _twins(model: dict[str, Tensor], test_of: Ids) -> list[list[int]]:
    """Rows in groups: those with equal models and the same test set. If all models differ in a sample of their numbers,
    no more are compared."""
    nodes = len(test_of)
    flat = [leaf.reshape(nodes, -1) for leaf in model.values()]
    some = torch.cat([leaf[:, :: leaf.shape[1] // 64 + 1].double() for leaf in flat], 1).numpy()
    if len({sample.tobytes() for sample in some}) == nodes:
        return [[row] for row in range(nodes)]
    twins: dict[tuple[int, str], list[int]] = {}
    for row, digest in enumerate(tree.digests(model, nodes)):
        twins.setdefault((int(test_of[row]), digest), []).append(row)
    return list(twins.values())
