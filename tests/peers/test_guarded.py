"""Sites behind a guard, and among members that attack: the same bits as in the simulator, and what is said of it."""

import json
from collections import Counter

import pytest
import torch

from facade import run
from facade.algorithms import ALGORITHMS
from facade.core import tree
from facade.guards.last_gate import Passage
from facade.peers import local_network
from facade.peers.after.audit import audit
from facade.peers.after.outcome import Outcome, read_site
from facade.peers.after.report import compare_sites
from facade.peers.local_network import founded
from facade.peers.node.pulling import Puller
from facade.peers.node.site_epoch import RemovedError, SiteEpoch
from facade.peers.trust.membership import Change, changed
from facade.peers.trust.site import Site
from peers.makers import QUICK, audited, logged, tiny
from peers.memory import MemoryNetwork, opened, run_all, run_aside
from peers.test_in_memory import FOUR, rows_of

SURVEYED = ("algorithm.seeding=class-means", "algorithm.heads=auto", "training.rounds=45", "evaluation.every=45")
EL = ("algorithm.name=el", "training.rounds=8", "evaluation.every=4")
FAIR = ("guard.rule=fair", "training.steps=1")
ON_WEIGHTS = ("sign-flip", "final-only", "label-flip", "stale", "silent")


def attack(kind, start=3):
    return () if kind == "none" else (f'attack.kind="{kind}"', "attack.nodes=[1]", f"attack.start={start}")


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        *((SURVEYED, kind) for kind in ("none", "sign-flip", "false-head", "lying-bid")),
        *((EL, kind) for kind in ("none", *ON_WEIGHTS)),
    ],
    ids=lambda value: value if isinstance(value, str) else "el" if value is EL else "facade",
)
def test_guarded_sites_reach_the_state_of_the_simulator_also_among_attackers(algorithm, kind, tmp_path):
    experiment = tiny(*FOUR, *algorithm, *FAIR, *attack(kind))
    with founded(experiment, tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    simulated = run(experiment)
    assert tree.joint([outcome.state_sha256 for outcome in outcomes.values()]) == simulated.summary["state_sha256"]
    assert rows_of(sites.homes) == list(simulated.rows)
    assert audited(sites.homes) == []


@pytest.mark.parametrize(("algorithm", "kind"), [("el", "sign-flip"), ("facade", "false-head")])
def test_guarded_sites_reach_the_state_of_the_simulator_over_tls(algorithm, kind, tmp_path):
    experiment = tiny(*FOUR, f"algorithm.name={algorithm}", *FAIR, *attack(kind, start=1))
    together = local_network.run(experiment, tmp_path / "net", limits=QUICK)
    simulated = run(experiment)
    assert together.summary["state_sha256"] == simulated.summary["state_sha256"]
    assert list(together.rows) == list(simulated.rows)


ALIKE = ('data.clusters="4"', "data.skew=none", "topology.degree=2", "guard.rule=fair")
FLIPPED = tiny(*ALIKE, *EL, "training.steps=10", "training.lr=0.3", *attack("sign-flip"))
"""Four sites that are alike, behind a guard; one sends its weights with flipped signs."""


@pytest.fixture
def flipped(tmp_path):
    """The homes of those sites when they have played."""
    with founded(FLIPPED, tmp_path, "patient", QUICK) as sites:
        with opened(sites.homes) as nodes:
            run_all(nodes)
            told = nodes["n0"].records.metrics.dropped.labels("model")._value.get()
            assert told == counted(sites.homes[0]).total() > 0
        yield sites.homes


def counted(home):
    """By the rows of a site: per member, the messages of which something was dropped."""
    unused = Counter()
    for row in rows_of([home]):
        unused.update({f"n{number}" for number in row.get("dropped", ()) if number >= 0})
    return unused


def test_what_a_guard_dropped_is_in_the_ledger_the_log_and_the_file_for_others(flipped, command):
    honest = [home for home in flipped if home.name != "n1"]
    for home in honest:
        assert counted(home)["n1"] > 0
        ledger = Outcome.load(home / "run").ledger
        assert {id: entry["unused"] for id, entry in ledger.items() if entry["unused"]} == counted(home)
        assert ledger["n1"]["dropped"]["model"] == counted(home)["n1"]
        assert ledger["n1"]["unused_at_end"] == 1
        told = Counter(id for event in logged(home, "judged") for id in event["dropped"])
        assert told == counted(home)
        assert read_site(home / "run" / "site.json").ledger["n1"].unused == counted(home)["n1"]
    status = command("node", "status", "--home", honest[0])
    assert f"dropped {counted(honest[0])['n1']} (model {counted(honest[0])['n1']})" in status.out


def test_report_and_audit_name_the_member_whose_messages_others_did_not_use(flipped, command):
    files, logs = ([home / "run" / name for home in flipped] for name in ("site.json", "log.jsonl"))
    report = compare_sites(files, flipped[0] / "membership.json")
    shares = {site["id"]: site["unused_by_others"] for site in report["sites"]}
    assert max(shares, key=shares.get) == "n1"
    assert [suspect["id"] for suspect in report["suspects"]] == ["n1"]
    assert report["suspects"][0]["sites"] == 3
    assert "suspect: n1, " in command("network", "report", *files).out
    found = audit(logs, [flipped[0] / "membership.json"])
    assert [suspect.id for suspect in found.suspects] == ["n1"]
    ended = command("network", "audit", *logs, "--membership", flipped[0] / "membership.json", "--json")
    assert (ended.code, json.loads(ended.out)["suspects"][0]["id"]) == (0, "n1"), "a suspect is no contradiction"
    assert "suspect: n1, " in ended.err


def test_after_a_restart_nothing_that_was_dropped_counts_twice(flipped, tmp_path, monkeypatch):
    expected = Outcome.load(flipped[0] / "run").ledger
    pull = Puller.pull

    def killed(self, membership, own, demand):
        if (own, demand.round) == (0, 6) and not crashed:
            crashed.append(demand.round)
            raise RuntimeError("the power is gone")
        return pull(self, membership, own, demand)

    crashed = []
    monkeypatch.setattr(Puller, "pull", killed)
    (tmp_path / "again").mkdir()
    with founded(FLIPPED, tmp_path / "again", "patient", QUICK) as sites:
        network = MemoryNetwork()
        nodes = [network.node(home) for home in sites.homes]
        first, *others = [run_aside(node) for node in nodes]
        assert "power" in str(first())
        nodes[0].close()
        nodes[0] = network.node(sites.homes[0])
        ledger = run_aside(nodes[0])().ledger
        assert [isinstance(end(), Outcome) for end in others] == [True] * 3
        for node in nodes:
            node.close()
    assert (crashed, ledger.keys()) == ([6], expected.keys())
    for id, entry in ledger.items():
        assert {key: entry[key] for key in ("dropped", "unused", "unused_at_end", "gate_closed")} == {
            key: expected[id][key] for key in ("dropped", "unused", "unused_at_end", "gate_closed")
        }
    assert rows_of([sites.homes[0]]) == rows_of([flipped[0]])


def test_where_the_last_gate_closes_the_rows_the_status_and_those_who_were_heard_say_so(tmp_path, command, monkeypatch):
    def shut(turn, before, after, rise):
        return Passage(torch.ones(len(rise), dtype=torch.bool), rise)

    monkeypatch.setattr("facade.guards.guarded.passage", shut)
    with founded(tiny(*FOUR, *EL, *FAIR), tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        outcomes = run_all(nodes)
    home = sites.homes[0]
    closed = [row["kind"] for row in rows_of([home]) if row.get("gate_closed")]
    assert closed == 8 * ["round"] + ["final"]
    ledger = outcomes["n0"].ledger
    assert {id: entry["gate_closed"] for id, entry in ledger.items()} == {id: e["heard"] for id, e in ledger.items()}
    metrics = nodes["n0"].records.metrics
    assert metrics.gate_closed._value.get() == 9
    assert "the last gate closed 9x" in command("node", "status", "--home", home).out
    assert read_site(home / "run" / "site.json").gate_closed == 9
    assert compare_sites([home / "run" / "site.json"])["sites"][0]["gate_closed"] == 9


def test_what_a_guard_remembers_of_members_goes_with_them_where_others_leave(tmp_path):
    five = ('data.clusters="5"', "data.skew=none", "topology.name=complete", "guard.rule=fair", "training.lr=0.3")
    experiment = tiny(*five, *EL, 'attack.kind="sign-flip"', "attack.nodes=[3]")
    with founded(experiment, tmp_path, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        first = nodes["n0"].followed_lists.membership
        data = first.experiment["data"] | {"clusters": "4"}
        same = first.experiment["attack"] | {"nodes": [2]}  # n3 has another number when n0 is gone
        smaller = first.model_copy(update={"experiment": first.experiment | {"data": data, "attack": same}})
        second = changed(smaller, Change(remove=["n0"]), 6).sign([tmp_path / "admin.key"])
        for home in sites.homes:
            (home / "membership.json").write_text(second)
        ends = run_all(nodes)
    assert isinstance(ends["n1"], Outcome), ends
    ledger = ends["n1"].ledger
    assert isinstance(ends["n0"], RemovedError)
    assert ledger["n3"]["unused"] >= 3
    assert [id for id in ("n0", "n2", "n4") if ledger[id]["unused"] >= 3] == []
    assert {id for event in logged(sites.homes[1], "judged") for id in event["dropped"]} == {"n3"}


@pytest.mark.parametrize("rule", ["none", "fair"])
def test_the_final_rows_say_what_a_guard_decided_and_only_then(rule):
    rows = run(tiny(*FOUR, *EL, "training.steps=1", f"guard.rule={rule}")).rows
    said = {"dropped", "dropped_part", "gate_closed"}
    finals = [row.keys() & said for row in rows if row["kind"] == "final"]
    assert finals == 4 * [said if rule == "fair" else set()]
    assert not any(row.keys() & said for row in rows if row["kind"] == "evaluation")


@pytest.mark.parametrize("local", ["[]", '["core.1.bias"]'])
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS.keys() - {"local"}))
def test_the_parts_of_messages_have_names_in_every_algorithm(algorithm, local, tmp_path):
    experiment = tiny(*FOUR, f"algorithm.name={algorithm}", f"model.local={local}", "guard.rule=fair")
    with founded(experiment, tmp_path, "patient", QUICK) as sites:
        site = Site.load(sites.homes[0])
        parts = SiteEpoch.of(site, site.membership()).parts
    named = {"facade": ["head", "core"], "ifca": ["head", "core"], "deprl": ["core"]}
    assert parts == named.get(algorithm, ["model"])
