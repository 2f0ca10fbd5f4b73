"""A site's rounds played again, offline: from its checkpoints, its data and kept messages. What comes of them must be
what its log says was published, used, and the state after it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from facade.core import tree
from facade.core.engine import drive, play
from facade.core.message_parts import variances
from facade.core.messages import Everyone, Inbox, Post
from facade.core.types import Row
from facade.errors import DivergedError, ExperimentError
from facade.files.store import Store
from facade.learning.torch_threads import one_intra_op_thread
from facade.peers.after.site_log import Committed, Heard, Log, Mixed, Used, WentBack, When
from facade.peers.node.checkpoints import SiteCheckpoint, SiteCheckpoints
from facade.peers.node.site_epoch import SiteEpoch, inbox_of
from facade.peers.node.verdicts import Verdict, last_exchange, used_sha256, verdicts
from facade.peers.protocol.refusals import RefusedError
from facade.peers.protocol.wire import MessageForm, Origin, pack
from facade.peers.trust.membership import Membership
from facade.peers.trust.site import Site
from facade.runs.run_directory import RunDirectory

Kept = dict[str, memoryview]
"""Messages by their SHA-256, each read from its file when it is used."""


@dataclass
class Replay:
    """What came of playing again."""

    rounds: int = 0
    """Exchanges after which the state was compared."""
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be played again."""
    not_kept: dict[int, str] = field(default_factory=dict)
    """Rounds that were not, and whose message is missing for it."""


def kept_messages(directories: Iterable[Path]) -> Kept:
    """The messages in directories such as a site's run/outgoing."""
    kept: Kept = {}
    for directory in directories:
        if not directory.is_dir():
            raise ExperimentError(f"{directory} is no directory; give a site's run/outgoing, or a copy of it")
        for stored in Store(directory).newest_first():
            kept[stored.sha256.hex()] = stored.content
    return kept


def replay(site: Site, log: Log, lists: Mapping[int, Membership], kept: Kept) -> Replay:
    """Play the rounds of a site again that its checkpoints and the kept messages allow; `lists` are those of the run,
    by epoch."""
    result, done = Replay(), set[When]()
    told = _Told(log)
    for saved in sorted(_checkpoints(site.run, log), key=lambda saved: saved.round):
        at = When(saved.epoch, saved.round)
        if at not in done and at in told.committed and saved.epoch in lists:
            again = _PlayedAgain(SiteEpoch.of(site, lists[saved.epoch]), told, kept, result)
            done |= again.play(saved)
    if result.not_kept:
        rounds = ", ".join(map(str, result.not_kept))
        who = ", ".join(sorted(set(result.not_kept.values())))
        result.notes.append(f"{log.id}: not played again from rounds {rounds} on, for messages of {who} are not kept")
    return result


def _checkpoints(run: Path, log: Log) -> Iterator[SiteCheckpoint]:
    """Those with which a round was begun. The one that a site went back to, and has not gone on from, was not."""
    back = [event for event in log.events if isinstance(event, WentBack)]
    for saved in SiteCheckpoints(RunDirectory(run)).all_whole():
        if not any(event.round == saved.round and event.epoch > saved.epoch for event in back):
            yield saved


class _Told:
    """What a log says of every round; of one that was played again, at last."""

    def __init__(self, log: Log) -> None:
        self.id = log.id
        self.committed: dict[When, str] = {}
        self.heard: dict[tuple[When, str], str] = {}
        self.mixed: dict[When, list[int]] = {}
        self.used: dict[When, Used] = {}
        for event in log.events:
            if isinstance(event, Committed):
                self.committed[When(event.epoch, event.round)] = event.sha256
            elif isinstance(event, Heard):
                self.heard[When(event.epoch, event.round), event.peer] = event.sha256
            elif isinstance(event, Mixed):
                self.mixed[When(event.epoch, event.round)] = event.heard
            elif isinstance(event, Used):
                self.used[When(event.epoch, event.round)] = event


class _NothingMoreError(Exception):
    """The next round cannot be played again."""


@dataclass
class _PlayedAgain:
    """Rounds of one site under one list, one after the other."""

    epoch: SiteEpoch
    told: _Told
    kept: Kept
    result: Replay
    done: set[When] = field(default_factory=set)
    messages: dict[str, str] = field(default_factory=dict)
    """Digests of those that were mixed last, by their senders' ids."""

    def play(self, saved: SiteCheckpoint) -> set[When]:
        """Play on from a checkpoint as far as messages are kept; the rounds that were."""
        setup, start = self.epoch.setup, (saved.round, self.epoch.carried(saved.state, self.epoch.membership))
        rounds = play(setup.algorithm, self.epoch.shard, self.epoch.plan, setup.federation, start)
        try:
            with one_intra_op_thread():
                played = drive(rounds, self._exchange)
            self._compare(played.rows, played.state)
        except _NothingMoreError:
            pass
        except DivergedError as error:
            self.result.notes.append(f"{self.told.id}: what follows round {saved.round} was not played again: {error}")
        return self.done

    def _at(self, round: int) -> When:
        return When(self.epoch.membership.epoch, round)

    def _exchange(self, post: Post) -> Inbox:
        self._compare(post.rows, post.state)
        at, membership = self._at(post.round), self.epoch.membership
        if at not in self.told.committed or at not in self.told.mixed or at in self.done:
            raise _NothingMoreError
        made = hashlib.sha256(pack(Origin(membership.digest, self.epoch.number, post.round), post.outbox)).hexdigest()
        if made != self.told.committed[at]:
            self._find(
                post.round, f"its message comes out as {made[:16]}, published was {self.told.committed[at][:16]}"
            )
            raise _NothingMoreError
        heard = self._heard(post, self.told.mixed[at])
        self.done.add(at)
        wanted = self.epoch.others if isinstance(post.wanted, Everyone) else post.wanted.sender.tolist()
        whole = isinstance(post.wanted, Everyone) and len(heard) == len(wanted)
        return inbox_of(self.epoch.number, post.outbox, heard, whole)

    def _heard(self, post: Post, senders: list[int]) -> dict[int, Any]:
        """The messages that a round was mixed from, by number."""
        algorithm, membership = self.epoch.setup.algorithm, self.epoch.membership
        names = variances(post.outbox, self.epoch.setup.learner.variances)
        form, heard = MessageForm(post.outbox, algorithm.entries_without_weights, names), {}
        self.messages = {}
        for sender in senders:
            id = membership.members[sender].id if 0 <= sender < membership.n else f"member number {sender}"
            digest = self.told.heard.get((self._at(post.round), id), "")
            if digest not in self.kept:
                self.result.not_kept.setdefault(post.round, id)
                raise _NothingMoreError
            origin = Origin(membership.digest, sender, post.round)
            try:
                heard[sender] = form.unpack(self.kept[digest], bytes.fromhex(digest), origin)
            except RefusedError as refusal:
                self._find(post.round, f"it mixed a message of {id} that is refused ({refusal})")
                raise _NothingMoreError from None
            self.messages[id] = digest
        return heard

    def _compare(self, rows: list[Row], state: Any) -> None:
        """Compare what came of the last exchange with what the log says."""
        round = last_exchange(rows)
        used = None if round is None else self.told.used.get(self._at(round))
        if round is None or used is None:
            return
        verdict = next(verdicts(rows, self.epoch), Verdict(round, False, {}, False))
        self.result.rounds += 1
        if used_sha256(self.messages, verdict.dropped, verdict.gate_closed) != used.sha256:
            self._find(round, "its guard lets other things through than its log says")
        made = tree.digests(state, 1)[0]
        if made != used.state_sha256:
            self._find(round, f"mixing gives the state {made[:16]}, its log has {used.state_sha256[:16]}")
            raise _NothingMoreError

    def _find(self, round: int, what: str) -> None:
        self.result.findings.append(f"round {round}: {self.told.id} played again: {what}")
