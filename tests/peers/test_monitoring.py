"""What a site tells those who watch over it: metrics, probes, status, and a log that is rotated."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

import facade
from facade.errors import ExperimentError
from facade.peers.local_network import founded
from facade.peers.node import node as site_node
from facade.peers.node.journal import Journal, Metrics, lines
from facade.peers.node.metrics_server import MetricsServer
from facade.peers.node.study_metrics import StudyMetrics
from facade.peers.protocol.refusals import Reason
from facade.peers.trust.founding import NewSite, found_site
from facade.peers.trust.membership import PROTOCOL
from facade.peers.trust.site import Settings
from peers.makers import QUICK, federation, tiny
from peers.memory import opened, run_all


def fetched(address, path):
    """(status, text) of what a page says."""
    try:
        with urllib.request.urlopen(f"http://{address[0]}:{address[1]}{path}") as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def numbers(text):
    """The metrics of a site's only study on a page, by name and labels."""
    text = re.sub(r',?study="main"', "", text).replace("{,", "{").replace("{}", "")
    rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


@pytest.fixture
def served():
    """Metrics, where they are served, and what stands in the way of being ready."""
    metrics, said = Metrics(), ["starting"]
    server = MetricsServer(("127.0.0.1", 0), metrics.registry, lambda: said[0])
    yield metrics, server.address, said
    server.close()


def test_metrics_and_probes_are_on_one_address(served):
    metrics, address, said = served
    metrics.rejected.labels(Reason.NOT_FINITE.word).inc()
    for path in ("/metrics", "/"):
        assert 'facade_rejected_total{reason="not-finite"} 1.0' in fetched(address, path)[1]
    assert fetched(address, "/healthz") == (200, "ok\n")
    assert fetched(address, "/readyz") == (503, "starting\n")
    said[0] = ""
    assert fetched(address, "/readyz") == (200, "ok\n")


def test_the_metrics_of_all_studies_are_on_one_page_and_one_that_is_ready_is_enough():
    with contextlib.closing(StudyMetrics(("127.0.0.1", 0))) as studies:
        assert fetched(studies.address, "/readyz") == (503, "starting\n")
        main, lungs = studies.of("main"), studies.of("lungs")
        main.rejected.labels(Reason.NOT_FINITE.word).inc()
        lungs.round.set(3)
        text = fetched(studies.address, "/metrics")[1]
        assert 'facade_rejected_total{reason="not-finite",study="main"} 1.0' in text
        assert [line for line in text.splitlines() if "facade_round " in line or "facade_round{" in line] == [
            "# HELP facade_round Round this node is in",
            "# TYPE facade_round gauge",
            'facade_round{study="lungs"} 3.0',
            'facade_round{study="main"} 0.0',
        ]
        assert fetched(studies.address, "/readyz") == (503, "lungs: starting; main: starting\n")
        lungs.obstacle = str
        assert fetched(studies.address, "/readyz") == (200, "ok\n")


def test_a_caller_that_says_nothing_keeps_no_probe_waiting(served):
    with socket.create_connection(served[1]):
        assert fetched(served[1], "/healthz") == (200, "ok\n")


def test_an_address_that_is_taken_is_named(served):
    with pytest.raises(ExperimentError, match=rf"127.0.0.1:{served[1][1]} \(.*in use\); choose another metrics_listen"):
        MetricsServer(served[1], Metrics().registry, str)


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("", None),
        ("metrics_port = 9100", ("127.0.0.1", 9100)),
        ('metrics_listen = "0.0.0.0:9100"', ("0.0.0.0", 9100)),
        ('metrics_listen = "[::1]:9100"', ("::1", 9100)),
    ],
)
def test_node_toml_says_where_metrics_are(written, address, tmp_path):
    assert settings(tmp_path, written).metrics_address == address


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ('metrics_listen = "9100"', "metrics_listen 9100 is not possible; expected host:port"),
        ('metrics_listen = "127.0.0.1:9100"\nmetrics_port = 9100', "metrics_listen and metrics_port both say"),
    ],
)
def test_an_address_that_is_none_or_two_is_refused(written, complaint, tmp_path):
    with pytest.raises(ExperimentError, match=complaint):
        settings(tmp_path, written)


def settings(path, written):
    found_site(path / "a", NewSite("a", "h:1", ["5f" * 32]))
    (path / "a" / "node.toml").write_text(f"{written}\n{(path / 'a' / 'node.toml').read_text()}")
    return Settings.load(path / "a")


@pytest.fixture
def three(tmp_path, monkeypatch):
    """The directories of three sites in memory, and the servers of the metrics of those that are opened."""
    servers = []

    def served():
        servers.append(StudyMetrics(("127.0.0.1", 0)))
        return servers[-1].of("main")

    monkeypatch.setattr(site_node, "Metrics", served)
    rounds = ('data.clusters="2:1"', "topology.degree=2", "training.rounds=6", "evaluation.every=3", "training.steps=1")
    with founded(tiny(*rounds), tmp_path, "patient", QUICK) as made:
        yield made.homes, servers
    for shown in servers:
        shown.close()


def test_metrics_and_status_tell_rounds_accuracy_time_left_and_who_was_missed(three, command):
    homes, servers = three
    with opened(homes) as nodes:
        node = nodes["n0"]
        assert fetched(servers[0].address, "/readyz") == (200, "ok\n")
        shown = numbers(fetched(servers[0].address, "/metrics")[1])
        assert shown["facade_accuracy"] != shown["facade_accuracy"]  # not a number: nothing is known yet
        assert shown[f'facade_site_info{{id="n0",protocol="{PROTOCOL}",version="{facade.__version__}"}}'] == 1
        run_all(nodes)
        node.records.progress.note_exchange({"n1"}, {"n2"})
        node.publisher.write_status(node.followed_lists.in_force, 6)
        shown = numbers(fetched(servers[0].address, "/metrics")[1])
    said = json.loads(command("node", "status", "--home", homes[0], "--json").out)
    assert (said["round"], said["rounds"], said["evaluated"], said["missed"]) == (6, 6, 6, ["n2"])
    assert said["version"] == facade.__version__
    assert said["accuracy"] == shown["facade_accuracy"] > 0.05
    assert (shown["facade_round"], shown["facade_rounds"], shown["facade_finished"]) == (6, 6, 1)
    assert shown["facade_seconds_left"] == said["seconds_left"] == 0
    assert shown['facade_peer_missed_total{peer="n2"}'] == 1
    assert shown['facade_peer_missed_total{peer="n1"}'] == 0
    assert shown['facade_peer_heard_total{peer="n1"}'] >= 6
    text = command("node", "status", "--home", homes[0]).out
    assert f"accuracy {said['accuracy']:.1%} after round 6, on this site's test data" in text
    assert "missed in the last round: n2" in text


def test_the_time_left_is_the_pace_of_the_last_rounds(three, command, monkeypatch):
    homes, _ = three
    with opened(homes) as nodes:
        node = nodes["n0"]
        progress, now = node.records.progress, [100.0]
        monkeypatch.setattr("facade.peers.node.progress.time.monotonic", lambda: now[0])
        for round, seconds in enumerate([10, 10, 5000]):  # the last round had a pause
            progress.begin(node.followed_lists.in_force, round)
            assert progress.seconds_left == (None if round == 0 else 10.0 * (6 - round))
            now[0] += seconds
        node.publisher.write_status(node.followed_lists.in_force, 2)
        monkeypatch.undo()
        assert (
            "round 2 of 6, epoch 1, policy patient, some 40 s left" in command("node", "status", "--home", homes[0]).out
        )


def test_a_site_that_is_started_again_shows_at_once_what_it_had_reached(three):
    homes, servers = three
    with opened(homes) as nodes:
        run_all(nodes)
        before = numbers(fetched(servers[0].address, "/metrics")[1])["facade_accuracy"]
    with opened(homes[:1]):
        shown = numbers(fetched(servers[3].address, "/metrics")[1])
    assert (shown["facade_accuracy"], shown["facade_finished"]) == (before, 1)


def test_a_site_whose_list_or_certificate_has_expired_is_not_ready_and_one_that_pauses_is(three, monkeypatch):
    homes, servers = three
    with opened(homes) as nodes:
        node = nodes["n0"]
        node.quorum._say_paused(0)
        assert numbers(fetched(servers[0].address, "/metrics")[1])["facade_paused"] == 1
        assert fetched(servers[0].address, "/readyz") == (200, "ok\n")
        node.followed_lists.in_force.membership.__dict__["expires"] = "2020-01-01"
        assert "expired after 2020-01-01" in fetched(servers[0].address, "/readyz")[1]
        monkeypatch.setattr(site_node.identity, "days_left", lambda _: -0.5)
        assert fetched(servers[0].address, "/readyz") == (
            503,
            "the certificate has expired; make a new one: facade node rotate\n",
        )


def test_a_list_of_another_protocol_is_refused_with_both_named(tmp_path, command):
    made = federation(tmp_path)
    path = made.home("a") / "membership.json"
    written = json.loads(path.read_text())
    written["membership"] |= {"protocol": PROTOCOL + 1, "news": 1}
    path.write_text(json.dumps(written))
    said = command("node", "up", "--home", made.home("a"))
    assert said.code == 2
    assert (
        f"membership.json is not a membership list: it is for protocol {PROTOCOL + 1}, and Facade {facade.__version__},"
        f" which is installed here, speaks protocol {PROTOCOL}"
    ) in said.err


COPYTRUNCATE = """
import shutil, sys
shutil.copyfile(sys.argv[1], sys.argv[1] + ".1")
open(sys.argv[1], "r+b").truncate(0)
"""


def test_a_log_that_is_copied_and_cut_while_it_grows_loses_no_line_and_holds_no_gap(tmp_path):
    path = tmp_path / "log.jsonl"
    journal = Journal(path)
    for n in range(1000):
        journal.write("mixed", round=n)
        if n == 499:
            rotate(path, tmp_path)
    journal.close()
    rounds = [[event["round"] for event in lines(each)] for each in (tmp_path / "log.jsonl.1", path)]
    assert rounds == [list(range(500)), list(range(500, 1000))]
    assert b"\0" not in path.read_bytes()


def rotate(path, tmp_path):
    """By the rotation that deploy/ brings, where logrotate is installed; else by what its copytruncate does."""
    if shutil.which("logrotate") is None:
        subprocess.run([sys.executable, "-c", COPYTRUNCATE, str(path)], check=True)
        return
    rule = tmp_path / "rule"
    rule.write_text(f"{path} {{\n copytruncate\n rotate 3\n size 1\n}}\n")
    rule.chmod(0o600)
    subprocess.run(["logrotate", "--force", "--state", str(tmp_path / "state"), str(rule)], check=True)
