"""A whole network of real processes on this machine: keys, certificates, a signed list, N sites, and
at the end one run directory as the simulator writes it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import multiprocessing.connection
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from facade.core.types import Row
from facade.errors import FacadeError, StoppedError
from facade.experiment.config import Experiment
from facade.files import store
from facade.peers.after.outcome import Outcome, deployed_model
from facade.peers.trust import identity
from facade.peers.trust.founding import NewSite, Terms, found_federation, found_site
from facade.peers.trust.identity import Join
from facade.peers.trust.membership import Limits
from facade.peers.trust.site import ALLOWS_ATTACK, foreign_names
from facade.runs import state_files
from facade.runs.result import Result
from facade.runs.rows import in_order
from facade.runs.run_directory import RunDirectory
from facade.runs.stop_signals import StopSignals
from facade.runtimes.recorder import FinalState, Progress, Recorder, record

PRELOADED = [
    "facade.peers.node.node",
    "safetensors.torch",
    "sklearn.datasets",
    "prometheus_client",
    "cryptography.x509",
]
"""What the fork server loads once, so that a node starts in a moment."""


@dataclass(frozen=True)
class Founded:
    """The sites of a local network."""

    homes: list[Path]
    ports: list[socket.socket] = field(repr=False)
    """Bound, never listening: they keep the sites' ports free for them."""


@contextlib.contextmanager
def founded(experiment: Experiment, base: Path, policy: str, limits: Limits) -> Iterator[Founded]:
    """A federation of sites below `base`, each with its share of the experiment's data."""
    with store.writing(base):
        store.make_directory(base)
    admin = identity.new_signing_key(base / "admin.key")
    width = len(str(experiment.n - 1))
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(_reserved()) for _ in range(experiment.n)]
        homes, joins = [], []
        for number, port in enumerate(ports):
            id = f"n{number:0{width}d}"
            # Everything here belongs to one person, who wrote the experiment: all that it asks for is allowed.
            names = {text for _, text in foreign_names(experiment.model_dump())}
            allow = [*sorted(names), ALLOWS_ATTACK]
            data = {"source": "experiment", "root": experiment.data.root, "path": experiment.data.path}
            settings = {"data": data, "allow": allow}
            new = NewSite(id, f"127.0.0.1:{port.getsockname()[1]}", [admin], settings)
            joins.append(Join.load(found_site(base / id, new)))
            homes.append(base / id)
        terms = Terms(experiment.name, [admin], policy, limits)
        signed = found_federation(joins, experiment, terms).sign([base / "admin.key"])
        for home in [base, *homes]:
            store.replace(home / "membership.json", signed.encode(), store.PRIVATE)
        yield Founded(homes, ports)


@contextlib.contextmanager
def _reserved() -> Iterator[socket.socket]:
    """A free port, kept while others may share it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder


def site_process(home: str, events: Any) -> None:
    """The body of a site's process: rows, and then how it ended, as JSON lines through a pipe."""
    from facade.peers.node.node import run

    def tell(event: Row) -> None:
        with contextlib.suppress(OSError):  # nobody may be watching any more
            events.send_bytes(json.dumps(event).encode())

    try:
        run(home, shared_port=True, watch=lambda rows: tell({"rows": rows}))
    except FacadeError as error:
        tell({"failed": str(error)})
        raise SystemExit(error.exit_code) from None


class Processes:
    """The sites' processes; none outlives the with-block."""

    def __init__(self, homes: Sequence[Path]) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self.homes = list(homes)
        self.running: dict[Path, Any] = {}
        self.pipes: dict[multiprocessing.connection.Connection, tuple[Path, Any]] = {}

    def start(self, home: Path, body: Any = site_process, *more: Any) -> Any:
        """Start, or start again, one site."""
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=body, args=(str(home), sender, *more), daemon=True)
        process.start()
        sender.close()
        self.running[home] = process
        self.pipes[receiver] = home, process
        return process

    def __enter__(self) -> Processes:
        for home in self.homes:
            self.start(home)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.join(15)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in list(self.pipes):
            pipe.close()

    def events(self) -> Iterator[tuple[Path, Row]]:
        """What the sites tell, until all have ended; of each, the last event says with which exit code."""
        while self.pipes:
            for ready in multiprocessing.connection.wait(list(self.pipes)):
                pipe = next(pipe for pipe in self.pipes if pipe is ready)
                home, process = self.pipes[pipe]
                try:
                    event = json.loads(pipe.recv_bytes())
                except (EOFError, OSError):
                    self.pipes.pop(pipe)
                    pipe.close()
                    process.join()
                    event = {"ended": process.exitcode}
                yield home, event


def run(
    experiment: Experiment,
    out: Path,
    *,
    policy: str = "patient",
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run an experiment with one process per node, and write a run directory as the simulator does;
    the sites' own directories are below its `sites`."""
    terms = policy, limits or Limits(linger=10)

    def compute(recorder: Recorder) -> Result:
        n = recorder.setup.federation.n  # which an experiment may leave to its data
        for_sites = experiment if experiment.n else experiment.with_(f"data.clusters={n}")
        with founded(for_sites, out / "sites", *terms) as sites:
            recorder.start(threads=1)
            with Processes(sites.homes) as processes:
                _follow(processes, recorder)
            return _finished(sites.homes, recorder)

    with StopSignals().listening(_stop) as signals:
        return record(experiment, out, lambda setup: compute, progress=progress, stop_signals=signals)


def _stop(number: int) -> None:
    """At once, so that no site is left running."""
    raise StoppedError("stopped, with all sites; a local network is not continued: start another one", number)


def _follow(processes: Processes, recorder: Recorder) -> None:
    """Show the network's progress until every site has ended; FacadeError if one failed."""
    waiting: dict[tuple[int, str], list[list[Row]]] = {}
    for home, event in processes.events():
        if "failed" in event:
            raise FacadeError(f"site {home.name} stopped: {event['failed']}")
        if event.get("ended"):
            raise FacadeError(f"site {home.name} ended with code {event['ended']}; see {home}/run/log.jsonl")
        if rows := event.get("rows"):
            moment = rows[-1]["round"], rows[-1]["kind"]
            waiting.setdefault(moment, []).append(rows)
            if len(waiting[moment]) == len(processes.homes):
                recorder.show(in_order([row for rows in waiting.pop(moment) for row in rows]))


def _finished(homes: list[Path], recorder: Recorder) -> Result:
    """The sites' rows, models and hashes as one run."""
    import torch

    recorder.keep(in_order([row for home in homes for row in RunDirectory(home / "run").rows]))
    each = [deployed_model(home / "run") for home in homes]
    models = {name: torch.cat([model[name] for model in each]) for name in sorted(each[0])}
    outcomes = [outcome for home in homes if (outcome := Outcome.load(home / "run")) is not None]
    final = FinalState(
        state_files.in_one_piece(models),
        [outcome.model_sha256 for outcome in outcomes],
        [outcome.state_sha256 for outcome in outcomes],
    )
    ledger = {outcome.id: outcome.ledger for outcome in outcomes}
    return recorder.finish(final, {"policy": outcomes[0].policy, "ledger": ledger})
