"""From a post to an inbox: hear those who are wanted, as far as they can be heard."""

from __future__ import annotations

import functools
from typing import Any

from facade.core.local_parts import mixed, published
from facade.core.message_parts import variances
from facade.core.messages import Everyone, Inbox, Post
from facade.errors import FacadeError
from facade.peers.node.journal import Journal
from facade.peers.node.pulling import Puller
from facade.peers.node.round_pulls import BehindError, Demand
from facade.peers.node.site_epoch import SiteEpoch, inbox_of
from facade.peers.node.site_files import SiteFiles
from facade.peers.node.waiting import Patient, Policy
from facade.peers.protocol.wire import MessageForm


class Hearing:
    """Hears messages for one site."""

    def __init__(self, puller: Puller, files: SiteFiles, journal: Journal, policy: Policy) -> None:
        self._puller = puller
        self._files = files
        self._journal = journal
        self._policy = policy

    def inbox(self, epoch: SiteEpoch, post: Post) -> Inbox:
        """What arrived in a round."""
        membership, everyone = epoch.membership, isinstance(post.wanted, Everyone)
        wanted = epoch.others if isinstance(post.wanted, Everyone) else post.wanted.sender.tolist()
        mixed = self._files.recovery.mixed(membership.digest, post.round)
        if mixed is not None and self._files.outgoing.get(post.round + 1) is not None:
            heard = self._hear_again(epoch, post, mixed)
        else:
            heard = self._hear(epoch, post.round, wanted, post.outbox, self._policy)
        self._files.recovery.note_mixed(membership.digest, post.round, sorted(heard))
        self._journal.write("mixed", round=post.round, epoch=membership.epoch, heard=sorted(heard))
        return inbox_of(epoch.number, post.outbox, heard, everyone and len(heard) == len(wanted))

    def _hear_again(self, epoch: SiteEpoch, post: Post, mixed: list[int]) -> dict[int, Any]:
        """The messages that a round was mixed from when it was played before: the next round's message, made
        from them, is published, and must come out the same."""
        membership = epoch.membership
        heard = self._hear(epoch, post.round, mixed, post.outbox, Patient(membership.limits))
        missing = [membership.members[sender].id for sender in mixed if sender not in heard]
        if missing:
            raise FacadeError(
                f"round {post.round} must be played again, for the newest checkpoint could not be used, but"
                f" {', '.join(missing)}, heard in it before, did not come within {membership.limits.deadline:g} s;"
                " start again when they answer"
            )
        return heard

    def catch_up(self, epoch: SiteEpoch, round: int, state: Any) -> Any:
        """The state [1, ...] of a node that was far behind, mixed with the messages that its neighbours of the last
        rounds still keep, by the algorithm's own rule. BehindError if the others have gone on meanwhile."""
        algorithm, limits = epoch.setup.algorithm, epoch.membership.limits
        turn = epoch.plan.turn(epoch.shard, round)
        own = published(algorithm, turn, state)
        enough = 3 * algorithm.heads_compared
        heard: dict[int, Any] = {}
        oldest = max(epoch.membership.first_round, round - limits.window // 2 + 1)
        for earlier in range(round, oldest - 1, -1):
            missing = [i for i in epoch.neighbours(earlier) if i not in heard][: enough - len(heard)]
            try:
                heard |= self._hear(epoch, earlier, missing, own, self._policy)
            except BehindError:
                if earlier == round:
                    raise
        return mixed(algorithm, turn, state, inbox_of(epoch.number, own, heard, False))

    def _hear(self, epoch: SiteEpoch, round: int, senders: list[int], own: Any, policy: Policy) -> dict[int, Any]:
        if not senders:
            return {}
        algorithm = epoch.setup.algorithm
        form = MessageForm(own, algorithm.entries_without_weights, variances(own, epoch.setup.learner.variances))
        refuse = functools.partial(algorithm.refuse, epoch.plan.turn(epoch.shard, round))
        final = round == epoch.plan.rounds
        demand = Demand(round, senders, form, refuse, epoch.last_exchange, policy, final)
        return self._puller.pull(epoch.membership, epoch.number, demand)
