"""Sites in one process, without sockets, gRPC or TLS: calls go from gate to gate in memory. The bytes of requests and
replies, and all checks but those of TLS itself, are the same as between real sites."""

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from facade.peers.node.node import Node
from facade.peers.protocol.headers import Reply
from facade.peers.protocol.refusals import RefusedError
from facade.peers.protocol.study_gates import StudyGates
from facade.peers.protocol.transport import UnreachableError
from facade.peers.trust import identity
from facade.peers.trust.site import Site


class MemoryNetwork:
    """The gates of the sites that can be called, by id, and the certificates that they show."""

    def __init__(self):
        self.gates = {}
        self._sides, self._from_round = [], 0

    def part(self, *sides, from_round=0):
        """From now on, calls about this round and later ones get from no side to another."""
        self._sides, self._from_round = [set(side) for side in sides], from_round

    def heal(self):
        """Calls get everywhere again."""
        self._sides = []

    def is_cut(self, caller, callee, round):
        """Whether a call does not get through."""
        together = any({caller, callee} <= side for side in self._sides)
        return bool(self._sides) and not together and round >= self._from_round

    def node(self, home):
        """The site of a directory, open to calls."""
        site = Site.load(home)
        return Node(site, _MemoryTransport(self, site))


@dataclass(frozen=True)
class _MemoryTransport:
    network: MemoryNetwork
    site: Site

    def links(self, largest_chunk, certificates):
        return _MemoryLinks(self.network, self.site, largest_chunk, certificates)

    def serve(self, gate, callers):
        id = self.site.settings.id
        gates = StudyGates()
        gates.add(gate, callers)
        self.network.gates[id] = gates, self.site.certificate.decode()
        return _MemoryServer(self.network, id)


@dataclass(frozen=True)
class _MemoryServer:
    network: MemoryNetwork
    id: str

    def stop(self):
        self.network.gates.pop(self.id, None)


@dataclass(frozen=True)
class _MemoryLinks:
    network: MemoryNetwork
    own: Site
    largest_chunk: int
    certificates: object

    def to(self, peer):
        return _MemoryLink(self, peer.id)

    def close(self):
        pass


@dataclass(frozen=True)
class _MemoryLink:
    links: _MemoryLinks
    id: str

    def call(self, request, seconds):
        network, own = self.links.network, self.links.own
        gates, shown = network.gates.get(self.id, (None, ""))
        cut = network.is_cut(own.settings.id, self.id, request.round)
        if cut or gates is None or shown not in self.links.certificates(self.id):
            raise UnreachableError("UNAVAILABLE")
        try:
            caller = gates.admit(identity.fingerprint(own.certificate))
        except RefusedError as refusal:
            raise UnreachableError(f"PERMISSION_DENIED: {refusal.reason.word}", denied=True) from None
        if not gates.take_place(caller):
            return Reply.parse(gates.refuse_busy(caller).packed())
        try:
            reply = Reply.parse(gates.answer(caller, request.packed()).packed())
        finally:
            gates.free_place(caller)
        assert len(reply.chunk) <= self.links.largest_chunk
        return reply


class KilledError(Exception):
    """The end of a process."""


def kill_in_round(node, round):
    """A node is no more when it would hear the others in a round: what it has written by then is what is left."""
    pull = node.puller.pull

    def killed(membership, own, demand):
        if demand.round == round:
            raise KilledError
        return pull(membership, own, demand)

    node.puller.pull = killed


@contextmanager
def opened(homes, network=None):
    """The nodes of several sites, connected in memory, by id."""
    network = network or MemoryNetwork()
    with ExitStack() as stack:
        nodes = {}
        for home in homes:
            nodes[home.name] = network.node(home)
            stack.callback(nodes[home.name].close)
        yield nodes


def run_all(nodes):
    """Run nodes side by side to their ends, each in a thread of its own; what each came to, by id: an outcome, or the
    error that it ended with."""
    ends = {id: run_aside(node) for id, node in nodes.items()}
    return {id: end() for id, end in ends.items()}


def run_aside(node):
    """Run a node in a thread; a function that waits for its end and gives what it came to."""
    ends = []

    def body():
        try:
            ends.append(node.run())
        except Exception as error:
            ends.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()

    def end():
        thread.join(120)
        assert ends, "the site did not end within two minutes"
        return ends[0]

    return end
