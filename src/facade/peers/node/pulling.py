"""Pull the messages of a round: in chunks, from all wanted peers at once, until all have come or the
waiting policy says to go on."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Set
from typing import Any

from facade.files.shortage import shortage
from facade.peers.node.member_calls import MemberCalls
from facade.peers.node.records import Records
from facade.peers.node.recovery import Recovery
from facade.peers.node.round_pulls import BehindError, Demand, Pull, PullEnd, RoundPulls, ShutOutError
from facade.peers.node.waiting import Wait
from facade.peers.protocol.headers import Kind, Reply, Request, Status
from facade.peers.protocol.incoming import Incoming
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.transport import PeerLinks, UnreachableError
from facade.peers.protocol.wire import Origin
from facade.peers.trust.membership import Membership

SMALLEST_CHUNK, FIRST_CHUNK = 1 << 15, 1 << 18
MOST_CALLS = 16
"""Calls under way at a time, to peers that answer."""
_CALL_SECONDS = 10.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5


class Puller:
    """Pulls messages for one node."""

    def __init__(
        self,
        links: PeerLinks,
        records: Records,
        recovery: Recovery,
        watch: Callable[[int], None],
        hold: Callable[[int, Set[str]], bool],
    ) -> None:
        self._links = links
        self._records = records
        self._recovery = recovery
        """Knows the digests that were accepted lately."""
        self._watch = watch
        """Called now and then while waiting, with the round; what it raises ends the waiting."""
        self._hold = hold
        """Called now and then while waiting, and before a node goes on without somebody, with the round and, if it
        goes on alone, who did not come. It comes back when enough members are there, and says whether that took a
        pause: then everybody has all their time again."""
        self._chunks: dict[str, int] = {}
        """Bytes to ask a member for first, as its connection carried the last time."""

    def pull(self, membership: Membership, own: int, demand: Demand) -> dict[int, Any]:
        """Messages by sender. RefusedError never leaves: what is refused is missing. So is what a peer
        no longer keeps; BehindError only if more of the peers say so than still have their messages: one
        of them alone must not make this node leave out its training."""
        stop = threading.Event()
        ids = {peer: membership.members[peer].id for peer in demand.senders}
        wait = Wait(time.monotonic(), set(ids.values()), demand.final)
        pulls = RoundPulls(membership, own, demand, wait, threading.Semaphore(MOST_CALLS))
        for peer, id in ids.items():
            pulls.by_sender[peer] = pull = Pull(peer, stop, chunk=self._chunks.get(id, FIRST_CHUNK))
            name = f"facade-pull-{peer}"
            threading.Thread(target=self._pull_one, args=(pulls, pull), name=name, daemon=True).start()
        try:
            self._await(pulls)
        finally:
            stop.set()
        pulls.note_progress()
        self._note_missed(demand, pulls.wait)
        demand.policy.learn(pulls.wait)
        self._record(pulls)
        return pulls.heard

    def _await(self, pulls: RoundPulls) -> None:
        """Take what comes until all have come or the policy says to go on."""
        demand, wait = pulls.demand, pulls.wait
        while wait.outstanding:
            pulls.note_progress()
            left = demand.policy.until(wait) - time.monotonic()
            # Nobody is outvoted unasked: before a jump, who has not had the time to answer is given that of a call.
            if left <= 0 and (pulls.all_tried() or len(pulls.behind) <= len(pulls.heard)):
                if not self._hold(demand.round, set() if pulls.heard else wait.outstanding):
                    break
                wait.begin_again(time.monotonic())
            try:
                end = pulls.ends.get(timeout=min(max(left, _SHORTEST_PAUSE), 0.5))
            except queue.Empty:
                self._watch(demand.round)
                if self._hold(demand.round, set()):
                    wait.begin_again(time.monotonic())
                continue
            self._take_end(pulls, end)
            if len(pulls.behind) > len(pulls.heard) + len(wait.outstanding):  # the missing can change nothing
                break
        pulls.check_not_behind()
        if len(pulls.denied) == len(demand.senders) and self._is_shut_out(pulls):
            raise ShutOutError

    def _take_end(self, pulls: RoundPulls, end: PullEnd) -> None:
        """Count how one pull ended."""
        peer, id, round = end.pull.peer, pulls.id(end.pull.peer), pulls.demand.round
        journal = self._records.journal
        if end.behind is not None:
            pulls.behind.append(end.behind)
            self._records.ledger.of(id).gone += 1
            journal.write("gone", round=round, peer=id, there=end.behind)
            pulls.wait.lose(id, time.monotonic())
        elif end.refusal is not None:
            self._refused(id, pulls.demand, end.refusal)
            if end.refusal.reason is Reason.NOT_ADMITTED:
                pulls.denied.add(id)
            pulls.wait.lose(id, time.monotonic())
        else:
            pulls.heard[peer] = end.message
            digest = self._recovery.note_heard(pulls.origin(peer))
            journal.write("heard", round=round, epoch=pulls.membership.epoch, peer=id, sha256=digest)
            pulls.wait.came(id, time.monotonic())

    def _is_shut_out(self, pulls: RoundPulls) -> bool:
        """Whether this node is no member to the others: none of those it wanted to hear admits it. One alone may be
        wrong, so where that is all, the other members are asked: one more must deny this node, and none admit it."""
        enough = min(2, pulls.membership.n - 1)
        if len(pulls.denied) >= enough:
            return True
        calls = MemberCalls(self._links, pulls.membership, pulls.id(pulls.own))
        rest = [member for member in calls.others if member.id not in pulls.denied]
        answers = calls.ask_each(rest, Kind.PROBE, pulls.demand.round).values()
        if any(isinstance(answer, Reply) for answer in answers):
            return False
        denials = sum(isinstance(answer, UnreachableError) and answer.denied for answer in answers)
        return len(pulls.denied) + denials >= enough

    def _note_missed(self, demand: Demand, wait: Wait) -> None:
        """Say in the log who did not come, and how long they were waited for when all others had."""
        if not wait.outstanding:
            return
        granted, waited = (moment - wait.latest for moment in (demand.policy.until(wait), time.monotonic()))
        seconds = {"granted": max(0.0, granted), "waited": waited}
        self._records.journal.write("missed", round=demand.round, peers=sorted(wait.outstanding), **seconds)

    def _refused(self, id: str, demand: Demand, refusal: RefusedError) -> None:
        word = refusal.reason.word
        self._records.ledger.refuse(id, refusal.reason, demand.final)
        self._records.metrics.rejected.labels(word).inc()
        self._records.journal.refused(id, word, details=refusal.details, side="payload", round=demand.round)

    def _note_refused(self, pulls: RoundPulls, pull: Pull, reply: Reply) -> None:
        """Say in the log that a peer refuses this node's calls, once for a reason."""
        pull.retries += 1
        if reply.reason is not pull.refused:
            id, why = pulls.id(pull.peer), reply.why(pulls.membership.digest)
            facts = {"details": why, "side": "callee", "round": pulls.demand.round}
            self._records.journal.refused(id, reply.reason.word, **facts)
        pull.refused = reply.reason

    def _record(self, pulls: RoundPulls) -> None:
        """Enter a round that is over into the ledger and the metrics."""
        size, wait, metrics = pulls.demand.form.size, pulls.wait, self._records.metrics
        for peer, pull in pulls.by_sender.items():
            id = pulls.id(peer)
            entry = self._records.ledger.of(id)
            entry.retries += pull.retries
            metrics.retries.inc(pull.retries)
            if id in wait.heard:
                entry.heard += 1
                entry.bytes += size
                metrics.bytes.inc(size)
            elif id in wait.outstanding:
                entry.late += pull.answered
                entry.missed += not pull.answered
                metrics.misses.inc()
            # Where nothing has come, even the first chunk may have been more than is carried in a wait.
            self._chunks[id] = pull.chunk if pull.come else SMALLEST_CHUNK
        metrics.heard.set(len(wait.heard))
        self._records.progress.note_exchange(wait.heard, wait.outstanding)

    def _pull_one(self, pulls: RoundPulls, pull: Pull) -> None:
        """In a thread of its own: fetch, check, say how it ended."""
        try:
            message = self._fetch_and_check(pulls, pull)
            if message is not None:
                pulls.ends.put(PullEnd(pull, message))
        except RefusedError as refusal:
            pulls.ends.put(PullEnd(pull, refusal=refusal))
        except BehindError as behind:
            pulls.ends.put(PullEnd(pull, behind=behind.round))
        except Exception as error:  # of an algorithm's own check, say: who ends in silence is waited for in vain
            unusable = RefusedError(Reason.UNUSABLE, f"{type(error).__name__}: {error}")
            pulls.ends.put(PullEnd(pull, refusal=unusable))

    def _fetch_and_check(self, pulls: RoundPulls, pull: Pull) -> Any:
        """The message of one peer, again and again if this site lacks the memory for it, which is not the peer's
        fault; None if the wait was over before."""
        while True:
            try:
                come = self._fetch(pulls, pull)
                return None if come is None else self._checked(pulls.origin(pull.peer), pulls.demand, *come)
            except Exception as error:
                lacks = shortage(error)
                if lacks is None:
                    raise
                pull.incoming = None
                facts = {"round": pulls.demand.round, "peer": pulls.id(pull.peer), "lacks": lacks}
            if pull.retries == 0:
                self._records.journal.write("short", **facts)
            pull.retries += 1
            pull.stop.wait(_LONGEST_PAUSE)

    def _checked(self, origin: Origin, demand: Demand, incoming: Incoming, digest: bytes) -> Any:
        """The message that has come under an announced digest; RefusedError if anything about it is wrong."""
        return self.accept(origin, demand, demand.form.read(incoming, digest, origin), digest)

    def accept(self, origin: Origin, demand: Demand, message: Any, digest: bytes) -> Any:
        """A message of the right form, if it is usable and the first; RefusedError otherwise."""
        why = demand.refuse(message)
        if why is not None:
            raise RefusedError(Reason.UNUSABLE, why)
        first = self._recovery.first_digest(origin, digest.hex())
        if first != digest.hex():
            raise RefusedError(Reason.EQUIVOCATION, f"{first[:16]} was heard first, now {digest.hex()[:16]}")
        return message

    def _fetch(self, pulls: RoundPulls, pull: Pull) -> tuple[Incoming, bytes] | None:
        """(whole message, announced digest); None if the wait was over before."""
        membership, demand, pause = pulls.membership, pulls.demand, _SHORTEST_PAUSE
        while not pull.stop.is_set():
            length = min(pull.chunk, membership.limits.chunk)
            request = Request(Kind.PULL, membership.digest, pulls.own, demand.round, pull.come, length)
            try:
                # Late peers must not keep others waiting: between two calls those have their turn, and one who
                # has not answered yet, and may be dead, takes no place.
                with pulls.room if pull.answered else contextlib.nullcontext():
                    if pull.stop.is_set():
                        return None
                    began = time.monotonic()
                    reply = self._links.to(membership.members[pull.peer]).call(request, _CALL_SECONDS)
                    seconds = time.monotonic() - began
            except UnreachableError as error:
                _note_unreachable(pull, error)
                pull.stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pull.tried = pull.answered = True
            if reply.status is Status.GONE:
                raise BehindError(_beyond(demand, reply.round))
            if reply.status is Status.HERE:
                incoming = pull.add(reply, demand.form, length)
                if len(reply.chunk) == length:  # the rest of a message says little of the connection
                    pull.chunk = min(next_chunk(length, seconds), membership.limits.chunk)
                pause = _SHORTEST_PAUSE
                if incoming.come == demand.form.size:
                    return incoming, reply.digest
                continue
            if reply.status is Status.REFUSED:
                self._note_refused(pulls, pull, reply)
            soon = reply.status is Status.NOT_YET and demand.round <= reply.round + 1  # it held the call for a while
            pull.stop.wait(_SHORTEST_PAUSE if soon else _LONGEST_PAUSE)
        return None


def _note_unreachable(pull: Pull, error: UnreachableError) -> None:
    """A call brought nothing: the next one asks for less. RefusedError where this node is not admitted."""
    pull.tried = True
    if error.denied:
        raise RefusedError(Reason.NOT_ADMITTED, str(error)) from None
    pull.chunk = max(pull.chunk // 2, SMALLEST_CHUNK)
    pull.retries += 1


def _beyond(demand: Demand, there: int) -> int:
    """Where a peer is that no longer keeps the round asked for; RefusedError if it is not further."""
    if min(there, demand.last) <= demand.round:
        raise RefusedError(Reason.MALFORMED_REPLY, f"round {demand.round} is gone, says a peer in round {there}")
    return min(there, demand.last)


def next_chunk(length: int, seconds: float) -> int:
    """Bytes to ask for after so many came in so many seconds: twice as many, unless the connection might not carry
    them in the time of a call."""
    return 2 * length if 2 * seconds < _CALL_SECONDS / 2 else length
