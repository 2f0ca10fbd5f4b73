"""Runs to report on, and a browser to open the page with."""

import html
import json
import re
import shutil
import subprocess
from typing import NamedTuple

import pytest

from facade.report import facts
from facade.runs.history import load_all
from handmade import write_run

BARE = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--enable-logging=stderr", "--virtual-time-budget=60000",
)  # fmt: skip

# What the page says of itself once it stands: how many charts were drawn, how wide it is, what it fetched.
PROBE = """<script>
addEventListener("load", () => { const look = () => {
  const all = document.documentElement;
  if (!all.dataset.drawn) { setTimeout(look, 50); return; }
  const charts = [...document.querySelectorAll(".chart")];
  const marks = charts.map(c => c.querySelectorAll("svg path, svg line, svg rect").length);
  const fetched = performance.getEntriesByType("resource").map(e => e.name);
  const seen = { drawn: Number(all.dataset.drawn), marks, fetched, scroll: all.scrollWidth, width: innerWidth,
    lines: document.querySelectorAll("#numbers tbody tr").length,
    sideways: Math.max(...[...document.querySelectorAll(".wide")].map(e => e.scrollWidth - e.clientWidth)),
    ground: getComputedStyle(document.body).backgroundColor,
    hostile: "hostile" in window, text: document.body.innerText };
  parent.postMessage(JSON.stringify(seen), "*");
}; look(); });
</script>"""

# A frame has the width that is asked for; windows of a headless browser are never narrower than 500.
FRAME = """<!doctype html><link rel="icon" href="data:,"><script>
addEventListener("message", (event) => { document.documentElement.dataset.seen = event.data; });
</script><iframe src="probed.html" style="border: 0; width: %dpx; height: 2000px"></iframe>"""


class Opened(NamedTuple):
    """What a browser showed."""

    seen: dict
    console: list


@pytest.fixture
def browser(tmp_path):
    """Opens a page in headless Chromium, 390 or more pixels wide, light or dark."""
    binary = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if binary is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium)")

    def open_page(page, width=1200, dark=False):
        probed = tmp_path / "probed.html"
        probed.write_text(page.read_text().replace("<head>", f"<head>{PROBE}", 1))
        frame = tmp_path / "frame.html"
        frame.write_text(FRAME % width)
        look = ["--blink-settings=preferredColorScheme=0"] if dark else []
        profile = tmp_path / f"profile-{width}-{dark}"
        command = [binary, *BARE, *look, f"--user-data-dir={profile}", "--window-size=1400,2000", "--dump-dom"]
        ended = subprocess.run([*command, frame.as_uri()], capture_output=True, text=True, timeout=300, check=False)
        seen = re.search(r'data-seen="([^"]*)"', ended.stdout)
        assert seen, f"the page was never drawn: {ended.stderr[-2000:]}"
        console = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
        return Opened(json.loads(html.unescape(seen[1])), console)

    return open_page


def write_large_run(path, algorithm, nodes, rounds, minority):
    """A finished run of many nodes, written by hand: heads settle after round 50, answers get better and worse."""
    cluster = [0] * (nodes - minority) + [1] * minority
    restless = [[(node * 7 + round) % 2 for node in range(nodes)] for round in (0, 1)]
    heard_and_chosen = [
        (1000, None if algorithm != "facade" else cluster if round > 50 else restless[round % 2])
        for round in range(1, rounds + 1)
    ]
    worst = 5 if algorithm == "facade" else 3
    evaluations = {
        round: [(node + round // 20) % 5 + worst for node in range(nodes)] for round in range(20, rounds + 1, 20)
    }
    settings = (f"data.clusters={nodes - minority}:{minority}", f"algorithm.name={algorithm}")
    return write_run(path, heard_and_chosen, evaluations, evaluations[rounds], *settings, cluster=cluster)


def two_rounds(path, right, *settings, choices=None):
    """Four nodes, the last one the minority; `right` answers of ten in the end."""
    rounds = [(1000, choices), (1000, choices)]
    return write_run(path, rounds, {2: right}, right, *settings)


def of(*paths):
    (comparison,) = facts.comparisons(load_all(paths))
    return comparison
