"""Nodes find out which of them look alike before they choose among heads: a survey by gossip, while they train.

    count     average the class sums of all nodes: the first group is everybody
    seek      agree by max-gossip on the node that looks strangest in its group
    join      nodes of that group which look more like it than like the others say so; their class sums are averaged
    refine    with the means of both halves known, join or leave, and say how sure one is; twice

and from `seek` on again, until there is no group that is seen to have two kinds of nodes, or there are enough. A group
is divided only if the members of both halves are sure of it, by SURE standard errors in the mean: where all nodes look
alike, one group remains. Where classes may tell groups apart (class_sets.py), that is tried before looks are: nodes
join a bidder with which they have a class in common. What happens in a round follows from its number and from what all
have agreed on. A message carries class sums in the place of a head, and with the number of the head 64 bytes more than
EL's.

Averages are over all nodes, whoever is a member: so they converge as fast for a group of two as for one of thirty, and
n times the average of a group's class sums is their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from facade.algorithms.seeding import class_sets
from facade.algorithms.seeding.bids import best_bids
from facade.algorithms.seeding.class_means import Seen, class_sums, preference, seen, strangeness
from facade.core import tree
from facade.core.messages import Inbox, counts, per_row, totals
from facade.core.turn import Turn

T = TypeVar("T")

SURE = 2.5
"""Standard errors that the members of both halves must be sure of a division, in the mean, for it to be kept."""
CLEAR = 1.0
"""Standard errors from which on a node takes itself to be in another group than the largest."""
NOBODY, OVER = -1, -2
"""In the place of the node that made a bid: there is none yet; the survey is over."""
ALONE = 1.25
"""Members, as they are estimated, below which a group has but one."""
LEFT = 0.25
"""Of one's own rows, how many others in one's group must have for it to be judged by them; what is missing was lost, or
somebody says too little."""
FEW = 3.5
"""Members below which an average over them is not exact enough to leave out one."""


class Calendar(NamedTuple):
    """When the survey does what, in rounds since it began."""

    spread: int
    """Rounds in which a rumour reaches everyone."""

    def ready(self, divisions: int) -> int:
        """The round in which so many divisions are over."""
        return (1 + 3 * divisions) * self.spread

    def events(self, round: int) -> int:
        """How many events have come by a round: the count, then four in each division."""
        if round < self.spread:
            return 1
        division, place = divmod(round - self.spread, 3 * self.spread)
        refine = 2 * self.spread
        return 2 + 4 * division + sum(place >= at for at in (self.spread, refine, refine + self.spread // 2))

    def steady(self, round: int) -> bool:
        """Whether averages are of class sums that were only added: from `refine` on, nodes take back what they said."""
        return round < self.spread or (round - self.spread) % (3 * self.spread) < 2 * self.spread

    def seeks(self, round: int) -> bool:
        """Whether the class sums of the round's messages are bids."""
        return round >= self.spread and round // self.spread % 3 == 1


class Limits(NamedTuple):
    """How far a survey goes."""

    heads: int
    """Groups that may have a head."""
    divisions: int
    """How often a group may be divided."""
    room: int
    """Numbers that class sums have place for."""


class Survey(NamedTuple):
    """Per node: what it knows of the groups. Class sums [..., room] are averages over all nodes."""

    own: Tensor
    """[S, room] the node's own class sums."""
    average: Tensor
    """[S, room] of all nodes; then of those that joined the newest group."""
    joined: Tensor
    """[S] whether its own are among these."""
    says: Tensor
    """[S, 4] float64: its own part of `heard`."""
    heard: Tensor
    """[S, 4] float64 averages: members of the new half, how sure they are, and the same of the old half."""
    candidate: Tensor
    """[S, room] class sums of the best bidder."""
    parent: Tensor
    """[S] the group that it is in."""
    score: Tensor
    """[S] float64: how strange it looks there; far more where it lacks classes of the others."""
    origin: Tensor
    """[S] who it is; -1: nobody."""
    centres: Tensor
    """[S, groups, room] class sums of the groups."""
    found: Tensor
    """[S, groups] the groups that there are."""
    alone: Tensor
    """[S, groups] those of one node."""
    group: Tensor
    """[S] the group that a node's class sums are counted in."""
    events: Tensor
    """[S] how many it has been through."""
    over: Tensor
    """[S] the round in which it was over; -1: not yet."""
    head: Tensor
    """[S] the head of the node's group; -1 before the end, and for one that missed it."""
    clear: Tensor
    """[S] whether its samples tell that this is its group."""
    shares: Tensor
    """[S, heads] float64: the share of all samples that the group of each head has."""
    apart: Tensor
    """[S] whether classes may tell groups apart."""
    by_classes: Tensor
    """[S] whether a group was divided by the classes its nodes have."""


def start(nodes: int, limits: Limits, dtype: torch.dtype) -> Survey:
    """Before anything is known. There is room for one group more than for heads: a group of one node must not take the
    place of a larger one."""
    groups = limits.heads + 1

    def sums(*more: int) -> Tensor:
        return torch.zeros(nodes, *more, limits.room, dtype=dtype)

    def numbers(*more: int) -> Tensor:
        return torch.zeros(nodes, *more, dtype=torch.float64)

    def whole(value: int) -> Tensor:
        return torch.full((nodes,), value)

    def no(*more: int) -> Tensor:
        return torch.zeros(nodes, *more, dtype=torch.bool)

    return Survey(
        own=sums(), average=sums(), joined=no(), says=numbers(4), heard=numbers(4),
        candidate=sums(), parent=whole(0), score=numbers(), origin=whole(NOBODY),
        centres=sums(groups), found=no(groups), alone=no(groups), group=whole(0),
        events=whole(0), over=whole(-1), head=whole(-1), clear=no(), shares=numbers(limits.heads),
        apart=no(), by_classes=no(),
    )  # fmt: skip


def advance(turn: Turn, survey: Survey, limits: Limits) -> Survey:
    """Bring every node to what is due in this round. One that was away for a round catches up; one that missed two
    events knows too little, and is out of it."""
    due = Calendar(turn.spread).events(turn.round)
    lost = (survey.over < 0) & (survey.events < due - 1)
    survey = survey._replace(over=torch.where(lost, turn.round, survey.over))
    rows = torch.nonzero((survey.over < 0) & (survey.events < due)).flatten()
    if not len(rows):
        return survey
    after = _Nodes(turn.only(rows), limits).after(due - 1, tree.rows(survey, rows))
    after = after._replace(events=after.events + 1)
    return tree.map(lambda old, new: old.index_copy(0, rows, new.to(old.dtype)), survey, after)


def said(survey: Survey) -> dict[str, Tensor]:
    """What a message says beside the class sums: 56 bytes."""
    origin = torch.where(survey.over >= 0, OVER, survey.origin)
    return {"score": survey.score, "origin": origin, "parent": survey.parent, "heard": survey.heard}


def says_over(inbox: Inbox) -> Tensor:
    """[M] which messages say that the survey is over."""
    over: Tensor = inbox.pool["bid"]["origin"] == OVER
    return over


def carried(turn: Turn, survey: Survey) -> Tensor:
    """[S, room] the class sums that messages carry."""
    return survey.candidate if Calendar(turn.spread).seeks(turn.round) else survey.average


def listen(turn: Turn, survey: Survey, inbox: Inbox, sums: Tensor) -> Survey:
    """Keep the best bid heard, or average; `sums` [M, room] came with the messages. Where most of those that a node
    hears say that the survey is over, it is over for it, too: it came late."""
    bid = inbox.pool["bid"]
    if Calendar(turn.spread).seeks(turn.round):
        after, best = best_bids(survey, inbox)
        after = after._replace(candidate=sums[best], parent=bid["parent"][best])
    else:
        mean = steady_mean(turn, inbox, {"average": sums, "heard": bid["heard"]}, ~says_over(inbox))
        after = survey._replace(average=mean["average"], heard=mean["heard"])
        if turn.round == 0:  # messages carry what nodes have themselves
            after = after._replace(heard=class_sets.overlaps(inbox, sums, turn.learner.outputs))
    heard_over = counts(inbox, says_over(inbox).long(), 2)
    after = after._replace(over=torch.where(heard_over[:, 1] > heard_over[:, 0], turn.round, -1))
    return tree.where(survey.over >= 0, survey, after)


def steady_mean(turn: Turn, inbox: Inbox, part: T, counting: Tensor) -> T:
    """[S, ...] the mean of `part` [M, ...] over a node and all that it wanted to hear, where its own stands for those
    that it did not hear or that do not count [M]. Unlike a mean over those heard, that keeps the mean over all nodes
    while some are away, and nearly so while messages are lost."""
    total = totals(inbox, part, (~counting).long(), 2)
    wanted = turn.degree[torch.from_numpy(turn.shard.nodes)] + 1

    def steady(sums: Tensor, pool: Tensor) -> Tensor:
        missing = per_row(wanted - total.counts[:, 0], pool)
        return (sums[:, 0] + missing * pool[inbox.own]) / per_row(wanted, pool)

    steadied: T = tree.map(steady, total.sums, part)
    return steadied


class _Nodes:
    """Nodes that have come to the same event."""

    def __init__(self, turn: Turn, limits: Limits) -> None:
        self.n, self.nodes = turn.shard.n, torch.from_numpy(turn.shard.nodes)
        self.round, self.limits, self.classes = turn.round, limits, turn.learner.outputs
        self.seen = seen(turn, turn.learner.untrained(turn.shard.seed), limits.room)

    def after(self, event: int, survey: Survey) -> Survey:
        """The survey after an event."""
        if event == 0:
            own = torch.stack([class_sums(of, self.classes, self.limits.room) for of in self.seen]).to(survey.own.dtype)
            return survey._replace(own=own, average=own)
        division, what = divmod(event - 1, 4)
        if what == 1:
            return self.joining(survey)
        if what > 1:
            return self.refining(survey)
        return self.seeking(self.everybody(survey) if division == 0 else self.concluding(survey, division))

    def everybody(self, survey: Survey) -> Survey:
        """The first group."""
        first = torch.arange(survey.found.shape[1]) == 0
        centres = torch.where(first.view(1, -1, 1), survey.average.unsqueeze(1), survey.centres)
        apart = class_sets.may_tell_apart(survey.heard, self.n)
        return survey._replace(centres=centres, found=survey.found | first, apart=apart)

    def seeking(self, survey: Survey) -> Survey:
        """Bid with how strange one looks in one's group, or lacks its classes."""

        def strange(row: int, of: Seen) -> Tensor:
            group = int(survey.group[row])
            by_looks = strangeness(of, self.others(survey, row, group), self.classes)
            if not survey.apart[row]:
                return by_looks
            return by_looks + class_sets.bid(survey.own[row], survey.centres[row, group], self.classes)

        return survey._replace(candidate=survey.own, parent=survey.group, score=self.each(strange), origin=self.nodes)

    def joining(self, survey: Survey) -> Survey:
        """Join the bidder if it looks more like oneself than the others in one's group do."""

        def prefers(row: int, of: Seen) -> Tensor:
            if survey.origin[row] == self.nodes[row]:
                return torch.ones(())
            if class_sets.decide(survey.score[row]):
                return torch.tensor(class_sets.shared(survey.own[row], survey.candidate[row], self.classes))
            others = self.others(survey, row, int(survey.parent[row]))
            return preference(of, survey.candidate[row], others, self.classes)[0]

        asked = survey.group == survey.parent
        joined = asked & (self.each(prefers) > 0)
        says = _says(joined, asked & ~joined, torch.zeros(len(asked), dtype=torch.float64))
        return survey._replace(joined=joined, average=survey.own * joined.unsqueeze(1), says=says, heard=says)

    def refining(self, survey: Survey) -> Survey:
        """Join or leave by what is known of both halves, and say how sure one is. Averages follow what has changed."""
        asked = survey.group == survey.parent

        def prefers(row: int, of: Seen) -> Tensor:
            return self.preferred_half(survey, row, of) if asked[row] else torch.zeros(2)

        more, sure = self.each(prefers).unbind(1)
        joined = asked & (more > 0)
        changed = joined.to(survey.own.dtype) - survey.joined.to(survey.own.dtype)
        says = _says(joined, asked & ~joined, sure.abs())
        return survey._replace(
            joined=joined,
            average=survey.average + survey.own * changed.unsqueeze(1),
            says=says,
            heard=survey.heard + says - survey.says,
        )

    def preferred_half(self, survey: Survey, row: int, of: Seen) -> Tensor:
        """[2] how much more alike the new half is to a node than the old one, and that in standard errors. What a node
        itself contributed is left out; of an average over few that is not exact enough, so in a small half it looks at
        the bidder alone, and the bidder at how strange it looks elsewhere."""
        halves = [survey.average[row], survey.centres[row, survey.parent[row]] - survey.average[row]]
        if class_sets.decide(survey.score[row]):
            nearer = class_sets.nearer(survey.own[row], halves[0], halves[1], self.classes)
            return nearer.expand(2) * SURE / class_sets.DISJOINT
        mine = 0 if survey.joined[row] else 1
        new, old = (half * self.n - survey.own[row] * (which == mine) for which, half in enumerate(halves))
        if survey.heard[row, 2 * mine] * self.n >= FEW:
            return torch.stack(preference(of, new, old, self.classes))
        if mine == 0 and survey.origin[row] != self.nodes[row]:
            return torch.stack(preference(of, survey.candidate[row], old, self.classes))
        strange = strangeness(of, (old, new)[mine], self.classes).clamp(min=0)
        return torch.stack([strange, strange]) * (1 - 2 * mine)

    def concluding(self, survey: Survey, divisions: int) -> Survey:
        """Keep the division if both halves are sure of it. The survey is over if they are not, or if there are enough
        groups."""
        members, sure = survey.heard[:, ::2], survey.heard[:, 1::2]
        kept = ((sure > SURE * members) & (members * self.n > 0.5)).all(1)
        groups = torch.arange(survey.found.shape[1])
        new = (groups == survey.found.sum(1, keepdim=True)) & kept.unsqueeze(1)
        old = (groups == survey.parent.unsqueeze(1)) & kept.unsqueeze(1)
        average = survey.average.unsqueeze(1)
        alone = members * self.n < ALONE
        survey = survey._replace(
            centres=torch.where(new.unsqueeze(2), average, survey.centres - average * old.unsqueeze(2)),
            found=survey.found | new,
            alone=survey.alone | (new & alone[:, :1]) | (old & alone[:, 1:]),
            group=torch.where(survey.joined & kept, survey.found.sum(1), survey.group),
            by_classes=survey.by_classes | (kept & class_sets.decide(survey.score)),
        )
        larger = (survey.found & ~survey.alone).sum(1)
        over = ~kept | survey.found.all(1) | (larger >= self.limits.heads) | (divisions >= self.limits.divisions)
        return self.ending(survey, over)

    def ending(self, survey: Survey, over: Tensor) -> Survey:
        """Which heads nodes have, where the survey is over [S]."""
        head, clear, shares = survey.head.clone(), survey.clear.clone(), survey.shares.clone()
        for row in torch.nonzero(over).flatten().tolist():
            head[row], clear[row], shares[row] = self.head_for(survey, row)
        heard = tree.where(over, torch.zeros_like(survey.heard), survey.heard)
        return survey._replace(
            over=torch.where(over, self.round, -1), head=head, clear=clear, shares=shares, heard=heard
        )

    def head_for(self, survey: Survey, row: int) -> tuple[int, bool, Tensor]:
        """The head of a node's group: the largest, unless its samples are clearly more like another; whether they tell;
        and the heads' shares [heads]. Larger groups have their heads before those of one node."""
        found = torch.nonzero(survey.found[row]).flatten()
        kept = found[torch.argsort(survey.alone[row, found].long(), stable=True)][: self.limits.heads]
        of, centres = self.seen[row], [self.others(survey, row, group) for group in kept.tolist()]
        nearest = 0
        for head, centre in enumerate(centres):
            if preference(of, centre, centres[nearest], self.classes)[0] > 0:
                nearest = head
        against = [float(preference(of, centres[nearest], other, self.classes)[1]) for other in centres]
        clear = all(errors > CLEAR for head, errors in enumerate(against) if head != nearest)
        rows = survey.centres[row, kept, : self.classes].sum(1).double().clamp(min=0)
        shares = torch.zeros(self.limits.heads, dtype=torch.float64)
        shares[: len(kept)] = rows / rows.sum()
        largest = int(rows.argmax())
        if survey.group[row] in kept and (survey.by_classes[row] or self.emptied(survey, row)):
            return int(torch.nonzero(kept == survey.group[row])), bool(survey.by_classes[row]), shares
        return nearest if nearest != largest and against[largest] > CLEAR else largest, clear, shares

    def others(self, survey: Survey, row: int, group: int) -> Tensor:
        """[room] class sums of a group's members without the node's own; with them, where it is the only one."""
        sums = survey.centres[row, group] * self.n
        return sums - survey.own[row] if survey.group[row] == group and not survey.alone[row, group] else sums

    def emptied(self, survey: Survey, row: int) -> bool:
        """Whether too little is left of the others in a node's group to judge it by them."""
        others = self.others(survey, row, int(survey.group[row]))
        return bool(others[: self.classes].sum() < LEFT * survey.own[row, : self.classes].sum())

    def each(self, work: Callable[[int, Seen], Tensor]) -> Tensor:
        """[S, ...] float64: what `work` makes of every node."""
        return torch.stack([work(row, of).double() for row, of in enumerate(self.seen)])


def _says(new: Tensor, old: Tensor, sure: Tensor) -> Tensor:
    """[S, 4] a node's part of `heard`, from which half it is in and how sure it is."""
    in_new, in_old = new.double(), old.double()
    return torch.stack([in_new, in_new * sure, in_old, in_old * sure], 1)
