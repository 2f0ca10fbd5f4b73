"""What must never be in the runtime, and what must be there before it starts."""

import ast
import json
import math
import os
import re
from pathlib import Path

import pytest

import facade
from facade import Experiment
from facade.errors import ExperimentError, RunDirectoryError
from facade.peers.after.outcome import write_site
from facade.peers.after.report import compare_sites
from facade.peers.local_network import founded
from facade.peers.node.followed_lists import FollowedLists
from facade.peers.node.journal import Journal, lines
from facade.peers.node.node import run
from facade.peers.node.outgoing import DivergedReplayError, Outgoing
from facade.peers.trust import identity
from facade.peers.trust.founding import finish_rotation, rotate_site
from facade.peers.trust.identity import Join
from facade.peers.trust.membership import Change, changed, load
from facade.peers.trust.site import Site, check_playable, foreign_names, refuse_foreign_names, set_up
from facade.runs.run_directory import RunDirectory
from peers.makers import QUICK, federation, real_node, tiny

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
    made = federation(tmp_path)
    home = made.home("a")
    listed = changed(made.membership, Change(rotate=[Join.load(rotate_site(home, "a"))]), 1)
    (home / "membership.json").write_text(listed.sign([made.admin]))
    new = [(home / f"next-{name}").read_bytes() for name in ("tls.key", "certificate.pem")]
    for name in ("tls.key", "certificate.pem", "a.join")[:moved]:
        (home / f"next-{name}").replace(home / name)
    if moved == 1:
        with pytest.raises(ExperimentError, match=r"certificate.pem does not belong to tls.key .* rotate --finish"):
            Site.load(home)
    assert command("node", "rotate", "--home", home, "--finish").code == 0
    found = Site.load(home)
    assert [found.tls_key, found.certificate] == new
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


ATTACK = {"kind": "sign-flip", "nodes": [1], "start": 0}


def test_a_site_attacks_nobody_because_a_signed_list_says_so(tmp_path):
    made = federation(tmp_path)
    listed = made.membership.model_copy(update={"experiment": made.membership.experiment | {"attack": ATTACK}})
    site = Site.load(made.home("a"))
    for refuses in (set_up, check_playable):
        with pytest.raises(ExperimentError, match=r"attack.kind = 'sign-flip', nodes = \[1\].* allow = \[\"attack\"\]"):
            refuses(site, listed)
    settings = (made.home("a") / "node.toml").read_text()
    (made.home("a") / "node.toml").write_text(settings.replace("allow = []", 'allow = ["attack"]'))
    check_playable(Site.load(made.home("a")), listed)
    omniscient = listed.experiment | {"attack": ATTACK | {"kind": "alie"}}
    with pytest.raises(ExperimentError, match="see the messages of all members, which no site does"):
        check_playable(Site.load(made.home("a")), listed.model_copy(update={"experiment": omniscient}))


def test_a_round_played_again_must_give_the_published_message(tmp_path):
    outgoing = Outgoing(tmp_path, 4)
    first = outgoing.commit(3, [b"message"])
    again = Outgoing(tmp_path, 4)
    assert again.commit(3, [b"message"]) == first
    with pytest.raises(DivergedReplayError, match="round 3"):
        again.commit(3, [b"another"])
    assert again.get(3).chunk(2, 3) == b"ssa"


def test_a_message_made_under_another_list_may_be_taken_back_and_made_anew(tmp_path):
    Outgoing(tmp_path, 4).commit(3, [b"under the old list"])
    again = Outgoing(tmp_path, 4)
    again.withdraw(3)
    assert Outgoing(tmp_path, 4).get(3) is None
    assert again.commit(3, [b"under the new one"]).chunk(0, 9) == b"under the"
    again.withdraw(7)


def test_only_the_window_is_kept(tmp_path):
    outgoing = Outgoing(tmp_path, 4)
    for round in range(10):
        outgoing.commit(round, [b"%d" % round])
    assert [outgoing.get(r) is not None for r in (5, 6, 9, 10)] == [False, True, True, False]


EXPERIMENT = 64 * "e"


def site_facts(id, right, gain=None):
    confusion = [[right, 10 - right], [10 - right, right]]
    facts = {
        "id": id, "federation": "test", "epoch": 1, "policy": "brisk", "algorithm": "el",
        "experiment_sha256": EXPERIMENT, "final": {"confusion": confusion}, "images": 20,
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
        of_list = {"experiment_sha256": Experiment.of(made.membership.experiment).hash}
        paths.append(write_site(site, site_facts(id, right, gain) | of_list))
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


def test_sites_are_compared_by_every_measure_that_their_files_hold(command, tmp_path):
    made = federation(tmp_path)
    final = site_facts("a", 9)["final"]
    told = {"auc": [0.93, 0.0004], "log_loss": [0.3, None], "calibration_error": 0.05}
    newer = signed_site(Site.load(made.home("a")), site_facts("a", 9) | {"final": final | {"measures": told}})
    older = signed_site(Site.load(made.home("b")), site_facts("b", 8))
    found = {site["id"]: site["measures"] for site in compare_sites([newer, older])["sites"]}
    assert found["a"]["auc"]["value"] == 0.93
    assert 0.87 < found["a"]["auc"]["low"] < 0.93 < found["a"]["auc"]["high"] < 0.97
    assert found["a"]["log-loss"] == {"value": 0.3, "low": None, "high": None}
    assert found["b"]["auc"]["value"] is None
    assert found["b"]["balanced-accuracy"]["value"] == 0.8
    lines = command("network", "report", newer, older).out.splitlines()
    assert [line.split()[2] for line in lines if line.startswith(("a ", "b "))] == ["0.930", "-"]


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
        {"final": {"confusion": [[9]], "measures": {"auc": [1.1, 0.0], "log_loss": [1, 1], "calibration_error": 0}}},
        {"final": {"confusion": [[9]], "measures": {"auc": None, "log_loss": [-1, 1], "calibration_error": 0}}},
        {"final": {"confusion": [[9]], "measures": {"auc": None, "log_loss": [1e999, 1], "calibration_error": 0}}},
        {"final": {"confusion": [[9]], "measures": {"auc": 0.5, "log_loss": [1, 1], "calibration_error": 0}}},
        {"final": {"confusion": [[9]], "measures": {"auc": [1, 2, 3], "log_loss": [1, 1], "calibration_error": 0}}},
        {"final": {"confusion": [[9]], "measures": {"auc": None, "log_loss": [1, -1], "calibration_error": 2}}},
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
    with pytest.raises(ExperimentError, match="are of different experiments"):
        compare_sites([paths[0], signed_site(Site.load(made.home("b")), other)])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"federation": "ward"}, "'ward' (experiment eeeeeeee, 2 classes)"),
        ({"experiment_sha256": 64 * "f"}, "'test' (experiment ffffffff, 2 classes)"),
        ({"final": {"confusion": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}}, "'test' (experiment eeeeeeee, 3 classes)"),
    ],
)
def test_files_of_another_experiment_are_named_with_both_experiments(changed, named, tmp_path):
    made = federation(tmp_path)
    own = {id: signed_site(Site.load(made.home(id)), site_facts(id, 9)) for id in "ab"}
    other = signed_site(Site.load(made.home("c")), site_facts("c", 9) | changed)
    with pytest.raises(ExperimentError) as refused:
        compare_sites([own["a"], other, own["b"]])
    assert str(refused.value) == (
        f"these files are of different experiments, 'test' (experiment eeeeeeee, 2 classes): {own['a']}, {own['b']};"
        f" {named}: {other}; compare those of one"
    )


def test_files_of_another_experiment_than_the_list_are_named(tmp_path):
    made = federation(tmp_path)
    path = signed_site(Site.load(made.home("a")), site_facts("a", 9))
    listed = Experiment.of(made.membership.experiment).hash[:8]
    says = f"{path}: of 'test' (experiment eeeeeeee, 2 classes), but the list is of 'test' (experiment {listed}, "
    with pytest.raises(ExperimentError, match=re.escape(says)):
        compare_sites([path], made.home("a") / "membership.json")


def test_a_model_that_starts_with_infinities_is_refused_before_others_refuse_it(tmp_path):
    settings = ("topology.degree=2", 'model.name="peers.makers:Masked"', "model.head=fc", "algorithm.name=el")
    with founded(tiny('data.clusters="3:1"', *settings), tmp_path, "patient", QUICK) as made:
        site = Site.load(made.homes[0])
    with pytest.raises(ExperimentError, match="'mask' of the model holds infinities or NaN"):
        set_up(site, site.membership())


def test_a_second_process_of_a_site_is_told_of_the_first(tmp_path):
    home = federation(tmp_path).home("a")
    with RunDirectory(home / "run").claimed(), pytest.raises(RunDirectoryError) as refused:
        run(home)
    assert "another process is computing this run" in str(refused.value)
    assert "--out" not in str(refused.value)
