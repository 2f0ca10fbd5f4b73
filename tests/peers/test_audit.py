"""Comparing sites' logs after a run."""

import json

import pytest

from facade.errors import ExperimentError
from facade.peers import local_network
from facade.peers.after.audit import audit
from facade.peers.trust.membership import Change, Membership, changed
from peers.makers import QUICK, federation, tiny

DIGEST = {id: 64 * mark for id, mark in zip("abcd", "1234", strict=True)}


class Logs:
    """Logs of sites a, b, c and d that hear each other in a circle: a and c are neighbours of b and d."""

    def __init__(self, path, ids="abcd"):
        self.made = federation(path, ids)
        self.path = path
        self.lists = [path / ids[0] / "membership.json"]
        self.events = {id: [event("started", id=id, federation="test")] for id in ids}

    def round(self, number, epoch=1):
        """A round in which everybody hears all neighbours."""
        from facade import Experiment
        from facade.experiment.setup import planned

        _, plan = planned(Experiment.of(self.made.membership.experiment))
        graph = plan.graph(number)
        ids = list(self.events)
        for id in ids:
            self.events[id].append(event("committed", round=number, epoch=epoch, sha256=DIGEST[id]))
        for i, id in enumerate(ids):
            heard = sorted(graph.sender[graph.receiver == i].tolist())
            for other in heard:
                peer = ids[other]
                self.events[id].append(event("heard", round=number, epoch=epoch, peer=peer, sha256=DIGEST[peer]))
            self.events[id].append(event("mixed", round=number, epoch=epoch, heard=heard))
        return self

    def of(self, id, kind, round):
        """An event to be changed."""
        return next(e for e in self.events[id] if e["event"] == kind and e["round"] == round)

    def audit(self, *left_out):
        paths = []
        for id, events in self.events.items():
            if id not in left_out:
                paths.append(self.path / f"{id}.jsonl")
                paths[-1].write_text("".join(f"{json.dumps(e)}\n" for e in events))
        return audit(paths, self.lists)


def event(name, **facts):
    return {"time": "2026-01-01T00:00:00+00:00", "event": name, **facts}


@pytest.fixture
def logs(tmp_path):
    return Logs(tmp_path).round(0).round(1).round(2)


def test_logs_of_an_honest_run_fit_together(logs):
    found = logs.audit()
    assert (found.findings, found.notes, found.missing) == ([], [], [])
    assert (found.sites, found.rounds, found.messages) == (["a", "b", "c", "d"], 3, 24)


def test_a_log_that_is_missing_is_named_and_its_site_still_compared(logs):
    heard = logs.of("a", "heard", 1)
    sender = heard["peer"]
    heard["sha256"] = 64 * "f"
    found = logs.audit(sender)
    assert found.missing == [sender]
    (said,) = found.findings
    assert said.startswith(f"round 1: {sender} sent different messages: {64 * 'f'} to a".replace(64 * "f", 16 * "f"))
    assert DIGEST[sender][:16] in said


def test_a_message_that_its_sender_never_published_is_found(logs):
    sender = logs.of("a", "heard", 1)["peer"]
    logs.events[sender].remove(logs.of(sender, "committed", 1))
    (said,) = logs.audit().findings
    assert said.endswith(f"heard a message of {sender} that its log does not have")
    assert said.startswith("round 1: a")


def test_another_digest_than_the_published_one_is_found_once_for_all_who_heard_it(logs):
    sender = logs.of("a", "heard", 2)["peer"]
    logs.of(sender, "committed", 2)["sha256"] = 64 * "e"
    (said,) = logs.audit().findings
    assert f"heard {DIGEST[sender][:16]} from {sender}, whose log has {16 * 'e'}" in said


def test_a_sender_that_was_killed_before_it_could_write_is_a_note(logs):
    sender = logs.of("a", "heard", 2)["peer"]
    at = logs.events[sender].index(logs.of(sender, "committed", 2))
    logs.events[sender] = logs.events[sender][:at]
    found = logs.audit()
    assert found.findings == []
    assert [note.endswith(f"of {sender} that its log does not have, for it ends before") for note in found.notes] == [
        True
    ]


def test_a_message_from_no_neighbour_is_found(logs):
    neighbours = {e["peer"] for e in logs.events["a"] if e["event"] == "heard" and e["round"] == 1}
    (stranger,) = set("bcd") - neighbours
    logs.events["a"].append(event("heard", round=1, epoch=1, peer=stranger, sha256=DIGEST[stranger]))
    assert logs.audit().findings == [f"round 1: a heard {stranger}, which is no neighbour in that round"]


def test_the_final_exchange_is_meant_for_everybody(logs):
    last = logs.made.membership.experiment["training"]["rounds"]
    for id in "abcd":
        logs.events[id].append(event("committed", round=last, epoch=1, sha256=DIGEST[id]))
        for other in set("abcd") - {id}:
            logs.events[id].append(event("heard", round=last, epoch=1, peer=other, sha256=DIGEST[other]))
    assert logs.audit().findings == []


def test_what_was_mixed_must_have_been_heard(logs):
    heard = logs.of("c", "heard", 0)
    logs.events["c"].remove(heard)
    assert logs.audit().findings == [f"round 0: c mixed a message of {heard['peer']} without having heard it"]


def test_rounds_go_back_only_after_a_start_and_then_to_the_same_messages(logs):
    again = event("committed", round=1, epoch=1, sha256=DIGEST["b"])
    logs.events["b"].append(again)
    assert logs.audit().findings == ["round 1: b published it after round 2, without a new start"]
    logs.events["b"].insert(-1, event("started", id="b", federation="test"))
    assert logs.audit().findings == []
    again["sha256"] = 64 * "d"
    assert logs.audit().findings == [f"round 1: b published two different messages, {16 * '2'} and {16 * 'd'}"]


def test_every_list_of_the_run_is_needed(logs):
    logs.round(3, epoch=2)
    with pytest.raises(ExperimentError, match="the list of epoch 2, which was not given"):
        logs.audit()
    later = changed(logs.made.membership, Change(remove=["d"]), 3)
    (logs.path / "next.json").write_text(later.sign([logs.made.admin]))
    logs.lists.append(logs.path / "next.json")
    assert any("heard d, and not both are members" in said for said in logs.audit().findings)


def test_code_of_the_sites_is_not_run_for_an_audit(tmp_path):
    logs = Logs(tmp_path).round(0)
    written = json.loads(logs.lists[0].read_text())
    written["membership"]["experiment"]["algorithm"]["name"] = "nowhere:Mine"
    renamed = Membership.model_validate(written["membership"])
    logs.lists[0].write_text(renamed.sign([logs.made.admin]))
    found = logs.audit()
    assert found.findings == []
    (note,) = found.notes
    assert "who may hear whom was not judged, for algorithm.name = 'nowhere:Mine'" in note


def test_a_changed_list_is_refused_though_whoever_gives_it_vouches_for_it(tmp_path):
    logs = Logs(tmp_path).round(0)
    written = json.loads(logs.lists[0].read_text())
    written["membership"]["experiment"]["seed"] += 2
    logs.lists[0].write_text(json.dumps(written))
    with pytest.raises(ExperimentError, match="is not as one of its admins signed it"):
        logs.audit()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "does not say which site began a run"),
        ('{"event":"started","federation":"test"}', "'started' that cannot be read: id: Field required"),
        ('{"event":"heard","epoch":1,"round":-1,"peer":"b","sha256":""}', "'heard' that cannot be read: round: Input"),
        ('{"event":"committed","epoch":1,"round":1,"sha256":"\\u001b[2J"}', "'committed' that cannot be read: sha256"),
        ('{"event":"started","id":"z","federation":"test"}', "'z', whose log was given, is in no list"),
        ('{"event":"started","id":"a","federation":"other"}', "is of federation 'other', the list of 'test'"),
    ],
)
def test_what_is_no_log_of_the_run_is_refused_in_a_sentence(logs, tmp_path, line, said):
    (tmp_path / "odd.jsonl").write_text(line + "\n")
    with pytest.raises(ExperimentError, match=said):
        audit([tmp_path / "odd.jsonl"], logs.lists)


def test_the_command_says_what_does_not_fit_and_exits_with_one(logs, command):
    logs.audit()
    paths = [logs.path / f"{id}.jsonl" for id in "abcd"]
    ended = command("network", "audit", *paths, "--membership", logs.lists[0])
    assert (ended.code, "All fits" in ended.out) == (0, True), ended.err
    ended = command("network", "audit", *paths[1:], "--membership", logs.lists[0])
    assert "without a, whose logs are not among these" in ended.out
    assert "All that could be compared fits" in ended.out
    logs.of("a", "heard", 1)["sha256"] = 64 * "f"
    logs.audit()
    ended = command("network", "audit", *paths, "--membership", logs.lists[0], "--json")
    assert ended.code == 1
    assert "1 thing that does not fit" in ended.err
    (said,) = json.loads(ended.out)["findings"]
    assert "sent different messages" in said


def test_the_logs_of_real_peers_fit_together(tmp_path):
    experiment = tiny("data.clusters=3:1", "topology.degree=2", "training.rounds=3", "evaluation.every=3")
    local_network.run(experiment, tmp_path, limits=QUICK)
    sites = sorted((tmp_path / "sites").glob("n*"))
    found = audit([site / "run" / "log.jsonl" for site in sites], [sites[0] / "membership.json"])
    assert (found.findings, found.notes, found.missing) == ([], [], [])
    assert found.messages == 3 * 4 * 2 + 4 * 3
