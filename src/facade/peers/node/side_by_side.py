"""Several studies of one site, played side by side in one process, behind one port. Each has a thread, files and a gate
of its own; what ends one of them, well or not, does not end the others."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from facade.learning.machine import cores
from facade.peers.after.outcome import Outcome
from facade.peers.node.node import Listen, Node, run_out
from facade.peers.node.publishing import Watch
from facade.peers.node.study_metrics import StudyMetrics
from facade.peers.protocol.allocation import keep_freed_chunks
from facade.peers.protocol.descriptors import raise_limit
from facade.peers.protocol.transport import Transport
from facade.peers.trust.identity import Ask, cannot_ask
from facade.peers.trust.site import Settings, Site
from facade.peers.trust.studies import Study, newest_list, not_played, refuse_twin
from facade.runs.run_directory import RunDirectory


class Told(NamedTuple):
    """Who is told what happens in a study."""

    watch: Watch = lambda rows: None
    listen: Listen = lambda event: None


class Ended(NamedTuple):
    """How a study came to its end here."""

    study: Study
    outcome: Outcome | None = None
    """None: it has failed."""
    error: Exception | None = None


@dataclass(frozen=True)
class Asked:
    """What the operator wants of every study."""

    baseline: bool = False
    without_quorum: bool = False
    stay: bool = False
    """After the end of a study, answer on."""
    shared_port: bool = False
    """Whether others on this machine may hold the port as well."""


def run_side_by_side(
    home: Path,
    studies: Sequence[Study],
    asked: Asked,
    told: Callable[[Study], Told] = lambda study: Told(),
    ended: Callable[[Ended], None] = lambda end: None,
    ask: Ask = cannot_ask,
) -> list[Ended]:
    """Play studies of a site to their ends; `ended` is told of each at once, `ask` gives the passphrase of encrypted
    keys."""
    from facade.peers.protocol.rpc import Credentials, GrpcTransport

    raise_limit()
    keep_freed_chunks()
    settings = Settings.load(home)
    site = Site.load(home, ask)
    own, absent = Credentials(site.tls_key, site.certificate), not_played(home, studies)
    members = sum(newest.n for study in studies if (newest := newest_list(study)) is not None)
    transport = GrpcTransport(own, settings.listens_at, asked.shared_port, absent, members)
    with contextlib.ExitStack() as opened:
        metrics = StudyMetrics(settings.metrics_address)
        opened.callback(metrics.close)
        together = _SideBySide(site, settings, transport, metrics, asked, told, len(studies))
        opened.callback(together.close)
        return list(together.play(studies, ended))


class _SideBySide:
    """The studies of a process, and what they share."""

    def __init__(
        self,
        site: Site,
        settings: Settings,
        transport: Transport,
        metrics: StudyMetrics,
        asked: Asked,
        told: Callable[[Study], Told],
        count: int,
    ) -> None:
        self._site = site
        self._settings = settings
        """Those of the site, before what is said of single studies."""
        self._transport = transport
        self._metrics = metrics
        self._asked = asked
        self._told = told
        self._threads = max(1, (settings.threads or cores()) // count)
        """Of each study; so many studies share those of the site."""
        self._nodes: dict[str, Node] = {}
        self._ends: queue.SimpleQueue[Ended] = queue.SimpleQueue()

    def play(self, studies: Sequence[Study], ended: Callable[[Ended], None]) -> list[Ended]:
        """Play all of them; how they ended, in the order in which they did."""
        for study in studies:
            begun = threading.Event()
            body = functools.partial(self._play, study, begun)
            # Whoever is told to leave does not wait for a training under way, so these threads do not outlive the main
            # one.
            threading.Thread(target=body, name=study.name, daemon=True).start()
            begun.wait()  # one after the other: reading data takes memory
        ends = []
        for _ in studies:
            ends.append(self._ends.get())
            ended(ends[-1])
        return ends

    def _play(self, study: Study, begun: threading.Event) -> None:
        try:
            end = Ended(study, outcome=self._run(study, begun))
        except Exception as error:
            end = Ended(study, error=error)
        begun.set()
        self._ends.put(end)

    def _run(self, study: Study, begun: threading.Event) -> Outcome:
        refuse_twin(self._site.home, study)
        settings = self._settings.of_study(study.name).model_copy(update={"threads": self._threads})
        site, told = dataclasses.replace(self._site, study=study, settings=settings), self._told(study)

        def opened() -> Node:
            node = Node(site, self._transport, *told, self._metrics.of(study.name))
            node.quorum.waived = self._asked.without_quorum
            self._nodes[study.name] = node
            begun.set()
            return node

        with RunDirectory(site.run).claimed():
            try:
                return run_out(opened, self._asked.baseline, self._asked.stay)
            finally:
                self._nodes.pop(study.name, None)  # its data take memory

    def close(self) -> None:
        """Answer nobody any more. Of studies that are still played nothing is waited for: what is on disk is whole."""
        for node in list(self._nodes.values()):
            node.close()
