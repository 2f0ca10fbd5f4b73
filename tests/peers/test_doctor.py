"""What `facade node doctor` finds; every peer that answers here is a real server on this machine."""

import datetime
import json

import pytest

from facade.algorithms import ALGORITHMS
from facade.peers.doctor import Finding, _dates, _exchange, examine
from facade.peers.local_network import founded
from facade.peers.node.site_epoch import SiteEpoch
from facade.peers.protocol import descriptors
from facade.peers.protocol.headers import Kind, Request, Status
from facade.peers.protocol.link_speed import LinkSpeed
from facade.peers.protocol.refusals import Reason
from facade.peers.trust import identity
from facade.peers.trust.site import Site
from peers.makers import QUICK, federation, gate, real_node, tiny


@pytest.fixture
def made(tmp_path):
    experiment = tiny('data.clusters="3:1"', "topology.degree=2")
    with founded(experiment, tmp_path, "patient", QUICK) as together:
        yield together


def test_peers_that_answer_are_measured_and_a_round_is_estimated(made):
    nodes = [real_node(home) for home in made.homes[1:3]]
    try:
        findings = examine(made.homes[0])
    finally:
        for node in nodes:
            node.close()
    says = [finding.says for finding in findings]
    measured = [s.split()[0] for s in says if "answers in" in s and s.endswith("MB/s")]
    assert measured == ["n1", "n2"]
    assert all(finding.kind != "problem" for finding in findings)
    assert [s.split(" at ")[0] for s in says if "does not answer" in s] == ["n3"]
    assert says[-1].startswith("a round brings 2 messages of 0.02 MB, which takes at least 0.")
    assert any("the experiment (" in s and "agree with this site's data" in s for s in says)
    assert any("disk: about" in s for s in says)
    assert any(s.startswith("open files: 216 are needed, ") for s in says)
    assert any("the certificate of this site is good for 365 days" in s for s in says)


def test_too_few_open_files_are_a_problem(made, monkeypatch):
    monkeypatch.setattr(descriptors, "highest_limit", lambda: 200)
    problems = [finding.says for finding in examine(made.homes[0]) if finding.kind == "problem"]
    assert len(problems) == 1
    assert problems[0].startswith("open files: 216 are needed with 4 members, this user may have 200; raise the limit")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_round_takes_as_long_as_the_nearest_neighbours_it_needs(algorithm, tmp_path):
    experiment = tiny('data.clusters="3:1"', "topology.degree=2", f"algorithm.name={algorithm}")
    lines = {"n1": LinkSpeed(0.01, 1e3), "n2": LinkSpeed(0.02, 1e9), "n3": LinkSpeed(900.0, 1e9)}
    with founded(experiment, tmp_path, "patient", QUICK) as made:
        site = Site.load(made.homes[0])
        findings = list(_exchange(SiteEpoch.of(site, site.membership()), lines))
    if algorithm == "local":
        assert not findings
        return
    kind, says, _ = findings[0]
    assert kind == "problem"  # n3 alone takes longer than the deadline
    wanted, size = (float(says.split(before)[1].split()[0]) for before in ("brings ", "messages of "))
    least = float(says.split("at least ")[1].split(" s;")[0])
    assert wanted == (3 if algorithm == "ifca" else 2)
    assert least == pytest.approx(900 if wanted == 3 else size * 1e6 / 1e3, abs=10)
    assert "with n3 among them, 900.000 s" in says


@pytest.mark.parametrize(("policy", "trip", "said"), [("brisk", 8.0, 1), ("brisk", 4.0, 0), ("patient", 8.0, 0)])
def test_a_line_on_which_a_message_takes_longer_than_brisk_waits_is_named(policy, trip, said, tmp_path):
    lines = {"n1": LinkSpeed(0.01, 1e9), "n2": LinkSpeed(trip, 1e9)}
    with founded(tiny('data.clusters="3:1"', "topology.degree=2"), tmp_path, policy, QUICK) as made:
        site = Site.load(made.homes[0])
        findings = list(_exchange(SiteEpoch.of(site, site.membership()), lines))
    assert all(finding.kind != "problem" for finding in findings)
    notes = [finding.says for finding in findings[1:]]
    assert len(notes) == said
    assert all("n2 takes 8.0 s, but the policy brisk waits 5 s" in note for note in notes)


@pytest.mark.parametrize(
    ("mode", "kind", "says"), [(0o600, "ok", []), (0o644, "note", ["be read"]), (0o620, "problem", ["be changed"])]
)
def test_node_toml_is_looked_at_as_the_keys_are(mode, kind, says, tmp_path):
    home = federation(tmp_path).home("a")
    (home / "node.toml").chmod(mode)
    findings = [finding for finding in examine(home) if "node.toml can" in finding.says]
    assert [finding.kind for finding in findings] == [kind] * len(says)
    assert all(words in finding.says for words, finding in zip(says, findings, strict=True))


def test_a_measurement_is_for_members_and_never_more_than_a_chunk(tmp_path):
    federated = federation(tmp_path)
    asked = gate(federated, tmp_path)
    digest = federated.membership.digest

    def answer(length, membership=digest, caller=2):
        return asked.answer("c", Request(Kind.MEASURE, membership, caller, 0, 0, length).packed())

    most = asked.limits.chunk
    reply = answer(most)
    assert (reply.status, reply.total, reply.chunk) == (Status.HERE, most, bytes(most))
    for length in (0, most + 1, (1 << 32) - 1):
        refused = answer(length)
        assert (refused.reason, refused.chunk) == (Reason.NO_SUCH_CHUNK, b"")
    assert answer(10, membership=b"o" * 32).reason is Reason.OTHER_MEMBERSHIP
    assert answer(10, caller=1).reason is Reason.OTHER_IDENTITY
    asked.journal.close()


def test_dates_are_judged_by_this_machine_s_clock():
    now = datetime.datetime.now(datetime.UTC)
    cases = (
        (-20, "problem", "expired 10 days ago"),
        (3, "problem", "begins in 3.0 days"),
        (0, "ok", "is good for 10 days"),
    )
    for starts, kind, says in cases:
        _, certificate = identity.new_certificate("a", 10, now + datetime.timedelta(days=starts))
        found = _dates("a", certificate)
        assert (found.kind, says in found.says) == (kind, True)


def test_for_programs_the_findings_are_one_line_of_json(command, monkeypatch):
    monkeypatch.setattr(
        "facade.peers.doctor.examine", lambda home, ask, names: [Finding("problem", "the disk is full")]
    )
    ended = command("node", "doctor", "--json")
    assert (ended.code, "PROBLEM  the disk is full" in ended.err) == (1, True)
    assert json.loads(ended.out) == [{"kind": "problem", "says": "the disk is full"}]
