"""A headless Chromium that a test drives through a pipe: pages stay open, and are asked what they show."""

import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time

import pytest

BARE = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60
# The browser is told what to do through the files numbered 3 and 4.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def binary():
    """The browser's path; the test is left out where there is none."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    path = next((path for path in found if path), None)
    if path is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium)")
    return path


class Browser:
    """One browser with one page."""

    def __init__(self, read, write):
        self._read, self._write, self._left = read, write, b""
        self._numbers = itertools.count(1)
        self.problems = []
        """What the page has complained of: exceptions, refused requests, messages on the console."""
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """What the browser answers."""
        number = next(self._numbers)
        asked = {"id": number, "method": method, "params": parameters}
        asked |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _next(self):
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._read], [], [], PATIENCE)
            assert ready, "the browser says nothing any more"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has gone"
            self._left += part
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)

    def _note(self, message):
        name, facts = message.get("method"), message.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.problems.append(facts["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif name == "Log.entryAdded":
            self.problems.append(facts["entry"]["text"])
        elif name == "Runtime.consoleAPICalled":
            self.problems.append(str(facts["args"]))

    def look(self, width=1280, height=900, dark=False):
        """How wide the page is, and whether it is dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url):
        self.call("Page.navigate", url=url)

    def ask(self, expression):
        """The value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def until(self, expression):
        """Wait until an expression is true, and return it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            value = self.ask(expression)
            if value:
                return value
            assert time.monotonic() < deadline, (
                f"never true: {expression}; the page: {self.ask('document.body.innerText')}"
            )
            time.sleep(0.05)

    def picture(self):
        """A PNG of the whole page, base64."""
        return self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]


@contextlib.contextmanager
def chromium(profile):
    """A browser with a profile of its own."""
    (child_reads, write), (read, child_writes) = os.pipe(), os.pipe()
    launcher = [sys.executable, "-c", LAUNCH, str(child_reads), str(child_writes)]
    process = subprocess.Popen(
        [*launcher, binary(), *BARE, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(child_reads, child_writes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(child_reads)
    os.close(child_writes)
    try:
        yield Browser(read, write)
    finally:
        process.terminate()
        process.wait()
        os.close(read)
        os.close(write)
