"""Pull the messages of a round: in chunks, from all wanted peers at once, until all have come or the
waiting policy says to go on."""

from __future__ import annotations

import contextlib
import queue
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from facade.peers.node.journal import Journal, Metrics
from facade.peers.node.ledger import Ledger
from facade.peers.node.waiting import Policy, Wait
from facade.peers.protocol.headers import Kind, Reply, Request, Status
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.rpc import Links, UnreachableError
from facade.peers.protocol.wire import MessageForm, Origin
from facade.peers.trust.membership import Membership

SMALLEST_CHUNK, FIRST_CHUNK, LARGEST_CHUNK = 1 << 15, 1 << 18, 1 << 20
MOST_CALLS = 16
"""Calls under way at a time, to peers that answer."""
_CALL_SECONDS = 10.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5


class BehindError(Exception):
    """Peers no longer keep the round that this node is in; `round` is where they are."""

    def __init__(self, round: int) -> None:
        super().__init__(f"others are in round {round}")
        self.round = round


class ShutOutError(Exception):
    """None of several peers that were asked admits this node any more."""


class Refuse(Protocol):
    """The algorithm's own check: why a message is unusable, or None."""

    def __call__(self, message: Any) -> str | None: ...


@dataclass(frozen=True)
class Demand:
    """What a round needs."""

    round: int
    senders: list[int]
    form: MessageForm
    refuse: Refuse
    last: int
    """The last round that has an exchange."""
    policy: Policy
    """How long to wait."""
    final: bool = False


@dataclass
class _Pull:
    """One peer's message, as far as it has come."""

    peer: int
    stop: threading.Event
    content: bytearray = field(default_factory=bytearray)
    announced: tuple[int, bytes] | None = None
    chunk: int = FIRST_CHUNK
    retries: int = 0
    tried: bool = False
    """Whether a call has brought an answer, or none."""
    answered: bool = False
    refused: Reason = Reason.NONE
    """Why the peer refused the last call that it refused."""


@dataclass(frozen=True)
class _News:
    """How a pull ended."""

    pull: _Pull
    message: Any = None
    refusal: RefusedError | None = None
    behind: int | None = None


class Puller:
    """Pulls messages for one node."""

    def __init__(
        self,
        links: Links,
        ledger: Ledger,
        journal: Journal,
        metrics: Metrics,
        digests: dict[Origin, str],
        watch: Callable[[int], None],
    ) -> None:
        self._links = links
        self._ledger = ledger
        self._journal = journal
        self._metrics = metrics
        self.digests = digests
        """The first digest accepted from each (list, sender, round) lately; another one is an equivocation."""
        self._digests_lock = threading.Lock()
        """A late pull may end while the digests are tidied."""
        self._watch = watch
        """Called now and then while waiting, with the round; what it raises ends the waiting."""
        self._chunks: dict[str, int] = {}
        """Bytes to ask a member for first, as its line did the last time."""

    def gather(self, membership: Membership, own: int, ask: Demand) -> dict[int, Any]:
        """Messages by sender. RefusedError never leaves: what is refused is missing. So is what a peer
        no longer keeps; BehindError only if more of the peers say so than still have their messages: one
        of them alone must not make this node leave out its training."""
        stop, news = threading.Event(), queue.SimpleQueue[_News]()
        ids = {peer: membership.members[peer].id for peer in ask.senders}
        wait = Wait(time.monotonic(), set(ids.values()), ask.final)
        room = threading.Semaphore(MOST_CALLS)
        pulls = {peer: _Pull(peer, stop, chunk=self._chunks.get(id, FIRST_CHUNK)) for peer, id in ids.items()}
        for pull in pulls.values():
            work = (membership, own, ask, pull, news, room)
            threading.Thread(target=self._pull, args=work, name=f"facade-pull-{pull.peer}", daemon=True).start()
        try:
            heard = self._await(membership, ask, wait, pulls, news)
        finally:
            stop.set()
        _look(membership, pulls, wait)
        self._note_missed(ask, wait)
        ask.policy.learn(wait)
        self._record(membership, ask, pulls, wait)
        return heard

    def _await(
        self, membership: Membership, ask: Demand, wait: Wait, pulls: dict[int, _Pull], news: queue.SimpleQueue[_News]
    ) -> dict[int, Any]:
        heard: dict[int, Any] = {}
        behind: list[int] = []
        denied = 0
        while wait.outstanding:
            _look(membership, pulls, wait)
            left = ask.policy.until(wait) - time.monotonic()
            # Nobody is outvoted unasked: before a jump, who has not had the time to answer is given that of a call.
            asked = all(pull.tried for peer, pull in pulls.items() if membership.members[peer].id in wait.outstanding)
            if left <= 0 and (asked or len(behind) <= len(heard)):
                break
            try:
                told = news.get(timeout=min(max(left, _SHORTEST_PAUSE), 0.5))
            except queue.Empty:
                self._watch(ask.round)
                continue
            id = membership.members[told.pull.peer].id
            if told.behind is not None:
                behind.append(told.behind)
                self._ledger.of(id).gone += 1
                self._journal.write("gone", round=ask.round, peer=id, there=told.behind)
                wait.lose(id, time.monotonic())
            elif told.refusal is not None:
                self._refused(id, ask.round, told.refusal)
                denied += told.refusal.reason is Reason.NOT_ADMITTED
                wait.lose(id, time.monotonic())
            else:
                heard[told.pull.peer] = told.message
                digest = self.digests[Origin(membership.digest, told.pull.peer, ask.round)]
                self._journal.write("heard", round=ask.round, epoch=membership.epoch, peer=id, sha256=digest)
                wait.came(id, time.monotonic())
            if len(behind) > len(heard) + len(wait.outstanding):  # those who are missing can change nothing
                break
        here = sum(pulls[peer].answered for peer in pulls if membership.members[peer].id in wait.outstanding)
        if len(behind) > len(heard) + here:  # who answers and has not gone on is not ahead
            raise BehindError(statistics.median_low(behind))
        if denied == len(ask.senders) and denied >= min(2, membership.n - 1):  # one alone may be wrong
            raise ShutOutError
        return heard

    def _note_missed(self, ask: Demand, wait: Wait) -> None:
        """Say in the log who did not come, and how long they were waited for when all others had."""
        if not wait.outstanding:
            return
        granted, waited = (moment - wait.latest for moment in (ask.policy.until(wait), time.monotonic()))
        seconds = {"granted": max(0.0, granted), "waited": waited}
        self._journal.write("missed", round=ask.round, peers=sorted(wait.outstanding), **seconds)

    def _refused(self, id: str, round: int, refusal: RefusedError) -> None:
        self._ledger.refuse(id, refusal.reason.word)
        self._metrics.rejected.labels(refusal.reason.word).inc()
        self._journal.refused(id, refusal.reason.word, details=refusal.details, side="payload", round=round)

    def _note_refused(self, membership: Membership, round: int, pull: _Pull, reply: Reply) -> None:
        """Say in the log that a peer refuses this node's calls, once for a reason."""
        pull.retries += 1
        if reply.reason is not pull.refused:
            id, why = membership.members[pull.peer].id, reply.why(membership.digest)
            self._journal.refused(id, reply.reason.word, details=why, side="callee", round=round)
        pull.refused = reply.reason

    def _record(self, membership: Membership, ask: Demand, pulls: dict[int, _Pull], wait: Wait) -> None:
        for peer, pull in pulls.items():
            id = membership.members[peer].id
            entry = self._ledger.of(id)
            entry.retries += pull.retries
            self._metrics.retries.inc(pull.retries)
            if id in wait.heard:
                entry.heard += 1
                entry.bytes += ask.form.size
                self._metrics.bytes.inc(ask.form.size)
            elif id in wait.outstanding:
                entry.late += pull.answered
                entry.missed += not pull.answered
                self._metrics.misses.inc()
            # Where nothing has come, even the first chunk may have been more than the line carries in a wait.
            self._chunks[id] = pull.chunk if pull.content else SMALLEST_CHUNK
        self._metrics.heard.set(len(wait.heard))
        oldest = ask.round - 2 * membership.limits.window
        with self._digests_lock:
            self.digests = {origin: digest for origin, digest in self.digests.items() if origin.round >= oldest}

    def _pull(
        self,
        membership: Membership,
        own: int,
        ask: Demand,
        pull: _Pull,
        news: queue.SimpleQueue[_News],
        room: threading.Semaphore,
    ) -> None:
        """In a thread of its own: fetch, check, tell."""
        try:
            content = self._fetch(membership, own, ask, pull, room)
            if content is None:
                return
            origin = Origin(membership.digest, pull.peer, ask.round)
            news.put(_News(pull, self.accept(origin, ask, content)))
        except RefusedError as refusal:
            news.put(_News(pull, refusal=refusal))
        except BehindError as behind:
            news.put(_News(pull, behind=behind.round))
        except Exception as error:  # of an algorithm's own check, say: who ends in silence is waited for in vain
            news.put(_News(pull, refusal=RefusedError(Reason.UNUSABLE, f"{type(error).__name__}: {error}")))

    def accept(self, origin: Origin, ask: Demand, content: tuple[bytes, bytes]) -> Any:
        """The message in (bytes, announced digest); RefusedError if anything about it is wrong."""
        body, digest = content
        message = ask.form.unpack(body, digest, origin)
        why = ask.refuse(message)
        if why is not None:
            raise RefusedError(Reason.UNUSABLE, why)
        with self._digests_lock:
            first = self.digests.setdefault(origin, digest.hex())
        if first != digest.hex():
            raise RefusedError(Reason.EQUIVOCATION, f"{first[:16]} was heard first, now {digest.hex()[:16]}")
        return message

    def _fetch(
        self, membership: Membership, own: int, ask: Demand, pull: _Pull, room: threading.Semaphore
    ) -> tuple[bytes, bytes] | None:
        """(bytes, digest) of a whole message; None if the wait was over before."""
        peer, pause = membership.members[pull.peer], _SHORTEST_PAUSE
        while not pull.stop.is_set():
            length = min(pull.chunk, membership.limits.chunk)
            request = Request(Kind.PULL, membership.digest, own, ask.round, len(pull.content), length)
            try:
                # Late peers must not keep others waiting: between two calls those have their turn, and one who
                # has not answered yet, and may be dead, takes no place.
                with room if pull.answered else contextlib.nullcontext():
                    if pull.stop.is_set():
                        return None
                    began = time.monotonic()
                    reply = self._links.to(peer).call(request, _CALL_SECONDS)
                    seconds = time.monotonic() - began
            except UnreachableError as error:
                pull.tried = True
                if error.denied:
                    raise RefusedError(Reason.NOT_ADMITTED, str(error)) from None
                pull.chunk = max(pull.chunk // 2, SMALLEST_CHUNK)
                pull.retries += 1
                pull.stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pull.tried = pull.answered = True
            if reply.status is Status.GONE:
                raise BehindError(_beyond(ask, reply.round))
            if reply.status is Status.HERE:
                take(pull, reply, ask.form.size, length)
                if len(reply.chunk) == length:  # the rest of a message says little of the line
                    pull.chunk = next_chunk(length, seconds)
                pause = _SHORTEST_PAUSE
                if len(pull.content) == ask.form.size:
                    return bytes(pull.content), reply.digest
                continue
            if reply.status is Status.REFUSED:
                self._note_refused(membership, ask.round, pull, reply)
            soon = reply.status is Status.NOT_YET and ask.round <= reply.round + 1  # it held the call for a while
            pull.stop.wait(_SHORTEST_PAUSE if soon else _LONGEST_PAUSE)
        return None


def _look(membership: Membership, pulls: dict[int, _Pull], wait: Wait) -> None:
    """Say in the wait how far the pulls are."""
    ids = {peer: membership.members[peer].id for peer in pulls}
    wait.answered = {ids[peer] for peer, pull in pulls.items() if pull.answered}
    wait.sending = {ids[peer] for peer, pull in pulls.items() if pull.content}


def _beyond(ask: Demand, there: int) -> int:
    """Where a peer is that no longer keeps the round asked for; RefusedError if it is not further."""
    if min(there, ask.last) <= ask.round:
        raise RefusedError(Reason.MALFORMED_REPLY, f"round {ask.round} is gone, says a peer in round {there}")
    return min(there, ask.last)


def take(pull: _Pull, reply: Reply, size: int, length: int) -> None:
    """Add a chunk to what has come; RefusedError if it does not belong there."""
    if reply.total != size:
        raise RefusedError(Reason.WRONG_SIZE, f"{reply.total} bytes were announced, {size} are expected")
    if pull.announced not in (None, (reply.total, reply.digest)):
        raise RefusedError(Reason.EQUIVOCATION, "the digest changed between two chunks")
    asked = min(length, size - len(pull.content))
    if len(reply.chunk) != asked:  # a byte at a time, a peer could keep this node busy for ever
        raise RefusedError(Reason.WRONG_SIZE, f"a chunk of {len(reply.chunk)} bytes, {asked} were asked for")
    pull.announced = reply.total, reply.digest
    pull.content += reply.chunk


def next_chunk(length: int, seconds: float) -> int:
    """Bytes to ask for after so many came in so many seconds: twice as many, unless the line might not carry
    them in the time of a call."""
    return min(2 * length, LARGEST_CHUNK) if 2 * seconds < _CALL_SECONDS / 2 else length
