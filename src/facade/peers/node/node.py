"""One site, put together from its parts and run to the end: start up, play, write down what came of it, shut down.

A node that was killed starts again from its newest checkpoint and plays to the same bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, NoReturn

from facade.core.engine import Played
from facade.errors import ExperimentError
from facade.learning.torch_threads import one_intra_op_thread
from facade.peers.after import training_alone
from facade.peers.after.outcome import Outcome, read_site, write_site
from facade.peers.node.checkpoints import SiteCheckpoint, SiteCheckpoints
from facade.peers.node.followed_lists import FollowedLists, GoBackError
from facade.peers.node.hearing import Hearing
from facade.peers.node.ignored_members import UnignoredLinks
from facade.peers.node.journal import Event, Journal, Metrics
from facade.peers.node.ledger import Ledger
from facade.peers.node.member_calls import MemberCalls
from facade.peers.node.playing import Playing
from facade.peers.node.presence import Presence
from facade.peers.node.probing import NotedLinks, Probing
from facade.peers.node.publishing import Publisher, Watch
from facade.peers.node.pulling import Puller
from facade.peers.node.quorum import Quorum
from facade.peers.node.records import Records
from facade.peers.node.rollback import go_back
from facade.peers.node.shortages import Shortages
from facade.peers.node.shutdown import Shutdown
from facade.peers.node.site_epoch import RemovedError, SiteEpoch
from facade.peers.node.site_files import SiteFiles
from facade.peers.node.start_up import StartUp
from facade.peers.node.study_metrics import StudyMetrics
from facade.peers.node.surroundings import changes, surroundings
from facade.peers.node.waiting import policy
from facade.peers.protocol.allocation import keep_freed_chunks
from facade.peers.protocol.descriptors import raise_limit
from facade.peers.protocol.gate import Gate
from facade.peers.protocol.transport import Transport
from facade.peers.trust import identity
from facade.peers.trust.identity import Ask, cannot_ask
from facade.peers.trust.site import Site
from facade.peers.trust.studies import MAIN, not_played, refuse_twin, stray_list
from facade.runs.environment import environment
from facade.runs.run_directory import RunDirectory

_PAUSE = 1.0
"""Seconds between two looks for a new list, of a node that has finished and stays."""

Listen = Callable[[Event], None]
"""Told every event of the log, by the thread that it happens in."""


class Node:
    """One site of a federation, ready to run. From now on its peers can call it."""

    def __init__(
        self,
        site: Site,
        transport: Transport,
        watch: Watch = lambda rows: None,
        listen: Listen = lambda event: None,
        metrics: Metrics | None = None,
    ) -> None:
        """`metrics`: where it counts, if anybody is to see that."""
        self.site = site
        self._metrics = metrics or Metrics()
        with contextlib.ExitStack() as opened:
            journal = Journal(site.run / "log.jsonl", listen)
            opened.callback(journal.close)
            self.followed_lists = FollowedLists(site, journal)
            self.followed_lists.look()
            go_back(site, self.followed_lists.epochs, journal)
            self.outcome = Outcome.load(site.run)
            """What the run came to, if it is over."""
            if self.outcome is not None and site.study.is_stray:  # who put that list there wants it played
                raise ExperimentError(stray_list(site.study))
            self._open(opened, journal, transport, watch)
            self._metrics.obstacle = self._obstacle
            self._opened = opened.pop_all()

    def _obstacle(self) -> str:
        """Why peers cannot work with this site; nothing if they can. One that pauses is there for them as ever."""
        if identity.days_left(self.site.certificate) < 0:
            return "the certificate has expired; make a new one: facade node rotate"
        try:
            if self.outcome is None:
                self.followed_lists.membership.refuse_expired()
        except ExperimentError as error:
            return str(error)
        return ""

    def _open(self, opened: contextlib.ExitStack, journal: Journal, transport: Transport, watch: Watch) -> None:
        """Make all parts; what must be closed is added to `opened`."""
        site, lists = self.site, self.followed_lists
        self._saved = saved = SiteCheckpoints(RunDirectory(site.run)).newest()
        first = saved.round if saved else lists.beginning
        self._joins = saved is None and first > 0
        if self.outcome is None:  # else there is nothing to play, and others may still need this site
            lists.refuse_expired(first)
        epoch = lists.enter(first)
        self.records = Records(journal, self._metrics, Ledger(saved.ledger if saved else None))
        self.shortages = Shortages(site.run, journal, self._metrics)
        opened.callback(self.shortages.close)
        window = epoch.membership.limits.window
        self.files = SiteFiles.open(site.run, window, self.shortages)
        self._compare_surroundings(saved, epoch)
        if self.outcome is None:
            self.files.go_back_to(saved)
        self._recall_progress()
        if saved is not None and saved.epoch != epoch.membership.epoch:
            self.files.outgoing.withdraw(first)
        lists.recall(range(max(0, first - window), first))
        self._meet(opened, epoch, first, transport, watch)

    def _meet(
        self, opened: contextlib.ExitStack, epoch: SiteEpoch, first: int, transport: Transport, watch: Watch
    ) -> None:
        """Make the parts that answer others and call them, from a first round on."""
        lists, files, records, limits = self.followed_lists, self.files, self.records, epoch.membership.limits
        presence = Presence()
        self.gate = gate = Gate(
            lists.epochs,
            files.outgoing,
            files.recovery,
            lists.entitled,
            epoch.plan.rounds,
            limits,
            records.journal,
            records.metrics,
            first - 1 if self._joins else first,  # one that joins is not there before the others are
            ignores=lists.ignored.has,
            presence=presence,
        )
        links = transport.links(limits.chunk, lambda peer: lists.epochs.certificates(peer, gate.round))
        self._links = UnignoredLinks(NotedLinks(links, presence), lists.ignored)
        opened.callback(self._links.close)
        self.policy = policy(epoch.membership.policy, limits, presence)
        self.publisher = Publisher(self.site, files, gate, records, self.shortages, watch)
        self.quorum = Quorum(lists, gate, presence, lambda: self._calls, records, self._write_pause)
        self.puller = Puller(self._links, records, files.recovery, lists.check_governing, self.quorum.hold)
        hearing = Hearing(self.puller, files, records.journal, self.policy)
        self._playing = Playing(
            lists, gate, self.publisher, hearing, self.quorum, self.policy, records.journal, self.shortages
        )
        self._probing = Probing(presence, lambda: self._calls, lambda: gate.round, self._watched)
        server = transport.serve(gate, lambda: lists.callers(gate.round))
        opened.callback(server.stop)

    def _recall_progress(self) -> None:
        """Show at once what the rows of earlier starts say."""
        progress, rows = self.records.progress, self.files.directory.rows
        progress.introduce(self.site)
        if rows.path.exists():
            progress.note_rows(rows)
        if self.outcome is not None:
            progress.finish()

    def _compare_surroundings(self, saved: SiteCheckpoint | None, epoch: SiteEpoch) -> None:
        """Warn of what is other than it was at the last checkpoint, or at the end; remember what it is now."""
        now = surroundings(self.site, epoch.membership)
        before = self.outcome or saved
        for sentence in changes(before.surroundings if before else {}, now):
            self.records.journal.write("changed", says=sentence)
            warnings.warn(sentence, stacklevel=2)
        self.files.checkpoints.surroundings = now

    def run(self, baseline: bool = False) -> Outcome:
        """Play all rounds, or what is left of them; then help the others to finish. With `baseline`, also train a
        model alone, to see what joining was worth."""
        if self.outcome is None:
            self.outcome = self._conclude(self._play())
        self.gate.finish()  # before the training alone, which the others need not wait for
        if self._site_file_lacks_something(baseline):
            epoch = self.followed_lists.in_force
            alone = training_alone.alone(epoch) if baseline else None
            facts = training_alone.facts(self.outcome, epoch, self.files.directory.rows, alone)
            self.shortages.outlast(lambda: write_site(self.site, facts))
        self._shutdown.say_farewell()
        self.files.recovery.note_left()
        return self.outcome

    def stay(self) -> NoReturn:
        """After the end, go on answering until a signal ends this process: for platforms that start again whatever
        ends. GoBackError where a list goes back."""
        lists = self.followed_lists
        self.records.journal.write("staying", peers=[])
        while not lists.epochs.going_back(lists.membership.epoch):
            self.gate.await_farewell(_PAUSE)
            lists.look()
        raise GoBackError

    def _play(self) -> Played:
        epoch, journal = self.followed_lists.in_force, self.records.journal
        learner, membership = epoch.setup.learner, epoch.membership
        who = {"id": self.site.settings.id, "federation": membership.federation}
        where = {"round": self.gate.round, "rounds": epoch.plan.rounds, "epoch": membership.epoch}
        journal.write("started", **who, **where, **environment(learner.threads, learner.executor.name))
        self.publisher.write_status(epoch, self.gate.round)
        start_up = StartUp(self._calls, self.gate, journal, self.followed_lists.look)
        try:
            with one_intra_op_thread(), self._probing.running():
                if self._joins:
                    start_up.await_first_round()
                elif self._saved is None or (membership.goes_back and self.gate.round == membership.first_round):
                    start_up.await_everybody()
                return self._playing.play(self._saved)
        except RemovedError:
            self._shutdown.leave_as_removed()
            raise

    def _conclude(self, played: Played) -> Outcome:
        """Write down what the run came to; the outcome last of all."""
        epoch = self.followed_lists.in_force
        self.publisher.write_rows(epoch, played.rows, played.state)
        outcome = Outcome.make(epoch.membership, epoch.setup, self.site.settings.id, played.state, self.records.ledger)
        outcome = dataclasses.replace(outcome, surroundings=self.files.checkpoints.surroundings)
        self.shortages.outlast(lambda: outcome.save(self.files.directory, played.state, epoch.setup))
        self.records.journal.write("finished", round=self.gate.round, sha256=outcome.state_sha256)
        self.records.progress.finish()
        self.publisher.write_status(epoch, self.gate.round)  # with what the final exchange brought
        return outcome

    def _site_file_lacks_something(self, baseline: bool) -> bool:
        """Whether site.json is missing, or lacks the training alone that is asked for now."""
        path = self.site.run / "site.json"
        return not path.exists() or (baseline and read_site(path).gain is None)

    def _watched(self) -> Set[str]:
        """Whose presence matters: everybody's where there is a quorum, else that of those who missed."""
        if self.quorum.is_asked_for:
            return {member.id for member in self.followed_lists.membership.members}
        return self.policy.missing

    def _write_pause(self, round: int, paused: dict[str, Any] | None) -> None:
        self.publisher.write_status(self.followed_lists.in_force, round, paused)

    @property
    def _calls(self) -> MemberCalls:
        """Calls to the members of the list in force."""
        lists = self.followed_lists
        return MemberCalls(self._links, lists.membership, self.site.settings.id, lists.ignored.has)

    @property
    def _shutdown(self) -> Shutdown:
        return Shutdown(self._calls, self.gate, self.records.journal, self.policy)

    def close(self) -> None:
        """Free the port; nothing is answered any more."""
        self._opened.close()


def run(
    home: str | Path,
    *,
    study: str = MAIN,
    baseline: bool = False,
    without_quorum: bool = False,
    stay: bool = False,
    shared_port: bool = False,
    watch: Watch = lambda rows: None,
    listen: Listen = lambda event: None,
    ask: Ask = cannot_ask,
) -> Outcome:
    """Run the site of a directory to the end of the experiment of one study, among peers that it reaches by gRPC;
    `without_quorum`: also where too few of them are there; `stay`: not end by itself; `ask` gives the passphrase of
    encrypted keys."""
    from facade.peers.protocol.rpc import Credentials, GrpcTransport

    raise_limit()
    keep_freed_chunks()
    site = Site.load(Path(home), ask, study)
    refuse_twin(site.home, site.study)
    with RunDirectory(site.run).claimed(), contextlib.closing(StudyMetrics(site.settings.metrics_address)) as metrics:
        own = Credentials(site.tls_key, site.certificate)
        absent = not_played(site.home, [site.study])
        transport = GrpcTransport(own, site.settings.listens_at, shared_port, absent)

        def opened() -> Node:
            node = Node(site, transport, watch, listen, metrics.of(study))
            node.quorum.waived = without_quorum
            return node

        return run_out(opened, baseline, stay)


def run_out(opened: Callable[[], Node], baseline: bool = False, stay: bool = False) -> Outcome:
    """Run a site to the end. Where a list goes back, the node is closed and opened again: it then begins there."""
    while True:
        node = opened()
        try:
            outcome = node.run(baseline)
            if stay:
                node.stay()
            return outcome
        except GoBackError:
            continue
        finally:
            node.close()
