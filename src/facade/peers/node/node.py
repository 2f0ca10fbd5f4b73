"""One node, one site, real peers: the round loop driven over a network.

A round: the loop trains and posts a message; the state at the start of the round and then the message
are committed to disk; the message is served; the peers' messages are pulled and mixed. A node that
was killed starts again from its newest checkpoint and plays to the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from facade.core import tree
from facade.core.engine import Played, play
from facade.core.messages import Everyone, Inbox, Post
from facade.core.types import Row
from facade.errors import DivergedError, FacadeError
from facade.files import store
from facade.learning.torch_threads import one_intra_op_thread
from facade.peers.after import training_alone as beside
from facade.peers.after.outcome import Outcome, read_site, write_site
from facade.peers.node.followed_lists import FollowedLists
from facade.peers.node.journal import Event, Journal, Metrics, lines
from facade.peers.node.ledger import Ledger
from facade.peers.node.outgoing import LostCheckpointError, Outgoing, SiteCheckpoint, SiteCheckpoints
from facade.peers.node.pulling import BehindError, Demand, Puller, ShutOutError
from facade.peers.node.shutdown import part, step_aside
from facade.peers.node.site_epoch import RemovedError, inbox_of
from facade.peers.node.start_up import await_everybody, await_first_round
from facade.peers.node.waiting import Patient, Policy, policy
from facade.peers.protocol.gate import Gate
from facade.peers.protocol.rpc import Credentials, Links, Server
from facade.peers.protocol.wire import MessageForm, Origin, not_finite, pack
from facade.peers.trust import identity
from facade.peers.trust.membership import Member, Membership
from facade.peers.trust.site import Site
from facade.runs.environment import environment
from facade.runs.run_directory import RunDirectory

Watch = Callable[[list[Row]], None]
"""Told the rows of every round as they are committed."""
Listen = Callable[[Event], None]
"""Told every event of the log, by the thread that it happens in."""


class _NextEpochError(Exception):
    """A round is governed by another list than the one it was begun under."""


class Node:
    """One site of a federation, ready to run."""

    def __init__(
        self,
        site: Site,
        *,
        baseline: bool = False,
        shared_port: bool = False,
        watch: Watch = lambda rows: None,
        listen: Listen = lambda event: None,
    ) -> None:
        self.site = site
        self._watch = watch
        self._baseline = baseline
        self._files = RunDirectory(site.run)
        self.lists = FollowedLists(site)
        self._checkpoints = SiteCheckpoints(self._files)
        self._saved = self._checkpoints.newest()
        self._outcome = Outcome.load(site.run)
        with contextlib.ExitStack() as opened:
            self.journal = Journal(site.run / "log.jsonl", listen)
            opened.callback(self.journal.close)
            self.lists.look(self.journal)
            self._open(opened, shared_port)
            self._opened = opened.pop_all()
        self._lap = time.monotonic()

    def _open(self, opened: contextlib.ExitStack, shared_port: bool) -> None:
        """Make everything that the node meets its peers with; what must be closed is added to `opened`."""
        site = self.site
        begun = self._saved.round if self._saved else self.lists.epochs.known[0].first_round
        self._scene = self.lists.scene(begun)
        limits = self._scene.membership.limits
        self.metrics = Metrics(site.settings.metrics_port)
        opened.callback(self.metrics.close)
        self.ledger = Ledger(self._saved.ledger if self._saved else None)
        self._outgoing = Outgoing(site.run / "outgoing", limits.window)
        if self._outcome is None:
            self._refuse_to_begin_again()
            self._files.cut("rows.jsonl", self._saved.rows if self._saved else 0)  # what came later is played again
        self.lists.recall(range(max(0, begun - limits.window), begun))
        self._joins = self._saved is None and begun > 0
        self.gate = Gate(
            self.lists.epochs,
            self._outgoing,
            self.lists.entitled,
            self._scene.plan.rounds,
            limits,
            self.journal,
            self.metrics,
            begun - 1 if self._joins else begun,  # one that joins is not there before the others are
            parted={e["peer"] for e in lines(site.run / "log.jsonl") if e.get("event") == "parted"},
        )
        own = Credentials(site.tls_key, site.certificate)
        self.policy = policy(self.membership.policy, limits)
        self.links = Links(own, limits.chunk, self._certificates)
        opened.callback(self.links.close)
        digests = self._heard_before(begun)
        self._mixed = self._mixed_before(begun)
        self._gatherer = Puller(self.links, self.ledger, self.journal, self.metrics, digests, self._notice)
        if self._saved is not None and self._saved.epoch != self.membership.epoch:
            self._outgoing.withdraw(begun)
        self._server = Server(self.gate, own, site.settings.listen or site.settings.address, self._callers, shared_port)
        opened.callback(self._server.stop)

    def _refuse_to_begin_again(self) -> None:
        """LostCheckpointError for a run that has begun and cannot be continued: beginning again would take back
        messages that others have used."""
        if self._saved is not None:
            return
        published, log = self._outgoing.rounds, lines(self.site.run / "log.jsonl")
        if self._checkpoints.begun or published or any(event.get("event") == "committed" for event in log):
            what = f" (messages up to round {published[-1]} are published)" if published else ""
            raise LostCheckpointError(
                f"this site's run has begun{what} but cannot be continued: {self._checkpoints.missing()}; restore"
                " what is missing from a copy. Without one, ask the federation's admin to remove this site and then to"
                f" add it again, and move {self.site.run} away before it starts with the list that adds it"
            )

    def run(self) -> Outcome:
        """Play all rounds, or what is left of them; then help the others to finish."""
        outcome = self._outcome
        if outcome is None:
            learner = self._scene.setup.learner
            where = environment(learner.threads, learner.executor.name)
            who = {"id": self.site.settings.id, "federation": self.membership.federation}
            begun = {"round": self.gate.round, "rounds": self._scene.plan.rounds, "epoch": self.membership.epoch}
            self.journal.write("started", **who, **begun, **where)
            self._write_status(self.gate.round)
            try:
                with one_intra_op_thread():
                    played = self._play()
            except RemovedError:
                step_aside(self)
                raise
            self._commit_rows(played.rows)
            scene = self._scene
            outcome = Outcome.make(scene.membership, scene.setup, self.site.settings.id, played.state, self.ledger)
            store.sync(self.site.run / "rows.jsonl")
            outcome.save(self.site.run, played.state, scene.setup)
            self.journal.write("finished", round=self.gate.round, sha256=outcome.state_sha256)
        self.gate.finish()  # before the training alone, which the others need not wait for
        if self._has_more_to_say():
            own = beside.alone(self._scene) if self._baseline else None
            write_site(self.site, beside.facts(outcome, self._scene, self._files.rows, own))
        part(self)
        return outcome

    def _has_more_to_say(self) -> bool:
        """Whether site.json is missing, or lacks the training alone that is asked for now."""
        path = self.site.run / "site.json"
        return not path.exists() or (self._baseline and read_site(path).gain is None)

    def close(self) -> None:
        """Free the port; nothing is answered any more."""
        self._opened.close()

    @property
    def membership(self) -> Membership:
        """The list that is in force."""
        return self._scene.membership

    def _play(self) -> Played:
        if self._joins:
            await_first_round(self)
        elif self._saved is None:
            await_everybody(self)
        begin: Callable[[], tuple[int, Any]] = functools.partial(self._scene.start, self._saved)
        while True:
            try:
                try:
                    start, scene = begin(), self._scene
                except _NextEpochError:
                    continue  # under the new list: nothing was played under the old one
                game = play(scene.setup.algorithm, scene.shard, scene.plan, scene.setup.federation, start)
                return self._drive(game)
            except _NextEpochError:
                begin = self._turn_page
            except BehindError as behind:
                begin = functools.partial(self._jump, behind.round)
            except ShutOutError:
                raise self._why_shut_out() from None

    def _drive(self, game: Generator[Post, Inbox, Played]) -> Played:
        """Carry posts to inboxes until the game is over."""
        began = time.monotonic()
        post = next(game)
        while True:
            self._post = post
            self._commit_rows(post.rows)
            self._notice(post.round)
            self._commit(post)
            if post.round < self._scene.plan.rounds:  # before the final exchange nobody trains
                self.policy.trained(time.monotonic() - began)
            inbox = self._exchange(post)
            began = time.monotonic()
            try:
                post = game.send(inbox)
            except StopIteration as end:
                played: Played = end.value
                return played
            except DivergedError as error:
                raise self._diverged(error, inbox) from None

    def _diverged(self, error: DivergedError, inbox: Inbox) -> DivergedError:
        """The error, with those whose messages were mixed before it."""
        others = [number for number in inbox.senders.tolist() if number != self._scene.number]
        if not others:
            return error
        names = ", ".join(self.membership.members[number].id for number in others)
        return DivergedError(
            f"{error}. Mixed before it were messages of {names}: if one of them sends broken models, have it removed"
        )

    def _commit(self, post: Post) -> None:
        """Make the round's start and then its message durable. Only what is on disk is served, and a
        message is on disk only if the state that it was made from is."""
        if broken := not_finite(post.outbox):
            raise FacadeError(
                f"this site's own message of round {post.round} holds values that are not finite ({broken[0]}), which"
                " nobody would use; the algorithm, or the data, must not make such"
            )
        content = pack(Origin(self.membership.digest, self._scene.number, post.round), post.outbox)
        self._outgoing.check(post.round, content)  # before a state that diverges takes the place of a good one
        self._checkpoints.save(post.round, self.membership.epoch, post.state, self.ledger.plain())
        self.journal.sync()  # what was mixed must be known if this round is ever to be played again
        self.gate.round = post.round  # before the message is there: nobody is told of a gone round from an older one
        published = self._outgoing.commit(post.round, content)
        self.lists.forget(post.round - self.membership.limits.window)
        what = {"sha256": published.digest.hex(), "bytes": published.total}
        self.journal.write("committed", round=post.round, epoch=self.membership.epoch, **what)
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
        scene, everyone = self._scene, isinstance(post.wanted, Everyone)
        wanted = scene.others if isinstance(post.wanted, Everyone) else post.wanted.sender.tolist()
        mixed = self._mixed.get((self.membership.epoch, post.round))
        if mixed is not None and self._outgoing.get(post.round + 1) is not None:
            heard = self._hear_again(post, mixed)
        else:
            heard = self._hear(post.round, wanted, post.outbox, self.policy)
        self.journal.write("mixed", round=post.round, epoch=self.membership.epoch, heard=sorted(heard))
        return inbox_of(scene.number, post.outbox, heard, everyone and len(heard) == len(wanted))

    def _hear_again(self, post: Post, mixed: list[int]) -> dict[int, Any]:
        """The messages that a round was mixed from when it was played before: the next round's message, made
        from them, is published, and must come out the same."""
        heard = self._hear(post.round, mixed, post.outbox, Patient(self.membership.limits))
        missing = [self.membership.members[sender].id for sender in mixed if sender not in heard]
        if missing:
            raise FacadeError(
                f"round {post.round} must be played again, for the newest checkpoint could not be used, but"
                f" {', '.join(missing)}, heard in it before, did not come within {self.membership.limits.deadline:g} s;"
                " start again when they answer"
            )
        return heard

    def _hear(self, round: int, senders: list[int], own: Any, policy: Policy) -> dict[int, Any]:
        if not senders:
            return {}
        scene = self._scene
        turn = scene.plan.turn(scene.shard, round)
        algorithm = scene.setup.algorithm
        form = MessageForm(own, algorithm.entries_without_weights)
        refuse = functools.partial(algorithm.refuse, turn)
        plan = scene.plan
        last = plan.rounds if plan.all_reduce else plan.rounds - 1
        ask = Demand(round, senders, form, refuse, last, policy, final=round == plan.rounds)
        return self._gatherer.gather(scene.membership, scene.number, ask)

    def _jump(self, to: int) -> tuple[int, Any]:
        """Too far behind to replay: go to the round where the others are, with the messages that the
        neighbours of the last rounds still keep, mixed by the algorithm's own rule. BehindError if the
        others have gone on meanwhile."""
        self.journal.write("jumped", round=to, before=self.gate.round)
        state = self._enter(to)
        scene = self._scene
        if to == scene.plan.rounds:
            return to, state
        algorithm = scene.setup.algorithm
        turn = scene.plan.turn(scene.shard, to)
        own = algorithm.message(turn, state)
        enough = 3 * algorithm.heads_compared
        heard: dict[int, Any] = {}
        oldest = max(scene.membership.first_round, to - scene.membership.limits.window // 2 + 1)
        for round in range(to, oldest - 1, -1):
            missing = [i for i in scene.neighbours(round) if i not in heard][: enough - len(heard)]
            try:
                heard |= self._hear(round, missing, own, self.policy)
            except BehindError:
                if round == to:
                    raise
        return to, algorithm.mix(turn, state, inbox_of(scene.number, own, heard, False))

    def _callers(self) -> list[Member]:
        return [member for list in self.lists.epochs.current(self.gate.round) for member in list.members]

    def _certificates(self, id: str) -> list[str]:
        return self.lists.epochs.certificates(id, self.gate.round)

    def _notice(self, round: int) -> None:
        """Look for a new list; _NextEpochError if this round is to be played by it."""
        self.lists.look(self.journal)
        if self.lists.epochs.governing(round) is not self.membership:
            raise _NextEpochError

    def _turn_page(self) -> tuple[int, Any]:
        """Go on under the next list. The round is begun again: its graph and numbers are other ones."""
        round = self._post.round
        self._outgoing.withdraw(round)
        return round, self._enter(round)

    def _enter(self, round: int) -> Any:
        """The state to begin a round with, as the list that governs it wants it."""
        scene = self.lists.scene(round)
        if scene is not self._scene:
            self._scene = scene
            self.gate.last_round = scene.plan.rounds
            self.journal.write("epoch", epoch=self.membership.epoch, round=round, rounds=scene.plan.rounds)
        return scene.start(SiteCheckpoint(round, self.membership.epoch, tree.flatten(self._post.state), {}, 0))[1]

    def _why_shut_out(self) -> FacadeError:
        """What to tell the operator of a site that nobody admits; RemovedError if its own list says so."""
        self.lists.look(self.journal)
        self.lists.scene(self._post.round + 1)
        return FacadeError(
            f"no neighbour admits this site in round {self._post.round} any more; put the newest membership.json"
            " beside node.toml and start again, or ask the federation's admin"
        )

    def _mixed_before(self, round: int) -> dict[tuple[int, int], list[int]]:
        """Whom this node mixed before a restart, by (epoch, round), in the rounds that may be played again."""
        events = [e for e in lines(self.site.run / "log.jsonl") if e.get("event") == "mixed" and e["round"] >= round]
        return {(e["epoch"], e["round"]): e["heard"] for e in events if "epoch" in e}

    def _heard_before(self, round: int) -> dict[Origin, str]:
        """Digests that were accepted before a restart, for the rounds that may be played again."""
        lists = {membership.epoch: membership for membership in self.lists.epochs.known}
        events = [e for e in lines(self.site.run / "log.jsonl") if e.get("event") == "heard" and e["round"] >= round]
        by_list = [(lists[e["epoch"]], e) for e in reversed(events) if e.get("epoch") in lists]
        return {Origin(own.digest, own.number(e["peer"]), e["round"]): e["sha256"] for own, e in by_list}

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
        store.replace(self.site.run / "status.json", identity.canonical(facts))


def run(
    home: str | Path,
    *,
    baseline: bool = False,
    shared_port: bool = False,
    watch: Watch = lambda rows: None,
    listen: Listen = lambda event: None,
) -> Outcome:
    """Run the site of a directory to the end of the experiment."""
    site = Site.load(Path(home))
    with RunDirectory(site.run).claimed():
        node = Node(site, baseline=baseline, shared_port=shared_port, watch=watch, listen=listen)
        try:
            return node.run()
        finally:
            node.close()
