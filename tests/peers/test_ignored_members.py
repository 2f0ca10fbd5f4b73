"""Members that a site's own node.toml has it ignore: neither heard nor served, from the next call on."""

import json
import tomllib

import pytest
import tomli_w

from facade.errors import ExperimentError
from facade.peers.after.audit import audit
from facade.peers.after.outcome import Met, Outcome
from facade.peers.local_network import founded
from facade.peers.node.ignored_members import IgnoredMembers, UnignoredLinks
from facade.peers.node.journal import Journal, lines
from facade.peers.protocol.headers import Kind, Request, Status
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.rpc import Credentials, Link, Server
from facade.peers.protocol.transport import UnreachableError
from facade.peers.trust.membership import Limits
from facade.peers.trust.site import Settings, Site
from peers.makers import federation, gate, logged, tiny, together
from peers.memory import opened, run_all

QUICK = Limits(deadline=60, linger=0.5)
FOUR = ('data.clusters="3:1"', "topology.name=complete", "algorithm.name=el", "training.steps=1")


def ignore(home, *ids):
    """Have a site ignore members, as an operator does: by another node.toml."""
    node = tomllib.loads((home / "node.toml").read_text()) | {"ignore": list(ids)}
    (home / "node.toml").write_text(tomli_w.dumps(node))


@pytest.fixture
def site(tmp_path):
    return Site.load(federation(tmp_path).home("a"))


@pytest.fixture
def ignored(site, tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    yield IgnoredMembers(site, journal)
    journal.close()


def test_a_change_of_node_toml_counts_at_once_and_is_logged(site, ignored, tmp_path):
    assert not ignored.has("c")
    ignore(site.home, "c", "b")
    assert [ignored.has(id) for id in "abc"] == [False, True, True]
    ignore(site.home)
    assert not ignored.has("c")
    said = [event["peers"] for event in lines(tmp_path / "log.jsonl") if event["event"] == "ignoring"]
    assert said == [["b", "c"], []]


def test_a_node_toml_that_cannot_be_used_changes_nothing_and_is_named_once(site, ignored, tmp_path):
    ignore(site.home, "c")
    assert ignored.has("c")
    (site.home / "node.toml").write_text("ignore = [")
    assert [ignored.has("c"), ignored.has("c")] == [True, True]
    (refused,) = [event for event in lines(tmp_path / "log.jsonl") if event["event"] == "settings-refused"]
    assert "is not valid TOML" in refused["says"]


@pytest.mark.parametrize(
    ("ids", "says"),
    [(["a"], "ignore names this site itself"), (["../b"], "id '../b' is not possible"), (["B"], "id 'B' is not")],
)
def test_whom_a_site_cannot_ignore(ids, says, site):
    ignore(site.home, *ids)
    with pytest.raises(ExperimentError, match=says):
        Settings.load(site.home)


def test_a_call_to_an_ignored_member_is_never_made(site, ignored):
    called = []

    class Links:
        def to(self, peer):
            called.append(peer.id)
            return self

        def call(self, request, seconds):
            return "a reply"

    links, members = UnignoredLinks(Links(), ignored), {m.id: m for m in site.membership().members}
    to_c = links.to(members["c"])
    assert (to_c.call(None, 1), called) == ("a reply", ["c"])
    ignore(site.home, "c")
    with pytest.raises(RefusedError) as refusal:
        to_c.call(None, 1)
    assert (refusal.value.reason, called) == (Reason.IGNORED, ["c"])
    assert links.to(members["b"]).call(None, 1) == "a reply"


def test_an_ignored_member_is_turned_away_over_an_open_connection(site, ignored, tmp_path):
    (tmp_path / "real").mkdir()
    made = federation(tmp_path / "real")
    own = gate(made, tmp_path / "real")
    own.ignores = ignored.has
    gates = together((own, lambda: made.membership.members))
    server = Server(gates, Credentials(made.key("a"), made.certificate("a")), "127.0.0.1:0", False)
    listed = made.membership.members[0].model_copy(update={"address": f"127.0.0.1:{server.port}"})
    link = Link(Credentials(made.key("b"), made.certificate("b")), listed, 1 << 20)
    request = Request(Kind.PULL, made.membership.digest, 1, 0, 0, 100)
    try:
        assert link.call(request, 10).status is Status.HERE
        ignore(site.home, "b")
        with pytest.raises(UnreachableError, match="ignored") as refused:
            link.call(request, 10)
        assert refused.value.denied
        ignore(site.home)
        assert link.call(request, 10).status is Status.HERE
    finally:
        link.close()
        server.stop()
        own.journal.close()
    (turned_away,) = [event for event in lines(tmp_path / "real" / "log.jsonl") if event["event"] == "refused"]
    assert (turned_away["reason"], turned_away["details"]) == ("ignored", "b")


def test_whom_a_site_ignores_while_it_runs_it_neither_hears_nor_serves_and_all_end(tmp_path, monkeypatch):
    rounds = ("training.rounds=8", "evaluation.every=8")
    with founded(tiny(*FOUR, *rounds), tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        journal = nodes["n0"].records.journal

        def watch(event):
            if event["event"] == "committed" and event["round"] == 4:
                ignore(sites.homes[0], "n2")

        monkeypatch.setattr(journal, "_listen", watch)
        ends = run_all(nodes)
    assert [type(end) for end in ends.values()] == [Outcome] * 4, ends
    home = sites.homes[0]
    heard = {event["round"] for event in logged(home, "heard") if event["peer"] == "n2"}
    assert heard == {0, 1, 2, 3}
    there = {event["round"] for event in logged(sites.homes[2], "heard") if event["peer"] == "n0"}
    assert there <= {0, 1, 2, 3, 4}, "what was asked for before"
    ledger = json.loads((home / "run" / "site.json").read_text())["site"]["ledger"]["n2"]
    assert (ledger["heard"], ledger["refused"], ledger["unused_at_end"]) == (4, {"ignored": 5}, 0)
    refusals = [event for event in logged(home, "refused") if event["reason"] == "ignored"]
    assert {"payload", "caller"} == {event["side"] for event in refusals}
    result = audit([each / "run" / "log.jsonl" for each in sites.homes], [home / "membership.json"])
    assert (result.findings, result.suspects) == ([], []), "nobody is suspected for being ignored"


def test_an_ignored_member_that_is_not_there_is_not_waited_for(tmp_path):
    rounds = ("training.rounds=3", "evaluation.every=3")
    with founded(tiny(*FOUR, *rounds), tmp_path, "patient", Limits(deadline=600, linger=600)) as sites:
        for home in sites.homes[:3]:
            ignore(home, "n3")
        with opened(sites.homes[:3]) as nodes:
            ends = run_all(nodes)  # within two minutes
    assert [type(end) for end in ends.values()] == [Outcome] * 3, ends
    assert logged(sites.homes[0], "waiting") == []


def test_an_ignored_message_is_no_word_against_its_sender():
    met = Met(heard=4, late=0, missed=0, refused={"ignored": 3, "not-admitted": 2, "not-finite": 1})
    word = met.word("a", "b")
    assert (word.came, word.unused) == (5, 1)
