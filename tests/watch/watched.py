"""What tests of the page share: a run that goes on round by round as they say, and a browser's end of the stream."""

import contextlib
import http.client
import json
import threading
import time

from facade import run
from facade.runtimes.recorder import Quiet
from facade.watch.places import Places
from facade.watch.serving import page_server, serving
from facade.watch.watching import Watching

PATIENCE = 60


class Paced(Quiet):
    """Lets a run go on to a round, and no further."""

    def __init__(self):
        self._allowed, self._changed = 0, threading.Condition()
        self.done = 0

    def round(self, done, rounds):
        with self._changed:
            self.done = done
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: done < self._allowed, PATIENCE)

    def go_to(self, round):
        """Have the rounds before it played, and wait until that is so."""
        with self._changed:
            self._allowed = round
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.done >= round, PATIENCE)

    def go_on(self):
        with self._changed:
            self._allowed = 1 << 30
            self._changed.notify_all()


@contextlib.contextmanager
def running(experiment, path, **options):
    """A run in a thread of its own, which waits to be told how far to go; it ends with the with-block."""
    paced = Paced()
    thread = threading.Thread(target=run, args=(experiment, path), kwargs={"progress": paced, **options})
    thread.start()
    try:
        yield paced
    finally:
        paced.go_on()
        thread.join()


@contextlib.contextmanager
def served(*paths, token="", listen="127.0.0.1:0"):
    """A server that watches these paths."""
    server = page_server(Watching(Places(list(paths))), listen, token)
    with serving(server):
        yield server


class Stream:
    """The stream as a browser gets it, and what it comes to."""

    def __init__(self, server, headers=None):
        self._connection = http.client.HTTPConnection("127.0.0.1", server.access.listen.port, timeout=PATIENCE)
        self._connection.request("GET", "/events", headers=headers or {})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        self.subjects, self.order, self.sizes, self.over = {}, [], [], False

    def next(self):
        """Take one event; its name."""
        lines = []
        while (line := self._answer.readline()) not in (b"\n", b""):
            lines.append(line.decode().rstrip("\n"))
        if not lines:
            return None
        name, data = (line.partition(": ")[2] for line in lines)
        if name == "state":
            self._take(json.loads(data))
            self.sizes.append(len(data))
        return name

    def _take(self, told):
        if told["whole"]:
            self.subjects = {}
        self.order = told["order"]
        for id, sections in told["subjects"].items():
            kept = self.subjects.setdefault(id, {})
            kept |= sections
            self.subjects[id] = {name: section for name, section in kept.items() if section is not None}

    def until(self, condition):
        """Take events until a condition on this stream holds; the value that it gives."""
        deadline = time.monotonic() + PATIENCE
        while not (value := condition(self)):
            assert time.monotonic() < deadline, [self.order, *(of.get("progress") for of in self.subjects.values())]
            assert self.next() is not None, "the stream has ended"
        return value

    def only(self):
        """The one that is watched."""
        return self.subjects[self.order[0]] if self.order and self.order[0] in self.subjects else {}

    def until_round(self, round):
        """Wait until the one that is watched has done so many rounds."""
        self.until(lambda stream: stream.only().get("progress", {}).get("done", -1) >= round)
        return self.only()

    def close(self):
        self._connection.close()


def everything_below(path):
    """Every file below a directory: its bytes and its times."""
    found = {}
    for file in sorted(path.rglob("*")):
        status = file.stat()
        found[file] = status.st_mtime_ns, status.st_mode, file.read_bytes() if file.is_file() else None
    return found
