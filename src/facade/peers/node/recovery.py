"""What a restarted node must know beside its checkpoint: that its run has begun, which digests it has heard, whom it
has mixed, who said farewell. A small file of its own, so that the operator may rotate or delete the log."""

from __future__ import annotations

import json
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Any

from facade.errors import StorageError
from facade.files import store
from facade.files.shortage import shortage
from facade.peers.protocol.wire import Origin


class Recovery:
    """Facts are appended as they come. Whenever a round is committed, the file is replaced, in one step, by what
    is still needed: old rounds are dropped. Every line has a checksum."""

    def __init__(self, path: Path, outlast: Callable[[Callable[[], None]], None] = lambda act: act()) -> None:
        self._path = path
        self._outlast = outlast
        """Does something, if need be when there is room on the disk again."""
        self._lock = threading.Lock()
        """A late pull may end, and a peer may say farewell, while a round is committed."""
        self.begun = False
        """Whether the run's first round was committed."""
        self.left = False
        """Whether the node has finished its run and said farewell: nobody needs it any more."""
        self._digests: dict[Origin, str] = {}
        """The first digest accepted from each (list, sender, round); another one is an equivocation."""
        self._mixed: dict[tuple[bytes, int], list[int]] = {}
        """The numbers of those whom a (list, round) was mixed from."""
        self._farewells: frozenset[str] = frozenset()
        if path.exists():
            for fact in _facts(path):
                self._recall(*fact)
            self._rewrite()  # a line that a crash cut off must not be continued

    @property
    def farewells(self) -> Set[str]:
        """Members that need nothing more from this node."""
        return self._farewells

    def note_farewell(self, id: str) -> bool:
        """A member needs nothing more; whether that is new."""
        with self._lock:
            if id in self._farewells:
                return False
            self._farewells |= {id}
            try:
                self._append("farewell", id)
            except StorageError as error:  # whoever calls must not wait, and the next commit writes it anyway
                if shortage(error) is None:
                    raise
            return True

    def note_left(self) -> None:
        """This node has finished, and nobody needs it any more."""
        with self._lock:
            if not self.left:
                self.left = True
                self._outlast(lambda: self._append("left"))

    def first_digest(self, origin: Origin, digest: str) -> str:
        """The first digest that was ever accepted from an origin: this one, unless there is an earlier."""
        with self._lock:
            return self._digests.setdefault(origin, digest)

    def note_heard(self, origin: Origin) -> str:
        """Write down the digest of a message that is used, so that a restart cannot make another one the first."""
        with self._lock:
            digest = self._digests[origin]
            self._outlast(lambda: self._append(*_heard(origin, digest)))
            return digest

    def mixed(self, membership: bytes, round: int) -> list[int] | None:
        """Whom a round was mixed from by a list, if it was; members by number."""
        return self._mixed.get((membership, round))

    def note_mixed(self, membership: bytes, round: int, senders: list[int]) -> None:
        """A round was mixed from the messages of these members."""
        with self._lock:
            self._mixed[membership, round] = senders
            self._outlast(lambda: self._append("mixed", membership.hex(), round, senders))

    def commit(self, oldest: int) -> None:
        """Have everything on the disk that rounds from `oldest` on need; the run has begun."""
        with self._lock:
            self.begun = True
            self._digests = {origin: digest for origin, digest in self._digests.items() if origin.round >= oldest}
            self._mixed = {(own, round): who for (own, round), who in self._mixed.items() if round >= oldest}
            self._rewrite()

    def go_back(self, begun: bool) -> None:
        """The run goes back to an earlier round, by a list of its own, or to before it had begun: who said farewell
        needs this node again. What was heard and mixed counts for the lists that it was heard under."""
        with self._lock:
            self.begun, self.left = begun, False
            self._farewells = frozenset()
            self._rewrite()

    def digest(self, origin: Origin) -> str | None:
        """The digest accepted from an origin, if there is one."""
        return self._digests.get(origin)

    def _append(self, *fact: Any) -> None:
        store.append(self._path, _line(fact))

    def _rewrite(self) -> None:
        facts: list[tuple[Any, ...]] = [("begun",)] if self.begun else []
        facts += [("left",)] if self.left else []
        facts += [("farewell", id) for id in sorted(self._farewells)]
        facts += [("mixed", own.hex(), round, senders) for (own, round), senders in self._mixed.items()]
        facts += [_heard(origin, digest) for origin, digest in self._digests.items()]
        store.write(self._path, map(_line, facts), store.PRIVATE)

    def _recall(self, kind: str, *values: Any) -> None:
        if kind == "begun":
            self.begun = True
        elif kind == "left":
            self.left = True
        elif kind == "farewell":
            self._farewells |= {values[0]}
        elif kind == "mixed":
            self._mixed[bytes.fromhex(values[0]), values[1]] = values[2]
        elif kind == "heard":
            self._digests.setdefault(Origin(bytes.fromhex(values[0]), values[1], values[2]), values[3])


def has_left(path: Path) -> bool:
    """Whether the node whose file this is has finished, and nobody needs it any more; nothing is written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is read to be used elsewhere
        return path.exists() and ["left"] in _facts(path)


def _heard(origin: Origin, digest: str) -> tuple[Any, ...]:
    return "heard", origin.membership.hex(), origin.sender, origin.round, digest


def _line(fact: tuple[Any, ...]) -> bytes:
    body = json.dumps(fact, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _facts(path: Path) -> Iterator[list[Any]]:
    """What stands in a file. A warning names damaged lines; of the last, a crash may have left a part."""
    *lines, rest = path.read_bytes().split(b"\n")
    for number, line in enumerate([*lines, rest] if rest else lines, start=1):
        body = line[9:]
        if line[:9] == b"%08x " % zlib.crc32(body):
            yield json.loads(body)
        else:
            warnings.warn(f"{path} is cut off or damaged: line {number} is not used", stacklevel=3)
