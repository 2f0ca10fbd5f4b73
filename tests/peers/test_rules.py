"""What must never be in the runtime, and what must be there before it starts."""

import ast
import errno
import json
import math
import os
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

import facade
from facade.errors import ExperimentError, RunDirectoryError, StorageError
from facade.peers.after.outcome import write_site
from facade.peers.after.report import compare_sites
from facade.peers.local_network import founded
from facade.peers.node.followed_lists import FollowedLists
from facade.peers.node.journal import Journal, Metrics, lines
from facade.peers.node.node import run
from facade.peers.node.outgoing import DivergedReplayError, Outgoing
from facade.peers.node.waiting import Brisk, Patient, Wait
from facade.peers.protocol.refusals import Reason
from facade.peers.trust import identity
from facade.peers.trust.founding import finish_rotation, rotate_site
from facade.peers.trust.membership import Limits, load
from facade.peers.trust.site import Site, foreign_names, refuse_foreign_names, set_up
from facade.runs.run_directory import RunDirectory
from peers.makers import QUICK, federation, kept_ports, real_node, tiny

SOURCE = Path(facade.__file__).parent
RUNTIME = [
    *(SOURCE / "peers").rglob("*.py"),
    *(SOURCE / "runtimes").rglob("*.py"),
    *(SOURCE / "files").rglob("*.py"),
]
BANNED_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "_pickle", "jsonpickle", "joblib"}
BANNED_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "torch.load",
    "yaml.load",
    "torch.save",
    "np.load",
    "numpy.load",
}


@pytest.mark.parametrize("path", RUNTIME, ids=lambda path: path.name)
def test_nothing_in_the_runtime_can_turn_bytes_into_code(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & BANNED_MODULES
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in BANNED_MODULES
            assert not {f"{node.module}.{alias.name}" for alias in node.names} & BANNED_CALLS
        elif isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in BANNED_CALLS


@pytest.mark.parametrize("missing", ["tls.key", "signing.key", "certificate.pem", "node.toml", "membership.json"])
def test_without_a_key_or_a_list_nothing_starts(missing, tmp_path):
    made = federation(tmp_path)
    (made.home("a") / missing).unlink()
    with pytest.raises(ExperimentError, match=missing.split(".")[0]):
        real_node(made.home("a"))


def test_a_key_that_others_can_read_is_refused(tmp_path):
    made = federation(tmp_path)
    os.chmod(made.home("a") / "tls.key", 0o644)
    with pytest.raises(ExperimentError, match="chmod 600"):
        Site.load(made.home("a"))


@pytest.mark.parametrize("name", ["tls.key", "signing.key"])
def test_a_file_that_is_no_key_is_named(name, tmp_path):
    made = federation(tmp_path)
    (made.home("a") / name).write_text("-----BEGIN PRIVATE KEY-----\njunk\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ExperimentError, match=rf"{name} is not a private key in PEM"):
        Site.load(made.home("a"))


@pytest.mark.parametrize("moved", range(3))
def test_a_change_of_the_certificate_that_was_interrupted_can_be_ended(moved, command, tmp_path):
    home = federation(tmp_path).home("a")
    rotate_site(home, "a")
    new = Site(home, None, (home / "next-tls.key").read_bytes(), (home / "next-certificate.pem").read_bytes())
    for name in ("tls.key", "certificate.pem", "a.join")[:moved]:
        (home / f"next-{name}").replace(home / name)
    if moved == 1:
        with pytest.raises(ExperimentError, match=r"certificate.pem does not belong to tls.key .* rotate --finish"):
            Site.load(home)
    assert command("node", "rotate", "--home", home, "--finish").code == 0
    found = Site.load(home)
    assert (found.tls_key, found.certificate) == (new.tls_key, new.certificate)
    assert not list(home.glob("next-*"))
    assert "holds no new certificate" in command("node", "rotate", "--home", home, "--finish").err


def test_a_new_key_without_its_certificate_is_not_used(tmp_path):
    home = federation(tmp_path).home("a")
    rotate_site(home, "a").unlink()
    (home / "next-certificate.pem").unlink()
    with pytest.raises(ExperimentError, match="holds no new certificate"):
        finish_rotation(home, "a")
    assert Site.load(home)


def test_keys_are_private_from_the_first_moment(tmp_path):
    made = federation(tmp_path)
    for name in (identity.TLS_KEY, identity.SIGNING_KEY, "node.toml"):
        assert (made.home("a") / name).stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in (made.home("a") / "a.join").read_text()


def test_a_list_that_was_changed_or_signed_by_another_is_refused(tmp_path):
    made = federation(tmp_path)
    path = made.home("a") / "membership.json"
    written = json.loads(path.read_text())
    pinned = made.membership.admins
    assert load(path, pinned).digest == made.membership.digest
    written["membership"]["members"][1]["address"] = "evil:1"
    path.write_text(json.dumps(written))
    with pytest.raises(ExperimentError, match="not signed"):
        load(path, pinned)
    path.write_text(made.membership.sign([made.admin]))
    other = identity.new_signing_key(tmp_path / "other.key")
    with pytest.raises(ExperimentError, match="not signed"):
        load(path, [other])
    path.write_text("{}")
    with pytest.raises(ExperimentError, match="not a membership list"):
        load(path, pinned)


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [("limits", "deadline", math.inf), ("schema", "mean", [math.nan]), ("experiment", "lr", math.nan)],
)
def test_a_list_with_a_number_that_is_none_is_refused(place, key, value, tmp_path):
    made = federation(tmp_path)
    path = made.home("a") / "membership.json"
    journal = Journal(tmp_path / "log.jsonl")
    lists = FollowedLists(Site.load(made.home("a")), journal)
    written = json.loads(path.read_text())
    written["membership"][place][key] = value
    path.write_text(json.dumps(written))
    with pytest.raises(ExperimentError, match="is not a membership list"):
        load(path, made.membership.admins)
    os.utime(path, ns=(0, 0))
    lists.look()
    journal.close()
    assert [event["event"] for event in lines(tmp_path / "log.jsonl")] == ["list-refused"]


def test_options_that_cannot_be_used_are_named(command, tmp_path):
    made = federation(tmp_path)
    (tmp_path / "exp.toml").write_text(tiny('data.clusters="3"', "data.skew=none", "topology.degree=2").toml())
    joins = [made.home(id) / f"{id}.join" for id in "abc"]
    build = ["network", "build", *joins, "--experiment", tmp_path / "exp.toml", "--key", made.admin]
    (tmp_path / "schema.json").write_text("{")
    for option, given, says in (
        ("--limit", "deadline=inf", "--limit: deadline: Input should be a finite number"),
        ("--schema", tmp_path / "none.json", "cannot be read as JSON"),
        ("--schema", tmp_path / "schema.json", "cannot be read as JSON"),
    ):
        ended = command(*build, option, given)
        assert (ended.code, says in ended.err.replace("\n", " ")) == (2, True)


def test_code_that_the_experiment_names_is_refused_unless_the_site_allows_it(tmp_path):
    experiment = tiny().model_dump()
    refuse_foreign_names(experiment, [])
    for section, key in (("algorithm", "name"), ("model", "name"), ("topology", "name"), ("data", "source")):
        named = {**experiment, section: {**experiment[section], key: "os:system"}}
        with pytest.raises(ExperimentError, match="has not allowed"):
            refuse_foreign_names(named, ["other:Thing"])
        refuse_foreign_names(named, ["os:system"])


def test_a_colon_alone_makes_no_code():
    experiment = tiny("name=trial 3: digits", "data.root=/data:ro", "runtime.device=cuda:0", "data.clusters=6:2")
    refuse_foreign_names(experiment.model_dump(), [])
    own = experiment.model_dump() | {"model": {"name": "our_code:Net", "loss": "our_code:loss"}}
    assert list(foreign_names(own)) == [("model.name", "our_code:Net"), ("model.loss", "our_code:loss")]


def test_a_site_never_imports_what_it_has_not_allowed(tmp_path):
    made = federation(tmp_path)
    evil = {**made.membership.experiment, "algorithm": {"name": "a_module_that_does_not_exist:Thing"}}
    listed = made.membership.model_copy(update={"experiment": evil})
    with pytest.raises(ExperimentError, match="has not allowed"):
        set_up(Site.load(made.home("a")), listed)


def test_patient_waits_for_everybody_and_brisk_gives_grace_when_half_have_come():
    limits = Limits(deadline=600, floor=5, grace=1)
    wait = Wait(100.0, set("abcd"))
    patient, brisk = Patient(limits), Brisk(limits)
    assert (patient.until(wait), brisk.until(wait)) == (700.0, 105.0)
    wait.came("a", 101.0)
    assert brisk.until(wait) == 105.0
    wait.came("b", 102.0)
    assert (patient.until(wait), brisk.until(wait), wait.latest) == (700.0, 103.0, 102.0)


def waited(heard="", missed="", seconds=0.0, **more):
    """A wait that is over: who was heard, all after so many seconds, and who was not."""
    wait = Wait(100.0, {*heard, *missed}, **more)
    for peer in heard:
        wait.came(peer, 100.0 + seconds)
    return wait


def test_who_missed_twice_is_waited_for_one_second_until_heard_again():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    for _ in range(2):
        brisk.learn(waited("b", "a", 3.0))
    assert brisk.until(Wait(100.0, {"a"})) == 101.0
    assert brisk.until(Wait(100.0, {"a", "b"})) == 109.0
    brisk.learn(waited("ab", "", 3.0))
    assert brisk.until(Wait(100.0, {"a"})) == 109.0


def test_waiting_in_vain_does_not_make_the_next_wait_longer():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    brisk.learn(waited("a", "", 3.0))
    for _ in range(9):
        brisk.learn(waited("", "b"))
    assert brisk.until(Wait(100.0, {"a", "b"})) == 109.0


def test_where_every_message_takes_longer_than_the_floor_brisk_learns_to_wait_for_it():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    brisk.trained(0.5)
    waits = []
    for _ in range(5):
        wait = Wait(100.0, {"a", "b"})
        waits.append(brisk.until(wait) - wait.started)
        wait.answered, wait.sending = {"a", "b"}, {"a", "b"}
        if waits[-1] >= 8:
            wait.came("a", 108.0)
            wait.came("b", 108.0)
        brisk.learn(wait)
    assert waits[:2] == pytest.approx([5, 10])
    assert (min(waits[1:]) > 8, max(waits) < 24, brisk.misses) == (True, True, {})


def test_a_wait_that_was_too_short_grows_to_the_deadline_and_no_further():
    brisk = Brisk(Limits(deadline=60, floor=5, grace=1))
    for _ in range(9):
        brisk.learn(waited("a", "bcd", 0.1, sending={"b"}))
    assert brisk.longest == pytest.approx(60)
    assert sorted(brisk.misses) == ["c", "d"]


def test_one_slow_line_among_many_makes_nobody_wait_longer():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    for _ in range(9):
        brisk.learn(waited("abc", "d", 0.1, sending={"d"}))
    assert (brisk.longest, brisk.misses) == (5, {})


def test_where_nobody_has_trained_as_fast_the_wait_grows_but_those_who_are_late_have_missed():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    brisk.learn(waited("", "ab", answered={"a", "b"}))
    assert (brisk.longest, brisk.misses) == (10, {"a": 1, "b": 1})


def test_one_that_refuses_does_not_start_the_clock_for_the_others():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    wait = Wait(100.0, set("ab"))
    wait.lose("a", 100.1)
    assert brisk.until(wait) == 105.0
    brisk.learn(wait)
    assert brisk.misses == {"a": 1, "b": 1}


def test_those_who_refuse_are_not_among_the_half_that_must_have_come():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    wait = Wait(100.0, set("abcd"))
    wait.came("a", 101.0)
    wait.lose("b", 102.0)
    assert brisk.until(wait) == 105.0
    wait.lose("c", 103.0)
    assert (brisk.until(wait), wait.latest) == (104.0, 101.0)


def test_the_final_exchange_has_the_deadline_for_those_who_answer():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1, linger=60))
    brisk.learn(waited("abcd", "", 0.1))
    wait = Wait(100.0, set("abcd"), final=True)
    assert brisk.until(wait) == 160.0, "nobody can be reached"
    wait.answered = {"a"}
    for peer in "bcd":
        wait.came(peer, 101.0)
    assert brisk.until(wait) == 700.0
    brisk.misses = {"a": 2}
    assert brisk.until(wait) == 101.0


def test_where_training_takes_minutes_brisk_waits_in_proportion():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    brisk.trained(120.0)
    wait = Wait(1000.0, set("abcd"))
    assert brisk.until(wait) == 1360.0
    for peer in "ab":
        wait.came(peer, 1001.0)
    assert brisk.until(wait) == 1031.0
    for _ in range(2):
        brisk.learn(waited("ab", "c", 1.0))
    assert brisk.until(Wait(1000.0, {"c"})) == 1030.0
    brisk.trained(220.0)
    assert (brisk.pace, brisk.grace) == (140.0, 35.0)
    for _ in range(20):
        brisk.trained(600.0)
    assert brisk.until(Wait(1000.0, set("abd"))) == 1600.0


def test_where_training_takes_moments_brisk_waits_as_its_limits_say():
    brisk = Brisk(Limits(deadline=600, floor=5, grace=1))
    brisk.trained(1.5)
    wait = Wait(100.0, set("abcd"))
    assert (brisk.until(wait), brisk.grace) == (105.0, 1.0)


def test_a_round_played_again_must_give_the_published_message(tmp_path):
    outgoing = Outgoing(tmp_path, 4)
    first = outgoing.commit(3, b"message")
    again = Outgoing(tmp_path, 4)
    assert again.commit(3, b"message") == first
    with pytest.raises(DivergedReplayError, match="round 3"):
        again.commit(3, b"another")
    assert again.get(3).chunk(2, 3) == b"ssa"


def test_a_message_made_under_another_list_may_be_taken_back_and_made_anew(tmp_path):
    Outgoing(tmp_path, 4).commit(3, b"under the old list")
    again = Outgoing(tmp_path, 4)
    again.withdraw(3)
    assert Outgoing(tmp_path, 4).get(3) is None
    assert again.commit(3, b"under the new one").chunk(0, 9) == b"under the"
    again.withdraw(7)


def test_only_the_window_is_kept(tmp_path):
    outgoing = Outgoing(tmp_path, 4)
    for round in range(10):
        outgoing.commit(round, b"%d" % round)
    assert [outgoing.get(r) is not None for r in (5, 6, 9, 10)] == [False, True, True, False]


def site_facts(id, right, gain=None):
    confusion = [[right, 10 - right], [10 - right, right]]
    facts = {
        "id": id, "federation": "test", "epoch": 1, "policy": "brisk", "experiment_sha256": "e", "algorithm": "el",
        "final": {"confusion": confusion}, "images": 20,
        "ledger": {
            "c": {"heard": 1, "late": 2, "missed": 1, "refused": {}, "bytes": 9, "retries": 0},
            "d": {"heard": 1, "late": 0, "missed": 0, "refused": {"too-large": 3, "stranger": 1}},
        },
    }  # fmt: skip
    return facts if gain is None else facts | {"gain": gain}


def test_fairness_across_sites_is_computed_from_signed_files_alone(command, tmp_path):
    made = federation(tmp_path)
    paths = []
    for id, right, gain in (("a", 9, 0.1), ("b", 6, -0.2)):
        site = Site.load(made.home(id))
        site.run.mkdir()
        paths.append(write_site(site, site_facts(id, right, gain)))
    found = compare_sites(paths, made.home("a") / "membership.json")
    assert (found["mean"], found["worst"], found["losers"]) == (0.75, 0.6, ["b"])
    assert found["spread"] == pytest.approx(0.3)
    assert found["missing"] == ["c"]
    assert compare_sites(paths)["missing"] == ["c", "d"], "whom the sites know of"
    assert (found["sites"][0]["missed"], found["sites"][0]["refused"]) == ({"c": 3}, {"d": 4})
    ended = command("network", "report", *paths)
    assert (ended.code, "c 3x" in ended.out, "d 4x" in ended.out) == (0, True, True)
    assert "without c, d, whose files are not among these" in ended.out
    forged = json.loads(paths[1].read_text())
    forged["site"]["gain"] = 0.5
    paths[1].write_text(json.dumps(forged))
    with pytest.raises(ExperimentError, match="signature"):
        compare_sites(paths)
    by_another = signed_site(Site.load(made.home("b")), site_facts("a", 9))
    assert compare_sites([by_another])["mean"] == 0.9, "without a list, nobody knows whose key it is"
    with pytest.raises(ExperimentError, match="not signed with the key that the membership list gives 'a'"):
        compare_sites([by_another], made.home("a") / "membership.json")


def signed_site(site, facts):
    """A site.json with a good signature, whatever it says."""
    key = identity.load_signing_key(site.home / identity.SIGNING_KEY)
    content = b"facade site 1\n" + json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    signed = {"site": facts, "signing_key": identity.public_half(key), "signature": key.sign(content).hex()}
    path = site.home / "site.json"
    path.write_text(json.dumps(signed))
    return path


@pytest.mark.parametrize(
    "changed",
    [
        {"gain": float("nan")},
        {"note": float("inf")},
        {"images": None},
        {"ledger": {"c": {"late": 1}}},
        {"final": {"confusion": [[1, 2], [3]]}},
        {"final": {"confusion": [[1, -2], [3, 4]]}},
        {"final": {"confusion": [[0, 0], [0, 0]]}},
        {"final": {"confusion": []}},
        {"final": {"confusion": [[10**30]]}},
    ],
    ids=str,
)
def test_a_signed_file_that_makes_no_sense_is_named(changed, tmp_path):
    site = Site.load(federation(tmp_path).home("a"))
    assert compare_sites([signed_site(site, site_facts("a", 9))])["mean"] == 0.9
    path = signed_site(site, site_facts("a", 9) | changed)
    with pytest.raises(ExperimentError, match=rf"{path} is not a site.json \(.*\); a site writes one"):
        compare_sites([path])


def test_every_site_counts_once_and_all_by_the_same_classes(tmp_path):
    made = federation(tmp_path)
    paths = [signed_site(Site.load(made.home(id)), site_facts("a", 9)) for id in "ab"]
    with pytest.raises(ExperimentError, match="more than one file is of a; give one file for each site"):
        compare_sites(paths)
    other = site_facts("b", 9) | {"final": {"confusion": [[1]]}}
    with pytest.raises(ExperimentError, match="different federations or experiments"):
        compare_sites([paths[0], signed_site(Site.load(made.home("b")), other)])


def on_a_free_port():
    """Metrics, and their port: it was free a moment ago, and another one is taken if it is not any more."""
    for _ in range(5):
        with kept_ports(1) as (port,):
            pass
        with suppress(ExperimentError):
            return Metrics(port), port
    raise AssertionError("no port stays free")


def test_metrics_are_served_on_this_machine_alone():
    metrics, port = on_a_free_port()
    assert metrics._server.server_address == ("127.0.0.1", port)
    metrics.rejected.labels(Reason.NOT_FINITE.word).inc()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        text = page.read().decode()
    metrics.close()
    assert 'facade_rejected_total{reason="not-finite"} 1.0' in text
    for name in ("round", "round_seconds", "neighbours_heard", "heard_bytes", "retries", "deadline_misses"):
        assert f"facade_{name}" in text
    assert "facade_certificate_days_left" in text
    assert "facade_chosen_head" in text


def test_of_a_flood_the_first_hundred_and_every_power_of_two_are_written(tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    for _ in range(1000):
        journal.refused("b", "busy")
    journal.refused("b", "stranger")
    journal.close()
    written = [(event["reason"], event["count"]) for event in lines(tmp_path / "log.jsonl")]
    assert written == [("busy", count) for count in [*range(1, 101), 128, 256, 512]] + [("stranger", 1)]
    assert journal.refusals == {"busy": 1000, "stranger": 1}


def test_a_model_that_starts_with_infinities_is_refused_before_others_refuse_it(tmp_path):
    settings = ("topology.degree=2", 'model.name="peers.makers:Masked"', "model.head=fc", "algorithm.name=el")
    with founded(tiny('data.clusters="3:1"', *settings), tmp_path, "patient", QUICK) as made:
        site = Site.load(made.homes[0])
    with pytest.raises(ExperimentError, match="'mask' of the model holds infinities or NaN"):
        set_up(site, site.membership())


def test_a_half_line_of_a_killed_process_is_ended_and_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"event":"whole"}\n{"event":"ha')
    journal = Journal(path)
    journal.write("next", round=3)
    journal.close()
    assert [event["event"] for event in lines(path)] == ["whole", "next"]


class NearlyFull:
    """A file on a disk that takes a few bytes of a line at a time, or for a moment none at all."""

    def __init__(self, file, takes):
        self.file, self.takes, self.closed = file, takes, False

    def write(self, content):
        takes = self.takes.pop(0) if self.takes else len(content)
        if not takes:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(content[:takes])


def test_a_line_that_a_disk_takes_in_parts_is_whole_and_half_a_line_spoils_no_other(tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    file, journal._file = journal._file, NearlyFull(journal._file, [5, 7])
    journal.write("in parts")
    journal._file.takes = [9, 0]
    with pytest.raises(StorageError, match="No space left on device"):
        journal.write("half")
    journal.write("after it")
    file.close()
    assert [event["event"] for event in lines(tmp_path / "log.jsonl")] == ["in parts", "after it"]


def test_a_log_on_a_full_disk_stops_with_a_sentence(tmp_path):
    journal = Journal(tmp_path / "log.jsonl")
    with Path("/dev/full").open("wb", buffering=0) as full:
        journal._file.close()
        journal._file = full
        with pytest.raises(StorageError, match=r"log.jsonl could not be written: No space left on device"):
            journal.write("committed")
    with pytest.raises(StorageError, match=r"could not be written: File exists"):
        Journal(tmp_path / "log.jsonl" / "log.jsonl")


def test_a_second_process_of_a_site_is_told_of_the_first(tmp_path):
    home = federation(tmp_path).home("a")
    with RunDirectory(home / "run").claimed(), pytest.raises(RunDirectoryError) as refused:
        run(home)
    assert "another process is computing this run" in str(refused.value)
    assert "--out" not in str(refused.value)
