"""Small federations, and the bodies of site processes that misbehave on purpose."""

import dataclasses
import os
import socket
import sys
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from facade import Experiment
from facade.data.sources import SOURCES
from facade.peers.after.audit import audit
from facade.peers.local_network import site_process
from facade.peers.node.journal import Journal, Metrics, lines
from facade.peers.node.node import Node
from facade.peers.node.outgoing import Outgoing
from facade.peers.node.recovery import Recovery
from facade.peers.protocol.gate import Gate
from facade.peers.protocol.rpc import Credentials, GrpcTransport
from facade.peers.protocol.study_gates import StudyGates
from facade.peers.trust import identity
from facade.peers.trust.founding import NewSite, Terms, found_federation, found_site
from facade.peers.trust.identity import Join
from facade.peers.trust.membership import Epochs, Limits, Membership, Schema
from facade.peers.trust.site import Site
from results.killing import Lines

TINY = {
    "name": "tiny",
    "data": {"source": "digits", "clusters": "6:2"},
    "algorithm": {"name": "facade", "warmup": 1, "seeding": "none"},
    "training": {"rounds": 5, "steps": 2},
    "evaluation": {"every": 5},
    "runtime": {"threads": 1},
}
QUICK = Limits(deadline=90, linger=4)
SCHEMA = Schema(classes=["0", "1"], shape=[1, 8, 8], mean=[0.5], std=[0.5])


def tiny(*settings):
    return Experiment.of(TINY, settings)


@dataclass
class Federation:
    """Keys and a list for sites a, b, c, ... with nothing running."""

    base: Path
    admin: Path
    membership: Membership

    def home(self, id):
        return self.base / id

    def key(self, id):
        return (self.home(id) / identity.TLS_KEY).read_bytes()

    def certificate(self, id):
        return (self.home(id) / identity.CERTIFICATE).read_bytes()

    def join(self, id):
        return Join.load(self.home(id) / f"{id}.join")


def federation(base, ids="abc", experiment=(), **terms):
    admin = base / "admin.key"
    public = identity.new_signing_key(admin)
    joins = [
        Join.load(found_site(base / id, NewSite(id, f"127.0.0.1:{7000 + i}", [public]))) for i, id in enumerate(ids)
    ]
    shape = ("data.source=given", f'data.clusters="{len(ids)}"', "topology.degree=2", "data.skew=none")
    given = tiny(*shape, *experiment)
    made = found_federation(joins, given, Terms("test", [public], schema=SCHEMA, **terms))
    for id in ids:
        (base / id / "membership.json").write_text(made.sign([admin]))
    return Federation(base, admin, made)


def gate(made, path, message=b"x" * 1000, last_round=10):
    """Site a's gate, with one published message of round 0; everybody is entitled but c."""
    outgoing = Outgoing(path / "outgoing", 8)
    outgoing.commit(0, [message])
    epochs = Epochs([made.membership])
    return Gate(
        epochs,
        outgoing,
        Recovery(path / "recovery.jsonl"),
        lambda _, caller: caller != 2,
        last_round,
        Limits(),
        Journal(path / "log.jsonl"),
        Metrics(),
    )


def together(*gates):
    """Studies of one site, each (gate, members that may call)."""
    opened = StudyGates()
    for gate, callers in gates:
        opened.add(gate, callers)
    return opened


def real_node(home):
    """The site of a directory, with real connections; other sites may share its port."""
    site = Site.load(home)
    own = Credentials(site.tls_key, site.certificate)
    return Node(site, GrpcTransport(own, site.settings.address, shared_port=True))


KILLED_FILES = (
    "files/store.py", "node/node.py", "node/playing.py", "node/publishing.py", "node/hearing.py", "node/pulling.py",
    "node/round_pulls.py", "node/quorum.py", "node/checkpoints.py", "node/outgoing.py", "node/recovery.py",
    "node/site_files.py", "node/start_up.py", "node/followed_lists.py", "node/site_epoch.py", "node/shutdown.py",
    "protocol/wire.py", "protocol/incoming.py",
)  # fmt: skip


def dies_at_line(home, events, last):
    """A site that is no more when its main thread has executed so many lines of the runtime."""
    sys.settrace(Lines(KILLED_FILES, last).trace)
    site_process(home, events)


def after_training(then):
    """From now on, this process calls `then` with the round after every training."""
    from facade.learning.learner import Learner

    fit = Learner.fit

    def followed(self, params, memory, samples, only=None):
        made = fit(self, params, memory, samples, only)
        then(samples.round)
        return made

    Learner.fit = followed


def slow(home, events, others):
    """A site that has always trained only when all the others are a round further, or have finished."""

    def is_further(other, round):
        finished = (other / "run" / "outcome.json").exists()
        return finished or any(event["round"] > round for event in logged(other, "committed"))

    def lag(round):
        while not all(is_further(Path(other), round) for other in others):
            threading.Event().wait(0.05)

    after_training(lag)
    site_process(home, events)


def pauses(home, events, rounds):
    """A site that has trained in each of some rounds only when the file `go-<round>` is beside its node.toml."""

    def pause(round):
        if round in rounds:
            (Path(home) / f"waits-{round}").touch()
            while not (Path(home) / f"go-{round}").exists():
                threading.Event().wait(0.05)

    after_training(pause)
    site_process(home, events)


def logged(home, event):
    """The lines about an event in a site's log."""
    return [line for line in lines(home / "run" / "log.jsonl") if line["event"] == event]


def audited(homes, *lists):
    """What does not fit among the sites' logs."""
    return audit([home / "run" / "log.jsonl" for home in homes], lists or [homes[0] / "membership.json"]).findings


@contextmanager
def kept_ports(count):
    """Ports of this machine that nobody else gets meanwhile; nobody listens there but sites that share them."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for kept in sockets:
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            kept.bind(("127.0.0.1", 0))
        yield [kept.getsockname()[1] for kept in sockets]


def until(condition):
    """Wait for something that other processes do."""
    for _ in range(1200):
        if condition():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it did not happen within a minute")


def leaves_on_sigterm(home, events):
    """A site as `facade node up` runs it."""
    from facade.errors import FacadeError
    from facade.peers.node.shutdown import leaving_on_signals

    try:
        with leaving_on_signals():
            site_process(home, events)
    except FacadeError as error:
        raise SystemExit(error.exit_code) from None


def stays(home, events):
    """A site that never ends and says nothing."""
    threading.Event().wait()


def vanishes(home, events):
    """A site that ends without a word."""
    os._exit(7)


class Masked(torch.nn.Module):
    """A model with a buffer that no peer would accept."""

    def __init__(self, shape, classes):
        super().__init__()
        self.fc = torch.nn.Linear(64, classes)
        self.register_buffer("mask", torch.tensor([-torch.inf]))

    def forward(self, x):
        return self.fc(x.flatten(1))


class Unmakeable(torch.nn.Module):
    """A model whose constructor fails."""

    def __init__(self, *_, **__):
        raise KeyError("absent")


LOADED = []
"""A mark for every time that `counted_digits` was loaded."""


def counted_digits(data):
    """A data set of a site's own."""
    LOADED.append(data)
    return SOURCES["digits"](data)


def two_digits(data):
    """The zeros and ones among the digits: what SCHEMA describes."""
    whole = SOURCES["digits"](data)
    parts = [part[part.y < 2] for part in (whole.train, whole.test)]
    return dataclasses.replace(whole, train=parts[0], test=parts[1], classes=whole.classes[:2])
