"""The page of real peers' site.json files."""

import json
import re

from facade.peers.local_network import founded
from peers.makers import QUICK, tiny
from peers.memory import opened, run_all


def test_network_report_writes_a_page_that_says_what_the_table_says(tmp_path, command):
    rounds = ('data.clusters="2:1"', "topology.degree=2", "training.rounds=2", "evaluation.every=2", "training.steps=1")
    with founded(tiny(*rounds), tmp_path / "net", "patient", QUICK) as made:
        with opened(made.homes) as nodes:
            run_all(nodes)
        files = [home / "run" / "site.json" for home in made.homes]
        vouched = "--membership", made.homes[0] / "membership.json"
        printed = command("network", "report", *files, *vouched, "--out", tmp_path / "page.html").out
        assert command("report", *files[:2], "--out", tmp_path / "two.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "3 signed site.json files, of members of the list that was given." in page
    (mean,) = re.findall(r"mean [\d.]+ %, worst site [\d.]+ %, spread [\d.]+ points", printed)
    assert f"<li>{mean}</li>" in page
    rows = {row[0]: row[1:] for row in (re.findall("<td[^>]*>([^<]*)</td>", line) for line in page.splitlines()) if row}
    for line in printed.splitlines():
        if re.match(r"n\d ", line):
            assert rows[line.split()[0]][:8] == line.split()[1:9]
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page)[1])
    assert [sorted(row["site"] for row in spec["data"]["values"]) for spec in specs] == [["n0", "n1", "n2"]]
    two = (tmp_path / "two.html").read_text()
    assert "<li>without n2, whose files are not among these</li>" in two
    assert "no list was given to check them by" in two
