"""The rounds of one site, from wherever it starts to the end: each post is published, and what is heard comes back as
an inbox. A round is begun again under the next list, and left out where the others are far ahead."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from facade.core import tree
from facade.core.engine import Played, drive, play
from facade.core.messages import Inbox, Post
from facade.errors import DivergedError, FacadeError
from facade.files.shortage import shortage
from facade.peers.node.checkpoints import SiteCheckpoint
from facade.peers.node.followed_lists import FollowedLists, NextEpochError
from facade.peers.node.hearing import Hearing
from facade.peers.node.journal import Journal
from facade.peers.node.publishing import Publisher
from facade.peers.node.quorum import Quorum
from facade.peers.node.round_pulls import BehindError, ShutOutError
from facade.peers.node.shortages import Shortages
from facade.peers.node.site_epoch import SiteEpoch
from facade.peers.node.waiting import Policy
from facade.peers.protocol.gate import Gate
from facade.peers.trust.membership import Membership

Start = tuple[int, Any]
"""(round, state [1, ...]) to go on from."""


class _BegunRound(NamedTuple):
    """A round that can be begun again from its state."""

    round: int
    state: Any
    membership: Membership
    """The list that its state was made under."""


class Playing:
    """Ties together what publishes a round, what hears it, and the lists that govern it."""

    def __init__(
        self,
        followed_lists: FollowedLists,
        gate: Gate,
        publisher: Publisher,
        hearing: Hearing,
        quorum: Quorum,
        policy: Policy,
        journal: Journal,
        shortages: Shortages,
    ) -> None:
        self._followed_lists = followed_lists
        self._gate = gate
        self._publisher = publisher
        self._hearing = hearing
        self._quorum = quorum
        self._policy = policy
        self._journal = journal
        self._shortages = shortages
        self._in_vain = (-1, 0)
        """A round that could not be played for want of something, and how often."""
        self._begun: _BegunRound | None = None
        self._mixed: list[str] = []
        """The ids of those whose messages were mixed last."""
        self._training_began = time.monotonic()

    def play(self, saved: SiteCheckpoint | None) -> Played:
        """Play all rounds, or those after a checkpoint."""
        begin: Callable[[], Start] = functools.partial(self._first, saved)
        while True:
            try:
                try:
                    start = begin()
                except NextEpochError:
                    continue  # under the new list: nothing was played under the old one
                return self._play_from(self._followed_lists.in_force, start)
            except NextEpochError:
                begin = self._begin_again
            except BehindError as behind:
                begin = functools.partial(self._jump, behind.round)
            except ShutOutError:
                raise self._why_shut_out() from None
            except Exception as error:
                if self._begun is None or shortage(error) is None:
                    raise
                self._pause(error)
                begin = self._play_again

    def _play_from(self, epoch: SiteEpoch, start: Start) -> Played:
        setup, self._mixed = epoch.setup, []
        self._training_began = time.monotonic()
        try:
            return drive(play(setup.algorithm, epoch.shard, epoch.plan, setup.federation, start), self._exchange)
        except DivergedError as error:
            if not self._mixed:
                raise
            names = ", ".join(self._mixed)
            raise DivergedError(
                f"{error}. Mixed before it were messages of {names}: if one of them sends broken models, have it"
                " removed"
            ) from None

    def _exchange(self, post: Post) -> Inbox:
        """Turn a post into an inbox."""
        epoch = self._followed_lists.in_force
        self._begun = _BegunRound(post.round, post.state, epoch.membership)
        self._publisher.write_rows(epoch, post.rows, post.state)
        self._followed_lists.check_in_force(post.round)
        self._publisher.publish(epoch, post)
        self._followed_lists.forget(post.round - epoch.membership.limits.window)
        if post.round < epoch.plan.rounds:  # before the final exchange nobody trains
            self._policy.trained(time.monotonic() - self._training_began)
        self._quorum.hold(post.round)  # what is published is served meanwhile
        inbox = self._hearing.inbox(epoch, post)
        members = epoch.membership.members
        self._mixed = [members[sender].id for sender in inbox.senders.tolist() if sender != epoch.number]
        self._training_began = time.monotonic()
        return inbox

    def _first(self, saved: SiteCheckpoint | None) -> Start:
        epoch = self._followed_lists.in_force
        if saved is None:
            return epoch.membership.first_round, epoch.fresh()
        return saved.round, epoch.carried(saved.state, self._followed_lists.of_epoch(saved.epoch))

    def _begin_again(self) -> Start:
        """Go on under the next list. The round is begun again: its graph and numbers are other ones."""
        round = self._last_begun.round
        self._publisher.withdraw(round)
        return round, self._enter(round)

    def _pause(self, error: Exception) -> None:
        """Wait until a round may be played, for which something was lacking, memory say."""
        round, times = self._in_vain
        now = self._last_begun.round
        self._in_vain = now, times + 1 if round == now else 1
        self._shortages.pause(error, self._in_vain[1] - 1)

    def _play_again(self) -> Start:
        """The round that was begun last, as it was: its message stays published."""
        begun = self._last_begun
        return begun.round, self._followed_lists.in_force.carried(tree.flatten(begun.state), begun.membership)

    def _jump(self, to: int) -> Start:
        """Too far behind to replay: go to the round where the others are. BehindError if they have gone on
        meanwhile."""
        to = self._followed_lists.no_further_than(to)
        self._journal.write("jumped", round=to, before=self._gate.round)
        state = self._enter(to)
        epoch = self._followed_lists.in_force
        return to, state if to == epoch.plan.rounds else self._hearing.catch_up(epoch, to, state)

    def _enter(self, round: int) -> Any:
        """Put the list in force that governs a round; the state to begin it with."""
        before = self._followed_lists.in_force
        epoch = self._followed_lists.enter(round)
        if epoch is not before:
            self._gate.last_round = epoch.plan.rounds
            facts = {"epoch": epoch.membership.epoch, "round": round, "rounds": epoch.plan.rounds}
            self._journal.write("epoch", **facts)
        begun = self._last_begun
        return epoch.carried(tree.flatten(begun.state), begun.membership)

    @property
    def _last_begun(self) -> _BegunRound:
        assert self._begun is not None, "nothing ends the waiting for a round that was not begun"
        return self._begun

    def _why_shut_out(self) -> FacadeError:
        """What to tell the operator of a site that nobody admits; RemovedError if its own list says so."""
        round = self._last_begun.round
        self._followed_lists.look()
        self._followed_lists.site_epoch(round + 1)
        return FacadeError(
            f"no neighbour admits this site in round {round} any more; put the newest membership.json"
            " beside node.toml and start again, or ask the federation's admin"
        )
