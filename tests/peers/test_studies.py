"""Several studies in one site: one after the other, side by side, killed, failing, put away. All sites with more than
one under way are real processes that talk over TLS."""

import json
import shutil
import threading
from pathlib import Path

import pytest

from facade import run
from facade.core import tree
from facade.errors import ExperimentError
from facade.peers.after import archive
from facade.peers.after.outcome import Outcome
from facade.peers.after.study_facts import all_studies, to_play
from facade.peers.local_network import Processes, founded
from facade.peers.node.side_by_side import Asked, run_side_by_side
from facade.peers.trust import identity
from facade.peers.trust.founding import Terms, finish_rotation, found_federation, rotate_site
from facade.peers.trust.identity import Join
from facade.peers.trust.membership import Change, changed, load
from facade.peers.trust.new_study import add_study
from facade.peers.trust.site import Settings
from facade.peers.trust.studies import refuse_same_subject, study_of
from facade.runs.run_directory import RunDirectory
from peers.makers import QUICK, after_training, federation, logged, tiny, until
from peers.memory import opened, run_all

THREE = ('data.clusters="2:1"', "topology.degree=2", "training.rounds=4", "evaluation.every=2")
FIRST = tiny(*THREE)
SECOND = tiny(*THREE, "algorithm.name=el", "seed=5").model_copy(update={"name": "lungs"})


def plays_all(home, events):
    """A site with all its studies, as `facade node up` plays it; how they ended, through the pipe."""
    ends = run_side_by_side(Path(home), to_play(Path(home), []), Asked(shared_port=True))
    events.send_bytes(json.dumps({end.study.name: str(end.error or "") for end in ends}).encode())


def stops_in_round(home, events, round):
    """The same; no study gets beyond its training of a round."""
    after_training(lambda now: threading.Event().wait() if now == round else None)
    plays_all(home, events)


def list_of(sites, experiment, base):
    """The signed list of a further federation of the same sites."""
    joins = [Join.load(home / f"{home.name}.join") for home in sites.homes]
    admin = Settings.load(sites.homes[0]).admins[0]
    terms = Terms(experiment.name, [admin], "patient", QUICK)
    return found_federation(joins, experiment, terms).sign([base / "admin.key"])


def put_in_place(sites, name, text):
    for home in sites.homes:
        directory = study_of(home, name).directory
        directory.mkdir(parents=True)
        (directory / "membership.json").write_text(text)


def ended(processes):
    """How the studies of every site ended, by site and study."""
    said = {}
    for home, event in processes.events():
        if "ended" not in event:
            said[home.name] = event
    return said


def state_of(sites, name):
    """The SHA-256 over all sites' final states of a study."""
    outcomes = [Outcome.load(study_of(home, name).run) for home in sites.homes]
    return tree.joint([outcome.state_sha256 for outcome in outcomes])


def simulated(experiment):
    return run(experiment).summary["state_sha256"]


def states(home):
    return {facts.study: facts.state for facts in all_studies(home)}


def test_two_studies_side_by_side_reach_the_bits_of_the_simulator_also_after_kill_9(tmp_path):
    with founded(FIRST, tmp_path, "patient", QUICK) as sites:
        put_in_place(sites, "lungs", list_of(sites, SECOND, tmp_path))
        assert states(sites.homes[0]) == {"main": "waiting", "lungs": "waiting"}
        victim = sites.homes[0]
        with Processes([]) as processes:
            for home in sites.homes[1:]:
                processes.start(home, plays_all)
            process = processes.start(victim, stops_in_round, 2)
            homes = [study_of(victim, name).directory for name in ("main", "lungs")]
            until(lambda: all(len(logged(home, "committed")) == 2 for home in homes))
            assert states(victim) == {"main": "running", "lungs": "running"}
            process.kill()
            process.join()
            assert states(victim) == {"main": "stopped", "lungs": "stopped"}
            processes.start(victim, plays_all)
            assert ended(processes) == {home.name: {"main": "", "lungs": ""} for home in sites.homes}
    assert state_of(sites, "main") == simulated(FIRST)
    assert state_of(sites, "lungs") == simulated(SECOND)
    assert [len(logged(home, "started")) for home in homes] == [2, 2]


@pytest.fixture(scope="module")
def one_after_the_other(tmp_path_factory):
    """Three sites that have played `main` and then, in the same homes, `lungs`; and the list of the latter."""
    base = tmp_path_factory.mktemp("one-after-the-other")
    with founded(FIRST, base, "patient", QUICK) as sites:
        with opened(sites.homes) as nodes:
            run_all(nodes)
        listed = base / "lungs.json"
        listed.write_text(list_of(sites, SECOND, base))
        with Processes([]) as processes:
            for home in sites.homes:
                add_study(home, "lungs", listed)
                assert [study.name for study in to_play(home, [])] == ["lungs"]
                processes.start(home, plays_all)
            assert ended(processes) == {home.name: {"lungs": ""} for home in sites.homes}
    return sites, listed


def test_one_study_after_the_other_in_one_home_reaches_the_bits_of_the_simulator(one_after_the_other, command):
    sites, _ = one_after_the_other
    assert (state_of(sites, "main"), state_of(sites, "lungs")) == (simulated(FIRST), simulated(SECOND))
    for home in sites.homes:
        assert to_play(home, []) == []
        up = command("node", "up", "--home", home)
        assert (up.code, up.out.startswith(f"All studies of {home} are finished")) == (0, True)


def test_both_are_listed_and_shown(one_after_the_other, command):
    home = one_after_the_other[0].homes[0]
    shown = json.loads(command("node", "studies", "--home", home, "--json").out)
    assert [(one["study"], one["federation"], one["state"], one["round"], one["rounds"]) for one in shown] == [
        ("main", "tiny", "finished", 4, 4),
        ("lungs", "lungs", "finished", 4, 4),
    ]
    assert all(0 < one["accuracy"] <= 1 for one in shown)
    status = json.loads(command("node", "status", "--home", home, "--json").out)
    assert {name: facts["finished"] for name, facts in status.items()} == {"main": True, "lungs": True}
    assert json.loads(command("node", "status", "--home", home, "--study", "lungs", "--json").out)["id"] == "n0"
    assert "lungs: n0: finished, epoch 1" in command("node", "status", "--home", home).out


def test_what_is_done_with_one_study_says_which_or_asks(one_after_the_other, tmp_path, command):
    sites, listed = one_after_the_other
    home = sites.homes[0]
    export = command("node", "export", "--home", home, "-o", tmp_path / "model")
    assert (export.code, "several studies (main, lungs); say which one, such as: facade" in export.err) == (2, True)
    (study_of(home, "lungs").run / "outcome.json").rename(tmp_path / "aside")
    export = command("node", "export", "--home", home, "-o", tmp_path / "model", "--study", "lungs")
    (tmp_path / "aside").rename(study_of(home, "lungs").run / "outcome.json")
    assert f"{home}/studies/lungs/run/model.safetensors is not there" in export.err, "that study is looked at"
    back = command("node", "rollback", "--to-round", 2, "--home", home, "--study", "lungs")
    assert (back.code, "(epoch 1) goes on from round 0, not back to round 2" in back.err) == (2, True)
    log, replayed = study_of(home, "lungs").run / "log.jsonl", ("--replay", home)
    audit = command("network", "audit", log, "--membership", listed, *replayed)
    assert audit.code == 0, "the study is found by its list"


def test_finished_studies_are_put_away_whole_stay_listed_and_are_not_begun_again(
    one_after_the_other, tmp_path, command
):
    sites, listed = one_after_the_other
    home = tmp_path / "n0"
    shutil.copytree(sites.homes[0], home)
    for name in ("main", "lungs"):
        before = sorted(path.name for path in study_of(home, name).run.iterdir())
        moved = Path(command("node", "archive", "--home", home, "--study", name).out.removeprefix("Moved to ").strip())
        assert (moved.parent, moved.name.startswith(f"{name}-20")) == (home / "archive", True)
        assert sorted(path.name for path in (moved / "run").iterdir()) == before
        assert (moved / "membership.json").exists()
    assert not study_of(home, "main").is_there
    assert not study_of(home, "lungs").directory.exists()
    table = [line.split() for line in command("node", "studies", "--home", home).out.splitlines()]
    assert [cells[:7] for cells in table if "archived" in cells] == [
        [facts.study, "archived", facts.federation, "1", "4", "of", "4"] for facts in all_studies(home)
    ]
    again = command("node", "add-study", "lungs", listed, "--home", home)
    assert (again.code, "is the list of study 'lungs-20" in again.err) == (2, True)


@pytest.fixture
def finished(tmp_path):
    """Two sites that have finished a run, one after another in memory."""
    rounds = ("training.rounds=1", "evaluation.every=1", "algorithm.warmup=0")
    two = ('data.clusters="1:1"', "topology.name=complete", *rounds)
    with founded(tiny(*two), tmp_path, "patient", QUICK) as sites:
        with opened(sites.homes) as nodes:
            run_all(nodes)
        yield sites, tiny(*two, "seed=7").model_copy(update={"name": "lungs"})


def test_a_list_of_another_federation_where_a_run_is_finished_is_no_silent_end(finished, tmp_path, command):
    sites, other = finished
    home = sites.homes[0]
    (home / "membership.json").write_text(list_of(sites, other, tmp_path))
    up = command("node", "up", "--home", home)
    assert up.code == 2
    assert f"{home}/run holds a run of 'tiny' (epoch 1), and the list in {home}/membership.json, of 'lungs'" in up.err
    assert "facade node archive --study main, or give the list a study of its own with: facade node add-study" in up.err
    doctor = command("node", "doctor", "--home", home)
    assert (doctor.code, "PROBLEM" in doctor.out, "does not go on from it" in doctor.out) == (1, True, True)
    assert states(home) == {"main": "broken"}
    added = command("node", "add-study", "lungs", home / "membership.json", "--home", home)
    assert (added.code, "the list of 'lungs', epoch 1, 2 members" in added.out) == (0, True), added.err
    assert "It is played with this site's [data]; for others, add [study.lungs.data]" in added.out
    assert states(home) == {"main": "finished", "lungs": "waiting"}, "each has its own list"


def test_where_the_finished_run_is_put_away_the_list_that_lies_there_is_begun(finished, tmp_path, command):
    sites, other = finished
    for home in sites.homes:
        (home / "membership.json").write_text(list_of(sites, other, tmp_path))
        assert command("node", "archive", "--study", "main", "--home", home).code == 0
        (kept,) = (home / "archive").iterdir()
        assert load(kept / "membership.json", Settings.load(home).admins).federation == "tiny"
        assert states(home) == {"main": "waiting", kept.name: "archived"}
    with opened(sites.homes) as nodes:
        run_all(nodes)
    assert state_of(sites, "main") == simulated(other)


def test_what_cannot_be_put_away_is_said(finished, tmp_path, command):
    sites, other = finished
    home = sites.homes[0]
    put_in_place(sites, "lungs", list_of(sites, other, tmp_path))
    early = command("node", "archive", "--study", "lungs", "--home", home)
    assert (early.code, "is not finished" in early.err, "--give-up" in early.err) == (2, True, True)
    unknown = command("node", "archive", "--study", "lung", "--home", home)
    assert (unknown.code, "unknown study 'lung'; did you mean 'lungs'?" in unknown.err) == (2, True)
    with RunDirectory(home / "run").claimed():
        running = command("node", "archive", "--study", "main", "--home", home)
    assert (running.code, "is being played; stop the node with SIGTERM" in running.err) == (2, True)
    assert command("node", "archive", "--study", "lungs", "--give-up", "--home", home).code == 0
    assert [state for name, state in states(home).items() if name.startswith("lungs")] == ["archived"]


def test_an_archive_that_was_interrupted_goes_on(finished, command, monkeypatch):
    home = finished[0].homes[0]
    replace = archive.os.replace

    def interrupted(source, target):
        if Path(source).name == "run":
            raise OSError(5, "the machine stops")
        replace(source, target)

    monkeypatch.setattr(archive.os, "replace", interrupted)
    assert "could not be written" in command("node", "archive", "--study", "main", "--home", home).err
    monkeypatch.undo()
    assert command("node", "archive", "--study", "main", "--home", home).code == 0
    (kept,) = (home / "archive").iterdir()
    assert sorted(path.name for path in kept.iterdir()) == ["membership.json", "run"]


def test_a_study_that_fails_does_not_stop_the_others_and_is_named(finished, tmp_path, command):
    sites, other = finished
    put_in_place(sites, "lungs", list_of(sites, other, tmp_path))
    third = other.model_copy(update={"name": "hearts", "seed": 9})
    put_in_place(sites, "hearts", list_of(sites, third, tmp_path))
    absent = '\n[study.hearts.data]\nsource = "npz"\nroot = "/nowhere"\npath = "absent.npz"\n'
    for home in sites.homes:
        (home / "node.toml").write_text("threads = 5\n" + (home / "node.toml").read_text() + absent)
    with Processes([]) as processes:
        for home in sites.homes:
            processes.start(home, plays_all)
        for says in ended(processes).values():
            assert (says["lungs"], "absent.npz" in says["hearts"]) == ("", True)
    assert state_of(sites, "lungs") == simulated(other)
    assert logged(study_of(home, "lungs").directory, "started")[0]["threads"] == 2, "two studies share five"
    (study_of(home, "lungs").run / "outcome.json").rename(tmp_path / "aside")
    (study_of(home, "lungs").run / "recovery.jsonl").unlink()
    for newest in (study_of(home, "lungs").run / "checkpoints").iterdir():
        newest.unlink()
    up = command("node", "up", "--home", home)
    assert up.code == 1
    assert "hearts: stopped: " in up.err
    assert "lungs: stopped: this site's run has begun" in up.err
    assert up.err.splitlines()[-1] == "2 of 2 studies did not come to their end: hearts, lungs"


def test_what_node_toml_says_of_a_study_holds_for_it_alone(tmp_path):
    with founded(FIRST, tmp_path, "patient", QUICK) as sites:
        home = sites.homes[0]
    text = (home / "node.toml").read_text()
    whole = Settings.load(home)
    (home / "node.toml").write_text(
        f'{text}\n[ceilings]\nrounds = 50\n[study.lungs]\nadmins = ["{"ab" * 32}"]\nallow = []\nignore = ["n2"]\n'
        '[study.lungs.data]\nsource = "digits"\n[study.lungs.ceilings]\nseconds = 5\n'
    )
    settings = Settings.load(home)
    lungs, hearts = settings.of_study("lungs"), settings.of_study("hearts")
    assert (lungs.admins, lungs.allow, lungs.ignore) == (["ab" * 32], [], ["n2"])
    assert lungs.data == {"source": "digits"}
    assert (lungs.ceilings.rounds, lungs.ceilings.seconds) == (50, 5)
    assert (hearts.admins, hearts.allow, hearts.data) == (whole.admins, whole.allow, whole.data)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[study.lungs]\nthreads = 2", "unknown key 'study.lungs.threads'"),
        ("[study.main]\nallow = []", "'main' is the study directly in the site's directory"),
        ("[study.Lungs]\nallow = []", "study 'Lungs' is not possible; use up to 32 letters"),
        ("[study.lungs]\nrequired = 2", r"[study.lungs]: required = 2 is more than the 1 admins"),
        ('[study.lungs]\nignore = ["n0"]', "ignore names this site itself"),
    ],
)
def test_mistakes_in_what_node_toml_says_of_a_study_are_one_sentence(line, says, tmp_path, command):
    with founded(FIRST, tmp_path, "patient", QUICK) as sites:
        home = sites.homes[0]
    with (home / "node.toml").open("a") as settings:
        settings.write(f"\n{line}\n")
    ended = command("node", "studies", "--home", home)
    assert (ended.code, says in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(
    ("name", "says"), [("Lungs", "is not possible; use up to 32"), ("main", "'main' is the study")]
)
def test_a_directory_that_cannot_be_a_study_is_named(name, says, tmp_path, command):
    home = federation(tmp_path).home("a")
    (home / "studies" / name).mkdir(parents=True)
    ended = command("node", "studies", "--home", home)
    assert (ended.code, f"{home}/studies/{name} cannot be a study" in ended.err, says in ended.err) == (2, True, True)


def test_the_list_of_a_further_study_must_be_signed_by_an_admin_of_that_study(finished, tmp_path, command):
    sites, other = finished
    home, listed = sites.homes[0], tmp_path / "lungs.json"
    listed.write_text(list_of(sites, other, tmp_path))
    with (home / "node.toml").open("a") as settings:
        settings.write(f'\n[study.lungs]\nadmins = ["{"ab" * 32}"]\n')
    refused = command("node", "add-study", "lungs", listed, "--home", home)
    assert (refused.code, "not signed by an admin that this site knows" in refused.err) == (2, True)
    assert "admins of study 'lungs' alone stand in node.toml after [study.lungs]" in refused.err
    assert not study_of(home, "lungs").directory.exists()


def test_a_later_list_of_a_study_is_no_study_of_its_own(finished, tmp_path, command):
    sites, _ = finished
    home, listed = sites.homes[0], tmp_path / "next.json"
    first = load(home / "membership.json", Settings.load(home).admins)
    listed.write_text(changed(first, Change(), 1).sign([tmp_path / "admin.key"]))
    refused = command("node", "add-study", "lungs", listed, "--home", home)
    assert (refused.code, "which study 'main' plays" in refused.err) == (2, True)


def test_a_list_cannot_name_a_certificate_by_which_a_member_of_another_study_would_be_shut_out(tmp_path, monkeypatch):
    monkeypatch.setattr(identity.secrets, "token_hex", lambda count: "7" * 16)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = (federation(tmp_path / name) for name in ("first", "second"))
    lungs = study_of(first.home("a"), "lungs")
    with pytest.raises(ExperimentError, match=r"of 'a' with the same subject as another one that study 'main' lists"):
        refuse_same_subject(first.home("a"), lungs, second.membership)
    refuse_same_subject(first.home("a"), lungs, first.membership)


def test_two_studies_by_the_same_list_are_refused_before_either_takes_back_the_others_messages(finished, command):
    sites, _ = finished
    home = sites.homes[0]
    put_in_place(sites, "copy", (home / "membership.json").read_text())
    up = command("node", "up", "--home", home, "--study", "copy")
    assert (up.code, "is that of 'main'" in up.err) == (2, True)


def test_a_new_certificate_is_used_when_the_lists_of_all_studies_have_it(finished, tmp_path, command):
    sites, other = finished
    home = sites.homes[0]
    put_in_place(sites, "lungs", list_of(sites, other, tmp_path))
    written = rotate_site(home, "n0")
    with pytest.raises(ExperimentError, match=r"study 'lungs' \(epoch 1\) does not have the new certificate yet"):
        finish_rotation(home, "n0")
    place = study_of(home, "lungs").list_path
    first = load(place, Settings.load(home).admins)
    rotated = changed(first, Change(rotate=[Join.load(written)]), 1)
    place.write_text(rotated.sign([tmp_path / "admin.key"]))
    finish_rotation(home, "n0")


def test_the_doctor_looks_at_every_study_and_adds_up_what_they_need(finished, tmp_path, command):
    sites, other = finished
    home = sites.homes[0]
    for number in (1, 2):
        another = other.model_copy(update={"name": f"lungs-{number}", "seed": number})
        put_in_place(sites, f"lungs-{number}", list_of(sites, another, tmp_path))
    with (home / "node.toml").open("a") as settings:
        settings.write("\n[study.lung-1]\nallow = []\n")
    doctor = command("node", "doctor", "--home", home)
    lines = [line.strip() for line in doctor.out.splitlines()]
    assert doctor.code == 0, doctor.out
    assert "ok  open files: 216 are needed, " in " ".join(lines), "of two lists with two members each"
    assert f"ok  main: finished; its results are in {home}/run" in lines
    assert "ok  lungs-2: epoch 1 of 'lungs-2', signed by a known admin" in lines
    assert any(line.startswith("note  node.toml has [study.lung-1], and there is no such study here") for line in lines)
    alone = command("node", "doctor", "--home", home, "--study", "lungs-1", "--json")
    assert all("study" not in finding for finding in json.loads(alone.out))
