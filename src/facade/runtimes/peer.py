"""One node, one site, real peers: the round loop driven over a network.

A round: the loop trains and posts a message; the state at the start of the round and then the message
are committed to disk; the message is served; the peers' messages are pulled and mixed. A node that
was killed starts again from its newest checkpoint and plays to the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from facade import store, tree
from facade.checkpoint import Bell
from facade.engine import Played, play, turn_of
from facade.errors import StoppedError
from facade.learner import one_intra_op_thread
from facade.messages import Everyone, Inbox, Post
from facade.peers import identity
from facade.peers.gate import Gate
from facade.peers.journal import Journal, Metrics, lines
from facade.peers.ledger import Ledger
from facade.peers.membership import Epochs, Member, Membership, load
from facade.peers.outcome import Outcome, write_site
from facade.peers.shelf import Checkpoints, Outgoing, Saved
from facade.peers.site import Site
from facade.peers.waiting import policy
from facade.records import RunDirectory, environment
from facade.rows import Row
from facade.runtimes import baseline as beside
from facade.runtimes.gather import Ask, BehindError, Gatherer
from facade.runtimes.parting import part, step_aside
from facade.runtimes.rpc import Credentials, Links, Server
from facade.runtimes.scene import RemovedError, Scene, inbox_of
from facade.wire import Form, Origin, pack

Watch = Callable[[list[Row]], None]
"""Told the rows of every round as they are committed."""


class LeftError(StoppedError):
    """Somebody asked the node to leave; it can come back any time."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message, signal)
        self.exit_code = 0


@contextlib.contextmanager
def leaving_on_signals() -> Iterator[None]:
    """Inside the with-block, SIGTERM and SIGINT raise LeftError at once: whatever is on disk is whole
    at any moment, and a round that was begun is played again."""

    def leave(number: int) -> None:
        raise LeftError("left in good order; to come back: facade node up", number)

    with Bell().listening(leave):
        yield


class _NextEpochError(Exception):
    """A round is governed by another list than the one it was begun under."""

    def __init__(self, post: Post) -> None:
        super().__init__(post.round)
        self.post = post


class Node:
    """One site of a federation, ready to run."""

    def __init__(
        self, site: Site, *, baseline: bool = False, shared_port: bool = False, watch: Watch = lambda rows: None
    ) -> None:
        self.site = site
        self._watch = watch
        self._baseline = baseline
        self._files = RunDirectory(site.run)
        self._epochs = Epochs()
        self._learn_epochs()
        self._checkpoints = Checkpoints(self._files)
        self._saved = self._checkpoints.restore()
        if self._saved is None:
            self._files.cut("rows.jsonl", 0)
        begun = self._saved.round if self._saved else self._epochs.known[0].first_round
        self._scene = Scene.of(site, self._epochs.governing(begun))
        self._scenes = {self.membership.epoch: self._scene}
        limits = self._scene.membership.limits
        self.journal = Journal(site.run / "log.jsonl")
        self.metrics = Metrics(site.settings.metrics_port)
        self.ledger = Ledger(self._saved.ledger if self._saved else None)
        self._outgoing = Outgoing(site.run / "outgoing", limits.window)
        self.gate = Gate(
            self._epochs,
            self._outgoing,
            self._entitled,
            self._scene.plan.rounds,
            limits.chunk,
            self.journal,
            self.metrics,
            begun,
        )
        own = Credentials(site.tls_key, site.certificate)
        self.policy = policy(self._scene.membership.policy, limits, opening=self._saved is None)
        self.links = Links(own, limits.chunk)
        self._gatherer = Gatherer(self.links, self.policy, self.ledger, self.journal, self.metrics)
        self._gatherer.digests = self._heard_before(begun)
        self._server = Server(self.gate, own, site.settings.listen or site.settings.address, self._callers, shared_port)
        self._lap = time.monotonic()

    def run(self) -> Outcome:
        """Play all rounds, or what is left of them; then help the others to finish."""
        outcome = Outcome.load(self.site.run)
        if outcome is None:
            learner = self._scene.setup.learner
            where = environment(learner.threads, learner.executor.name)
            self.journal.write("started", round=self.gate.round, epoch=self.membership.epoch, **where)
            try:
                with one_intra_op_thread():
                    played = self._play()
            except RemovedError:
                step_aside(self)
                raise
            self._commit_rows(played.rows)
            scene = self._scene
            outcome = Outcome.make(scene.membership, scene.setup, self.site.settings.id, played.state, self.ledger)
            outcome.save(self.site.run, played.state, scene.setup)
            self.journal.write("finished", round=self.gate.round, sha256=outcome.state_sha256)
        if not (self.site.run / "site.json").exists():
            own = beside.alone(self._scene) if self._baseline else None
            write_site(self.site, beside.facts(outcome, self._scene, self._files.rows, own))
        part(self)
        return outcome

    def close(self) -> None:
        """Free the port; nothing is answered any more."""
        self._server.stop()
        self.links.close()
        self.metrics.close()
        self.journal.close()

    @property
    def membership(self) -> Membership:
        """The list that is in force."""
        return self._scene.membership

    def _play(self) -> Played:
        start = self._scene.start(self._saved)
        while True:
            scene = self._scene
            game = play(scene.setup.algorithm, scene.shard, scene.plan, scene.setup.federation, start)
            try:
                return self._drive(game)
            except _NextEpochError as turned:
                start = self._turn_page(turned.post)
            except BehindError as behind:
                start = self._jump(behind.round)

    def _drive(self, game: Generator[Post, Inbox, Played]) -> Played:
        """Carry posts to inboxes until the game is over."""
        post = next(game)
        while True:
            self._learn_epochs()
            if self._epochs.governing(post.round) is not self.membership:
                raise _NextEpochError(post)
            self._commit(post)
            inbox = self._exchange(post)
            try:
                post = game.send(inbox)
            except StopIteration as end:
                played: Played = end.value
                return played

    def _commit(self, post: Post) -> None:
        """Make the round's start and then its message durable. Only what is on disk is served, and a
        message is on disk only if the state that it was made from is."""
        self._commit_rows(post.rows)
        self._last = post.state
        self._checkpoints.save(post.round, self.membership.epoch, post.state, self.ledger.plain())
        origin = Origin(self.membership.digest, self._scene.number, post.round)
        published = self._outgoing.commit(post.round, pack(origin, post.outbox))
        self.gate.round = post.round
        self.journal.write("committed", round=post.round, sha256=published.digest.hex(), bytes=published.total)
        now = time.monotonic()
        self.metrics.seconds.observe(now - self._lap)
        self.metrics.round.set(post.round)
        self.metrics.certificate_days.set(identity.days_left(self.site.certificate))
        self._lap = now
        self._write_status(post.round)

    def _commit_rows(self, rows: list[Row]) -> None:
        self._files.append("rows.jsonl", rows)
        for row in rows:
            if row.get("choice") is not None:
                self.metrics.choice.set(row["choice"])
        self._watch(rows)

    def _exchange(self, post: Post) -> Inbox:
        """Turn a post into an inbox: hear those who are wanted, as far as they can be heard."""
        everyone = isinstance(post.wanted, Everyone)
        senders = self._scene.others if isinstance(post.wanted, Everyone) else post.wanted.sender.tolist()
        heard = self._hear(post.round, senders, post.outbox) if senders else {}
        self.journal.write("mixed", round=post.round, heard=sorted(heard))
        return inbox_of(self._scene.number, post.outbox, heard, everyone and len(heard) == len(senders))

    def _hear(self, round: int, senders: list[int], own: Any) -> dict[int, Any]:
        scene = self._scene
        turn = turn_of(scene.shard, scene.plan, round)
        refuse = functools.partial(scene.setup.algorithm.refuse, turn)
        ask = Ask(round, senders, Form(own), refuse, final=round == scene.plan.rounds)
        return self._gatherer.gather(scene.membership, scene.number, ask)

    def _jump(self, to: int) -> tuple[int, Any]:
        """Too far behind to replay: go to the round where the others are, with the messages that the
        neighbours of the last rounds still keep, mixed by the algorithm's own rule."""
        scene, state = self._scene, self._last
        to = min(to, scene.plan.rounds if scene.plan.all_reduce else scene.plan.rounds - 1)
        self.journal.write("jumped", round=to, before=self.gate.round)
        if to == scene.plan.rounds:
            return to, state
        algorithm = scene.setup.algorithm
        turn = turn_of(scene.shard, scene.plan, to)
        own = algorithm.message(turn, state)
        enough = 3 * max(1, getattr(algorithm, "heads", 1))
        heard: dict[int, Any] = {}
        for round in range(to, max(-1, to - scene.membership.limits.window // 2), -1):
            missing = [i for i in scene.neighbours(round) if i not in heard][: enough - len(heard)]
            try:
                heard |= self._hear(round, missing, own) if missing else {}
            except BehindError as further:
                return self._jump(further.round)
        return to, algorithm.mix(turn, state, inbox_of(scene.number, own, heard, False))

    def _entitled(self, round: int, caller: int) -> bool:
        scene = self._scenes.get(self._epochs.governing(round).epoch)
        return scene is not None and scene.entitled(round, caller)

    def _callers(self) -> list[Member]:
        return [member for membership in self._epochs.current(self.gate.round) for member in membership.members]

    def _learn_epochs(self) -> None:
        """Take the list that the operator has put into the directory since, and remember it."""
        path, kept = self.site.home / "membership.json", self.site.run / "epochs"
        if not self._epochs.known:
            kept.mkdir(parents=True, exist_ok=True)
            for earlier in sorted(kept.glob("*.json"), key=lambda p: int(p.stem)):
                self._epochs.add(load(earlier, self.site.settings.admins))
            self._seen = 0
            self.site.membership()
        changed = path.stat().st_mtime_ns
        if changed == self._seen:
            return
        self._seen = changed
        found = load(path, self.site.settings.admins)
        if self._epochs.add(found):
            store.replace(kept / f"{found.epoch}.json", path.read_bytes())

    def _turn_page(self, post: Post) -> tuple[int, Any]:
        """Go on under the next list. The round is begun again: its graph and numbers are other ones."""
        self._commit_rows(post.rows)
        self._scene = Scene.of(self.site, self._epochs.governing(post.round))
        self._scenes[self.membership.epoch] = self._scene
        self.gate.last_round = self._scene.plan.rounds
        self.journal.write("epoch", epoch=self.membership.epoch, round=post.round)
        return self._scene.start(Saved(post.round, self.membership.epoch, tree.flatten(post.state), {}))

    def _heard_before(self, round: int) -> dict[tuple[str, int], str]:
        """Digests that were accepted before a restart, for the rounds that may be played again."""
        events = [e for e in lines(self.site.run / "log.jsonl") if e.get("event") == "heard" and e["round"] >= round]
        return {(e["peer"], e["round"]): e["sha256"] for e in reversed(events)}

    def _write_status(self, round: int) -> None:
        facts = {
            "id": self.site.settings.id,
            "round": round,
            "rounds": self._scene.plan.rounds,
            "epoch": self.membership.epoch,
            "policy": self.membership.policy,
            "ledger": self.ledger.plain(),
            "refusals": dict(self.journal.refusals),
        }
        (self.site.run / "status.json").write_bytes(identity.canonical(facts))


def run(
    home: str | Path, *, baseline: bool = False, shared_port: bool = False, watch: Watch = lambda rows: None
) -> Outcome:
    """Run the site of a directory to the end of the experiment."""
    site = Site.load(Path(home))
    with RunDirectory(site.run).claimed():
        node = Node(site, baseline=baseline, shared_port=shared_port, watch=watch)
        try:
            return node.run()
        finally:
            node.close()
