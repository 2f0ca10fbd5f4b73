"""An algorithm behind a guard: what nodes heard is judged part by part, then mixed by the algorithm as ever.

Nodes are taken in blocks, so that never the messages of all edges are held at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from facade.core import tree
from facade.core.message_parts import (
    A_LIE,
    UNCHECKED,
    Heard,
    MessagePart,
    as_inbox,
    as_matrix,
    entry_of,
    from_matrix,
    heard,
    with_entry,
)
from facade.core.messages import Deliveries, Inbox
from facade.core.stage import Stage
from facade.core.turn import Shard, Turn
from facade.guards.guard import Guard, PartHeard
from facade.guards.last_gate import own_losses, passage

MOST_NOTED = 8
"""Dropped messages of a node that are noted in a round."""
_BLOCK_VALUES = 1 << 21
"""Numbers of messages that are held at a time, if one node has not more."""

Mix = Callable[[Turn, Any, Inbox], Any]


class GuardedState(NamedTuple):
    """Per node: the algorithm's own state, and what its guard remembers."""

    inner: Any
    rise: Tensor
    """[S] float64: by how much mixing usually raises the loss on one's own samples, in nats."""
    dropped: Tensor
    """[S, MOST_NOTED] whose messages were not used in the last round, in part or whole; -1: nobody's."""
    dropped_part: Tensor
    """[S, MOST_NOTED] which part of them that was: 0 all of it, for what no honest node would say; from 1 on by its
    place among the algorithm's parts; -1: none."""
    caught: Tensor
    """[S, n] who has said what no honest node would say, as far as a node heard it; it does not hear them again."""
    met: Tensor
    """[S, n] whose messages could be checked, and were no lies."""
    closed: Tensor
    """[S] whether the last gate was closed: the node went on as if it had heard nobody."""


class Judged(NamedTuple):
    """What came of judging."""

    state: GuardedState
    usable: Heard
    dropped: list[Tensor]
    """[b, m] what is not used: first whole messages, then part by part."""
    own_loss: Tensor | None
    """[b] of nodes' own models, where a rule came to know it, else nan."""


@dataclass(frozen=True)
class Guarded(Stage):
    """An algorithm whose nodes judge what they hear."""

    guard: Guard = field(kw_only=True)
    rounds: int = field(kw_only=True)
    """Of the run."""

    def own_members(self) -> tuple[dict[str, int], frozenset[str]]:
        return {"caught": 1, "met": 1}, frozenset({"dropped"})

    def init(self, shard: Shard) -> GuardedState:
        nodes = len(shard.nodes)
        nobody = torch.full((nodes, MOST_NOTED), -1)
        usual = torch.zeros(nodes, dtype=torch.float64)
        no = torch.zeros(nodes, dtype=torch.bool)
        unknown = torch.zeros(nodes, shard.n, dtype=torch.bool)
        return GuardedState(self.inner.init(shard), usual, nobody, nobody, unknown, unknown, no)

    def local(self, turn: Turn, state: GuardedState) -> GuardedState:
        return state._replace(inner=self.inner.local(turn, state.inner))

    def message(self, turn: Turn, state: GuardedState) -> Any:
        return self.inner.message(turn, state.inner)

    def mix(self, turn: Turn, state: GuardedState, inbox: Inbox) -> GuardedState:
        return self._in_blocks(self.inner.mix, turn, state, inbox)

    def finish(self, turn: Turn, state: GuardedState, inbox: Inbox) -> GuardedState:
        return self._in_blocks(self.inner.finish, turn, state, inbox)

    def notes(self, state: GuardedState) -> dict[str, Tensor]:
        return self.inner.notes(state.inner) | _verdicts(state)

    def final_notes(self, state: GuardedState) -> dict[str, Tensor]:
        return self.inner.final_notes(state.inner) | _verdicts(state)

    def _in_blocks(self, mix: Mix, turn: Turn, state: GuardedState, inbox: Inbox) -> GuardedState:
        blocks = list(_blocks(inbox))
        if len(blocks) == 1:
            return self._guarded(mix, turn, state, heard(inbox, blocks[0]))

        def guarded(rows: slice) -> GuardedState:
            its_turn = turn.only(torch.arange(rows.start, rows.stop))
            return self._guarded(mix, its_turn, tree.rows(state, rows), heard(inbox, rows))

        return tree.concat(turn.learner.in_threads(guarded, blocks))

    def _guarded(self, mix: Mix, turn: Turn, state: GuardedState, heard: Heard) -> GuardedState:
        """Judge what a block of nodes heard, mix it, and look again."""
        state, usable, dropped, before = self._judged(turn, state, heard)
        mixed = mix(turn, state.inner, as_inbox(usable))
        state = state._replace(closed=torch.zeros_like(state.closed))
        if self.guard.gate:
            if before is None or before.isnan().any():
                own = own_losses(turn, self.inner.model(state.inner))
                before = own if before is None else torch.where(before.isnan(), own, before)
            closed, rise = passage(turn, before, self.inner.model(mixed), state.rise)
            if closed.any():
                nobody = heard._replace(sender=torch.where(heard.own, heard.sender, -1))
                mixed = tree.where(closed, mix(turn, state.inner, as_inbox(nobody)), mixed)
            state = state._replace(closed=closed, rise=rise)
        return state._replace(inner=mixed)._replace(**_noted(heard, dropped))

    def _judged(self, turn: Turn, state: GuardedState, heard: Heard) -> Judged:
        """What may be used of what a block of nodes heard."""
        state, unheard = self._shunned(turn, state, heard)
        heard = heard._replace(sender=heard.sender.masked_fill(unheard, -1))
        messages, dropped, own_loss = heard.messages, [unheard], None
        for part in self.inner.parts(turn, state.inner, heard):
            values = entry_of(heard.messages, part.entry)
            if not tree.flatten(values):  # such as the core, where the whole model is head
                dropped.append(torch.zeros_like(heard.own))
                continue
            verdict = self.guard.judge(self._seen(turn, heard, part, own_loss))
            messages = with_entry(messages, part.entry, from_matrix(verdict.values, values))
            dropped.append(verdict.dropped)
            own_loss = verdict.own_loss
        return Judged(state, heard._replace(messages=messages), dropped, own_loss)

    def dropped(self, turn: Turn, state: GuardedState, inbox: Inbox) -> Tensor:
        """[n] whose messages most of those who hear them would drop, in part or whole."""
        votes = torch.zeros(turn.shard.n, 2)
        for rows in _blocks(inbox):
            some = heard(inbox, rows)
            of_rows = tree.rows(state, rows), some
            judged = self._judged(turn.only(torch.arange(rows.start, rows.stop)), *of_rows)
            any_part = torch.stack(judged.dropped).any(0)[some.others].float()
            votes.index_add_(0, some.sender[some.others], torch.stack([any_part, torch.ones_like(any_part)], 1))
        return 2 * votes[:, 0] > votes[:, 1]

    def _shunned(self, turn: Turn, state: GuardedState, heard: Heard) -> tuple[GuardedState, Tensor]:
        """Who has been caught by now, and the messages [b, m] that are not used at all."""
        said, senders = self.inner.implausible(turn, state.inner, heard), heard.sender.clamp(min=0)
        rows = torch.arange(len(senders)).unsqueeze(1).expand_as(senders)
        caught = heard.others & ((said == A_LIE) | state.caught[rows, senders])
        unknown = heard.others & (said == UNCHECKED) & ~state.met[rows, senders]
        in_order = heard.others & (said == 0)
        yes = torch.tensor(True)
        state = state._replace(
            caught=state.caught.index_put((rows[caught], senders[caught]), yes),
            met=state.met.index_put((rows[in_order], senders[in_order]), yes),
        )
        return state, caught | unknown

    def _seen(self, turn: Turn, heard: Heard, part: MessagePart, own_loss: Tensor | None) -> PartHeard:
        """A part as a guard sees it."""
        values = entry_of(heard.messages, part.entry)
        judge = part.losses

        def losses(matrix: Tensor) -> Tensor:
            assert judge is not None
            return judge(from_matrix(matrix, values))

        return PartHeard(
            as_matrix(values),
            as_matrix(part.held),
            heard.here,
            heard.own,
            part.group,
            part.judged & heard.here,
            losses if judge is not None else None,
            part.affordable,
            math.log(turn.learner.outputs),
            own_loss,
            turn.round / self.rounds,
        )


def _verdicts(state: GuardedState) -> dict[str, Tensor]:
    """What is noted of the last exchange."""
    return {"dropped": state.dropped, "dropped_part": state.dropped_part, "gate_closed": state.closed}


def _blocks(inbox: Inbox) -> Iterator[slice]:
    """Rows of nodes whose messages are judged together."""
    nodes = len(inbox.own)
    if isinstance(inbox.deliveries, Deliveries):
        places = int(torch.bincount(inbox.deliveries.receiver, minlength=nodes).max()) + 1
    else:
        places = len(inbox.senders)
    size = sum(leaf[0].numel() for leaf in tree.flatten(inbox.pool).values())
    count = max(1, _BLOCK_VALUES // (places * size))
    return (slice(start, min(start + count, nodes)) for start in range(0, nodes, count))


def _noted(heard: Heard, dropped: list[Tensor]) -> dict[str, Tensor]:
    """Who was dropped in which part: the first MOST_NOTED of every node, by part and sender."""
    every = torch.cat(dropped, 1)
    senders = torch.cat([heard.sender] * len(dropped), 1)
    parts = torch.arange(len(dropped)).repeat_interleave(heard.sender.shape[1]).expand_as(senders)
    order = torch.argsort((~every).long(), dim=1, stable=True)[:, :MOST_NOTED]
    shown = every.gather(1, order)
    empty = MOST_NOTED - order.shape[1]
    noted = {"dropped": senders, "dropped_part": parts}
    shown_of = {name: torch.where(shown, of.gather(1, order), -1) for name, of in noted.items()}
    return {name: torch.nn.functional.pad(of, (0, empty), value=-1) for name, of in shown_of.items()}
