"""What a Ray actor does: it hosts one shard and plays its rounds. Messages go from worker to worker
through Ray's object store; the driver sees references to them."""

from __future__ import annotations

import dataclasses
import platform
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from facade.core import tree
from facade.core.engine import Played, RoundLoop, play
from facade.core.messages import Edges, Inbox, Post, delivered
from facade.core.types import Ids, Row
from facade.data.federation import Federation
from facade.data.samples import Labelled
from facade.experiment.config import Experiment
from facade.experiment.decisive_settings import differences
from facade.experiment.setup import set_up
from facade.learning.machine import cpu
from facade.runs.checkpoint import Start
from facade.runs.environment import versions
from facade.runtimes.ray.errors import ClusterError

Arrays = dict[str, NDArray[Any]]
Part = Literal["state", "models"]


Wanted = list[Ids | None]
"""Per shard, the nodes whose messages are wanted from it; None: all of them."""


class RoundReport(NamedTuple):
    """What a worker tells the driver after its part of a round."""

    round: int
    rows: list[Row]
    wanted: Wanted | None
    """None: the run is over."""
    seconds: dict[str, float]
    """Spent by phase since the last report."""


class Worker:
    """One shard of a run."""

    def prepare(
        self, experiment: dict[str, Any], federation: PackedFederation, index: int, paths: list[str], driver: Row
    ) -> str:
        """Take over a shard, by its number; code of the user's own is looked for in `paths` too. `driver`: its
        versions, which must be those of this machine, whose processor is the answer."""
        _check_alike(driver)
        torch.set_num_threads(1)
        sys.path += [path for path in paths if path not in sys.path]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the driver has said them; arrays are read-only, and never written
            self._setup = set_up(Experiment.of(experiment), federation.unpacked())
        self._shards = self._setup.divided(self._setup.experiment.runtime.shards)
        self._index = index
        self._shard = self._setup.shard(self._shards[index])
        return cpu()

    def begin(self, round: int, state: dict[str, Any] | None) -> RoundReport:
        """Play to the first exchange: from the start, or from a round with the state of this shard's
        nodes, of which every leaf is a reference."""
        import ray

        start: tuple[int, Any] = (0, self._setup.algorithm.init(self._shard))
        if state is not None:
            arrays = zip(state, ray.get(list(state.values())), strict=True)
            start = Start(round, {name: torch.tensor(array) for name, array in arrays}).unflattened(start[1])
        setup = self._setup
        self._rounds = RoundLoop(play(setup.algorithm, self._shard, setup.plan, setup.federation, start))
        return self._report()

    def hand_out(self, wanted: Wanted) -> list[Any]:
        """References to this shard's messages, one slice for every other shard that wants some."""
        import ray

        flat = tree.flatten(self._post.outbox)
        everything = ray.put({k: v.numpy() for k, v in flat.items()}) if any(ids is None for ids in wanted) else None
        slices: list[Any] = []
        for shard, ids in enumerate(wanted):
            if shard == self._index or (ids is not None and not len(ids)):
                slices.append(None)
            elif ids is None:
                slices.append(everything)
            else:
                rows = torch.from_numpy(np.searchsorted(self._shard.nodes, ids))
                slices.append(ray.put({name: leaf[rows].numpy() for name, leaf in flat.items()}))
        return slices

    def advance(self, slices: list[Any]) -> RoundReport:
        """Fetch the slices meant for this shard, mix, and play to the next exchange or the end."""
        import ray

        refs = {shard: ref for shard, ref in enumerate(slices) if ref is not None}
        fetched = dict(zip(refs, ray.get(list(refs.values())), strict=True))
        self._rounds.advance(self._inbox(fetched))
        return self._report()

    def leaves(self, of: Part) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Dtype and shape [S, ...] of every leaf."""
        return {name: (str(leaf.dtype), tuple(leaf.shape)) for name, leaf in self._tree(of).items()}

    def piece(self, of: Part, name: str, rows: slice) -> NDArray[Any]:
        """Some rows of a leaf."""
        array: NDArray[Any] = self._tree(of)[name][rows].contiguous().numpy()
        return array

    def digests(self) -> tuple[list[str], list[str]]:
        """SHA-256 of every hosted node's model and state, at the end."""
        state, count = self._end.state, len(self._shard.nodes)
        return tree.digests(self._setup.algorithm.model(state), count), tree.digests(state, count)

    def _tree(self, of: Part) -> dict[str, torch.Tensor]:
        if of == "models":
            return tree.flatten(self._setup.algorithm.model(self._end.state))
        return tree.flatten(self._post.state)

    @property
    def _post(self) -> Post:
        assert self._rounds.post is not None, "the run is not over"
        return self._rounds.post

    @property
    def _end(self) -> Played:
        assert self._rounds.end is not None, "the run is over"
        return self._rounds.end

    def _report(self) -> RoundReport:
        seconds = self._setup.learner.stopwatch.lap()
        if self._rounds.post is None:
            return RoundReport(self._setup.plan.rounds, self._end.rows, None, seconds)
        return RoundReport(self._post.round, self._post.rows, self._wanted(self._post), seconds)

    def _wanted(self, post: Post) -> Wanted:
        """Per shard, the nodes to hear from; of the own one, nothing needs to be fetched."""
        if not isinstance(post.wanted, Edges):
            return [None] * len(self._shards)
        ids = np.unique(post.wanted.sender.numpy())
        bounds = [(nodes[0], nodes[-1] + 1) for nodes in self._shards]
        return [ids[np.searchsorted(ids, low) : np.searchsorted(ids, high)] for low, high in bounds]

    def _inbox(self, fetched: dict[int, Arrays]) -> Inbox:
        """The messages of this shard and those fetched, in ascending id of their senders."""
        own = {name: leaf.numpy() for name, leaf in tree.flatten(self._post.outbox).items()}
        wanted = self._wanted(self._post)
        ids: list[Ids] = []
        parts: list[Arrays] = []
        for shard, nodes in enumerate(self._shards):
            if shard == self._index:
                ids.append(nodes)
                parts.append(own)
            elif shard in fetched:
                senders_wanted = wanted[shard]
                ids.append(nodes if senders_wanted is None else senders_wanted)
                parts.append(fetched[shard])
        senders = torch.from_numpy(np.concatenate(ids))
        flat = {name: torch.from_numpy(_joined([part[name] for part in parts])) for name in own}
        own_rows = torch.searchsorted(senders, torch.from_numpy(self._shard.nodes))
        pool = tree.unflatten(flat, self._post.outbox)
        return Inbox(pool, senders, own_rows, delivered(self._post.wanted, senders))


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _check_alike(driver: Mapping[str, Any]) -> None:
    """Refuse to take part in a run of other code: its bits would be others. Python is compared by Ray."""
    here = versions()
    decisive = [name for name in here if name != "python"]
    differing = differences({name: here[name] for name in decisive}, {name: driver[name] for name in decisive})
    if differing:
        raise ClusterError(
            f"machine {platform.node()} of the cluster has other versions: {', '.join(differing)};"
            " install the same on all machines"
        )


class PackedSamples(NamedTuple):
    """`Labelled`, with arrays in place of tensors."""

    x: NDArray[Any]
    y: NDArray[np.int64]

    @classmethod
    def of(cls, labelled: Labelled) -> PackedSamples:
        """The same samples."""
        return cls(labelled.x.numpy(), labelled.y.numpy())

    def unpacked(self) -> Labelled:
        """The same samples, in the same memory."""
        return Labelled(torch.from_numpy(self.x), torch.from_numpy(self.y))


class PackedFederation(NamedTuple):
    """A federation with arrays in place of tensors: Ray keeps those once per machine, and every worker
    there reads the same memory."""

    bare: Federation
    """Without samples."""
    training: PackedSamples
    tests: list[PackedSamples]
    validations: list[PackedSamples] | None

    def unpacked(self) -> Federation:
        """The federation."""
        validations = self.validations
        return dataclasses.replace(
            self.bare,
            training=dataclasses.replace(self.bare.training, samples=self.training.unpacked()),
            tests=[part.unpacked() for part in self.tests],
            validations=None if validations is None else [part.unpacked() for part in validations],
        )


def packed(federation: Federation) -> PackedFederation:
    """The federation as Ray should keep it."""
    training, validations = federation.training, federation.validations
    nothing = Labelled(torch.empty(0), torch.empty(0))
    return PackedFederation(
        dataclasses.replace(
            federation, training=dataclasses.replace(training, samples=nothing), tests=[], validations=None
        ),
        PackedSamples.of(training.samples),
        [PackedSamples.of(part) for part in federation.tests],
        None if validations is None else [PackedSamples.of(part) for part in validations],
    )
