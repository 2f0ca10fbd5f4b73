"""FACADE whose nodes first find out which of them look alike (seeding/survey.py): each group of them has a head.

While the survey lasts, every node trains the core with a head of its own, and only cores are averaged. Then nodes use
the head of their group, and heads are averaged by their number, as in FACADE. After a while they ask whether that is
worth it (seeding/trial.py). Where no groups were found, or they are not, all use one head, as in EL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from facade.algorithms.core_and_heads import CoreAndHeads, put, start, train
from facade.algorithms.facade import Facade
from facade.algorithms.seeding import survey as surveys
from facade.algorithms.seeding import trial
from facade.algorithms.seeding.class_means import most_numbers
from facade.algorithms.seeding.health import Health, all_alive, heard, unheard
from facade.algorithms.seeding.survey import Calendar, Limits, Survey
from facade.algorithms.seeding.survey_lies import implausible
from facade.core import tree
from facade.core.algorithm import Algorithm
from facade.core.message_parts import Heard, MessagePart
from facade.core.messages import Inbox, counts, mean, only_from
from facade.core.plan import Plan
from facade.core.tree import Params
from facade.core.turn import Shard, Turn
from facade.errors import ExperimentError
from facade.learning.learner import Learner

JUDGED, DECIDED = 1, 2


class SurveyedState(NamedTuple):
    """Per node: what FACADE keeps, who uses which head, and what it knows of the groups."""

    facade: CoreAndHeads
    health: Health
    seeding: Survey
    tried: Tensor
    """[S] how far the trial of heads has come: 0, JUDGED or DECIDED."""


@dataclass(frozen=True)
class SurveyedFacade(Algorithm[SurveyedState]):
    """FACADE among nodes that know which of them look alike."""

    published: Facade = Facade()
    """FACADE itself; its warm-up goes on after the survey if that takes less."""
    auto: bool = False
    """Whether as many groups are looked for as there are heads, or as can be told apart."""

    def init(self, shard: Shard) -> SurveyedState:
        facade, nodes = start(shard, self.published.k, apart=False), len(shard.nodes)
        place = sum(leaf[0, 0].numel() for name, leaf in facade.heads.items() if name not in shard.learner.local_names)
        classes = shard.learner.outputs
        if place // classes < 2:
            raise ExperimentError(
                "algorithm.seeding = 'class-means' sends two numbers or more for each class in the place of a head, but"
                f" that has {place} for {classes} classes; use a larger head, or seeding = 'none'"
            )
        survey = surveys.start(nodes, self._limits(shard.n, min(place, most_numbers(classes))), shard.learner.dtype)
        untried = torch.zeros(nodes, dtype=torch.int64)
        return SurveyedState(facade, unheard(nodes, self.published.k), survey, untried)

    def _limits(self, n: int, room: int) -> Limits:
        """How far the survey of n nodes goes. Where the number of heads is given, it may find one group of one node
        that must not take the place of another."""
        k = self.published.k
        return Limits(k, min(k - 1 if self.auto else k, n - 1), room)

    def local(self, turn: Turn, state: SurveyedState) -> SurveyedState:
        limits = self._limits(turn.shard.n, room=state.seeding.own.shape[1])
        survey = surveys.advance(turn, state.seeding, limits)
        state = self._tried(turn, state._replace(seeding=survey))
        choosing = self._choosing(turn, state.seeding)
        facade = self._chosen(turn, state, choosing)
        places = (torch.arange(self.published.k) == facade.choice.unsqueeze(1)) | ~choosing.unsqueeze(1)
        keep_back = (state.tried < JUDGED) & ((state.seeding.over < 0) | _several(state.seeding))
        return state._replace(facade=_trained(turn, facade, places, keep_back))

    def _choosing(self, turn: Turn, survey: Survey) -> Tensor:
        """[S] the nodes that use the heads of groups."""
        return (survey.over >= 0) & (turn.round >= self.published.warmup)

    def _chosen(self, turn: Turn, state: SurveyedState, choosing: Tensor) -> CoreAndHeads:
        """A node uses the head of its group. If its samples do not tell which that is, it uses the one with the lowest
        loss once heads are trained; if it came late, of those that it hears of."""
        facade, head = state.facade, state.seeding.head
        facade = facade._replace(
            choice=torch.where(choosing & (head >= 0), head, facade.choice),
            head_losses=torch.full_like(facade.head_losses, torch.nan),
        )
        among = torch.where(head.unsqueeze(1) < 0, state.health.share > 0, state.seeding.shares > 0)
        undecided = ~state.seeding.clear & ((head < 0) | (state.tried == DECIDED))
        rows = torch.nonzero(choosing & undecided & (among.sum(1) > 1)).flatten()
        if not len(rows):
            return facade
        some = self.published.choose(turn.only(rows), tree.rows(facade, rows), among[rows])
        return facade._replace(
            choice=facade.choice.index_copy(0, rows, some.choice),
            head_losses=facade.head_losses.index_copy(0, rows, some.head_losses),
        )

    def _tried(self, turn: Turn, state: SurveyedState) -> SurveyedState:
        """The trial: two spreads after heads are in use nodes judge them, and one later they know what all found."""
        survey = state.seeding
        begun = survey.over.clamp(min=self.published.warmup)
        several = _several(survey)
        for stage, spreads in ((JUDGED, 2), (DECIDED, 3)):
            due = (survey.over >= 0) & (state.tried < stage) & (turn.round >= begun + spreads * turn.spread)
            rows = torch.nonzero(due & several).flatten()
            if len(rows):
                step = _judged if stage == JUDGED else _decided
                after = step(turn.only(rows), tree.rows(state, rows))
                state = tree.map(lambda old, new, rows=rows: old.index_copy(0, rows, new), state, after)
            state = state._replace(tried=torch.where(due, stage, state.tried))
        return state

    def message(self, turn: Turn, state: SurveyedState) -> Any:
        message = self.published.message(turn, state.facade)
        if (state.seeding.over < 0).any():
            sums = _as_head(surveys.carried(turn, state.seeding), message["head"], turn.learner)
            message["head"] = tree.where(state.seeding.over < 0, sums, message["head"])
        return message | {"bid": surveys.said(state.seeding)}

    def mix(self, turn: Turn, state: SurveyedState, inbox: Inbox) -> SurveyedState:
        facade, over, choosing = state.facade, surveys.says_over(inbox), self._choosing(turn, state.seeding)
        mixed = facade._replace(core=mean(inbox, inbox.pool["core"]))
        health = all_alive(state.health, turn.round)
        if over.any():  # the others' messages have no heads
            with_heads = only_from(inbox, over)
            if turn.round >= self.published.warmup:
                by_head = self.published.average_by_head(facade, with_heads)
                users = heard(state.health, counts(with_heads, inbox.pool["choice"], self.published.k), turn.round)
                health = tree.where(choosing, users, health)
            else:
                by_head = self.published.average_all(facade, with_heads)
            mixed = mixed._replace(heads=tree.where(state.seeding.over >= 0, by_head.heads, facade.heads))
        survey = state.seeding
        if (survey.over < 0).any():
            sums = _class_sums(inbox.pool["head"], turn.learner)[:, : survey.own.shape[1]]
            survey = surveys.listen(turn, survey, inbox, sums)
        on_trial = (state.seeding.over >= 0) & (state.tried < DECIDED)
        if on_trial.any():
            gained = surveys.steady_mean(turn, inbox, inbox.pool["bid"]["heard"], over)
            survey = survey._replace(heard=tree.where(on_trial, gained, survey.heard))
        return SurveyedState(mixed, health, survey, state.tried)

    def parts(self, turn: Turn, state: SurveyedState, heard: Heard) -> list[MessagePart]:
        """As FACADE's. Class sums stand for themselves: those of a minority must differ, and samples cannot judge them;
        what no honest node would say is dropped before."""
        head, core = self.published.parts(turn, state.facade, heard)
        over = (state.seeding.over >= 0).unsqueeze(1) & (heard.messages["bid"]["origin"] == surveys.OVER)
        place = torch.arange(over.shape[1])
        head = MessagePart(
            "head",
            tree.where(over, head.held, heard.messages["head"]),
            torch.where(over, head.group, -1 - place),
            head.judged & over,
            head.losses if over.any() else None,
            head.affordable,
        )
        return [head, core]

    def implausible(self, turn: Turn, state: SurveyedState, heard: Heard) -> Tensor:
        bid = heard.messages["bid"]
        flat = tree.map(lambda leaf: leaf.flatten(0, 1), heard.messages["head"])
        sums = _class_sums(flat, turn.learner)[:, : state.seeding.own.shape[1]].view(*heard.own.shape, -1)
        unlikely = implausible(turn, state.seeding, bid, sums)
        return torch.where(bid["origin"] != surveys.OVER, unlikely, 0)

    def model(self, state: SurveyedState) -> Params:
        return self.published.model(state.facade)

    def models(self, state: SurveyedState) -> list[Params]:
        return self.published.models(state.facade)

    def notes(self, state: SurveyedState) -> dict[str, Tensor]:
        return self.published.notes(state.facade) | {
            "head_shares": state.health.share.double().round(decimals=3),
            "head_last_heard": state.health.last,
            "heads_found": (state.seeding.shares > 0).sum(1),
            "heads_worth": _worth(state).round(decimals=3),
        }

    def refuse(self, turn: Turn, message: Any) -> str | None:
        bid = message["bid"]
        if not surveys.OVER <= (origin := int(bid["origin"])) < turn.shard.n:
            return f"a bid by node {origin}, which does not exist"
        if not 0 <= (parent := int(bid["parent"])) <= self.published.k:
            return f"a bid in group {parent}, of which there are {self.published.k + 1} at most"
        return self.published.refuse(turn, message)

    def check(self, plan: Plan) -> list[str]:
        calendar = Calendar(plan.spread)
        if plan.rounds <= (ready := calendar.ready(1)):
            raise ExperimentError(
                f"algorithm.seeding = 'class-means' takes {ready} rounds on this graph, but training.rounds ="
                f" {plan.rounds}; train longer or set seeding = 'none'"
            )
        if self.published.warmup >= plan.rounds:
            return [f"algorithm.warmup = {self.published.warmup} covers all {plan.rounds} rounds: one head is averaged"]
        return []


def _several(survey: Survey) -> Tensor:
    """[S] whether there are heads to be judged: those of nodes with other classes are worth it, for what they need not
    know."""
    return ((survey.shares > 0).sum(1) > 1) & ~survey.by_classes


def _worth(state: SurveyedState) -> Tensor:
    """[S] what heads are worth in the mean over groups; NaN before it is known, and 0 at once where classes divided a
    group, so that there is no trial."""
    judged = torch.where(state.tried == DECIDED, state.seeding.heard[:, 0], torch.nan)
    return torch.where((state.seeding.over >= 0) & state.seeding.by_classes, 0.0, judged)


def _trained(turn: Turn, facade: CoreAndHeads, places: Tensor, keep_back: Tensor) -> CoreAndHeads:
    """H steps of every node, without some of their samples at the nodes [S] that keep them back."""
    if keep_back.all():
        return train(trial.training_on_the_rest(turn), facade, places)
    if not keep_back.any():
        return train(turn, facade, places)
    for which, how in ((keep_back, trial.training_on_the_rest), (~keep_back, lambda some: some)):
        rows = torch.nonzero(which).flatten()
        after = train(how(turn.only(rows)), tree.rows(facade, rows), places[rows])
        facade = tree.map(lambda old, new, rows=rows: old.index_copy(0, rows, new), facade, after)
    return facade


def _judged(turn: Turn, state: SurveyedState) -> SurveyedState:
    """Add what the heads are worth to oneself to what all are averaging: so that the mean over nodes becomes the mean
    over groups, of what the head is worth to a sample."""
    survey, facade = state.seeding, state.facade
    gain = trial.gains(turn, facade._replace(choice=survey.head), survey.shares)
    classes = turn.learner.outputs
    own_samples, in_the_mean = survey.own[:, :classes].sum(1), survey.centres[:, :, :classes].sum((1, 2))
    of_group = survey.shares.gather(1, survey.head.unsqueeze(1)).squeeze(1)
    mine = gain * (own_samples / in_the_mean).double() / (of_group * (survey.shares > 0).sum(1))
    said = torch.nn.functional.pad(mine.unsqueeze(1), (0, survey.heard.shape[1] - 1))
    return state._replace(seeding=survey._replace(heard=survey.heard + said))


def _decided(turn: Turn, state: SurveyedState) -> SurveyedState:
    """Go on with the mean of all heads in the place of each, unless they are worth it."""
    survey, facade = state.seeding, state.facade
    enough = survey.heard[:, 0] >= trial.WORTH
    one = trial.mean_head(facade.heads, survey.shares)
    everywhere = ~enough.unsqueeze(1).expand_as(facade.head_losses)
    first = torch.arange(survey.shares.shape[1]) == 0
    return state._replace(
        facade=facade._replace(heads=put(facade.heads, one, everywhere)),
        seeding=survey._replace(
            head=torch.where(enough, survey.head, 0),
            shares=torch.where(enough.unsqueeze(1), survey.shares, first.double()),
        ),
    )


def _shared_names(head: Params, learner: Learner) -> list[str]:
    """Of a head's tensors, those that leave the node."""
    return [name for name in sorted(head) if name not in learner.local_names]


def _as_head(sums: Tensor, head: Params, learner: Learner) -> Params:
    """Class sums [S, room] in the form of a head [S, ...], and zeros where it is larger."""
    names = _shared_names(head, learner)
    sizes = [head[name][0].numel() for name in names]
    parts = torch.split(torch.nn.functional.pad(sums, (0, sum(sizes) - sums.shape[1])), sizes, dim=1)
    return head | {name: part.view_as(head[name]) for name, part in zip(names, parts, strict=True)}


def _class_sums(head: Params, learner: Learner) -> Tensor:
    """Class sums [M, room and more] that came in the form of heads [M, ...]."""
    return torch.cat([head[name].flatten(1) for name in _shared_names(head, learner)], 1)
