"""Sites as their operators meet them: the commands, their own data, a good leave."""

import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from facade import run
from facade.analysis import metrics
from facade.errors import FacadeError, StoppedError
from facade.peers import local_network
from facade.peers.after.outcome import Outcome
from facade.peers.local_network import Processes, founded
from facade.peers.trust.membership import Limits, load
from facade.peers.trust.site import Site, set_up
from facade.runtimes.recorder import Quiet
from peers.makers import QUICK, kept_ports, leaves_on_sigterm, logged, stays, tiny, until, vanishes


@pytest.fixture
def ports():
    with kept_ports(3) as kept:
        yield kept


def own_data(path, names, seed):
    random = np.random.default_rng(seed)
    y = np.arange(60) % len(names)
    x = np.clip(random.normal(60 + 100 * y[:, None, None], 20, (60, 8, 8)), 0, 255).astype(np.uint8)
    np.savez(path, x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:], classes=np.array(names))


def test_a_federation_is_founded_with_commands_and_sites_map_classes_by_name(command, tmp_path, ports):
    ended = command("network", "admin", "-o", tmp_path / "admin.key")
    public = ended.out.split()[-1]
    assert command("network", "public", tmp_path / "admin.key").out == f"{public}\n"
    homes = {id: tmp_path / id for id in ("h1", "h2", "h3")}
    for (id, home), port in zip(homes.items(), ports, strict=True):
        ended = command("node", "init", "--id", id, "--address", f"127.0.0.1:{port}", "--admin", public, "--home", home)
        assert ended.code == 0
    found = '[algorithm]\nname = "facade"\nheads = "auto"\n'
    given = '[data]\nsource = "given"\nskew = "none"\n[topology]\nname = "complete"\n'
    (tmp_path / "exp.toml").write_text(given + found)
    (tmp_path / "schema.json").write_text(
        json.dumps({"classes": ["ill", "well"], "shape": [1, 8, 8], "mean": [0.5], "std": [0.5]})
    )
    joins = [home / f"{id}.join" for id, home in homes.items()]
    arguments = ["--experiment", tmp_path / "exp.toml", "--key", tmp_path / "admin.key", "-o", tmp_path / "list.json"]
    ended = command("network", "build", *joins, *arguments)
    assert (ended.code, "add --schema" in ended.err) == (2, True)
    ended = command("network", "build", *joins, *arguments, "--schema", tmp_path / "schema.json")
    assert ended.code == 0, ended.err
    home = homes["h1"]
    (home / "membership.json").write_text((tmp_path / "list.json").read_text())
    own_data(tmp_path / "own.npz", ["well", "ill"], 1)
    node = (home / "node.toml").read_text() + f'\n[data]\nsource = "npz"\nroot = "{tmp_path}"\npath = "own.npz"\n'
    (home / "node.toml").write_text(node)
    plain = (home / "node.toml").read_text()
    (home / "node.toml").write_text(plain.partition("\n[data]")[0])
    ended = command("node", "doctor", "--home", home)
    assert ended.code == 1
    assert "node.toml does not say where this site's data are" in ended.out
    (home / "node.toml").write_text(plain)
    ended = command("node", "doctor", "--home", home)
    assert ended.code == 0, "the first to be up finds nobody, and that is no problem"
    assert f"note  h2 at 127.0.0.1:{ports[1]} does not answer" in ended.out
    assert "agree with this site's data (40 training samples)" in ended.out.replace("\n", " ")
    site = Site.load(home)
    setup = set_up(site, site.membership())
    assert setup.federation.training.samples.y[:2].tolist() == [1, 0]
    change = ["--key", tmp_path / "admin.key", "--remove", "h3", "--from-round", 1, "-o", tmp_path / "next.json"]
    ended = command("network", "update", tmp_path / "list.json", *change)
    assert (ended.code, load(tmp_path / "next.json", [public]).n) == (0, 2)
    own_data(tmp_path / "own.npz", ["well", "dead"], 1)
    ended = command("node", "doctor", "--home", home)
    assert "knows no class 'dead'" in ended.out.replace("\n", " ")


def test_a_network_on_this_machine_prints_the_table_and_ends_with_json(command, tmp_path):
    (tmp_path / "four.toml").write_text(tiny('data.clusters="3:1"', "topology.degree=2", "training.rounds=3").toml())
    ended = command("network", "up", "--local", 5, tmp_path / "four.toml")
    assert (ended.code, "asks for 4 nodes" in ended.err.replace("\n", " ")) == (2, True)
    ended = command("network", "up", "--local", 4, tmp_path / "four.toml", "--out", tmp_path / "net", "--json")
    assert ended.code == 0, ended.err
    assert "majority" in ended.err
    found = json.loads(ended.out)
    assert found["algorithms"]["facade"]["policy"] == "patient"
    assert (tmp_path / "net" / "report.html").read_text().startswith("<!doctype html>")
    signed = list((tmp_path / "net" / "sites").glob("n*/run/site.json"))
    ended = command("network", "report", *signed, "--json")
    assert len(json.loads(ended.out)["sites"]) == 4
    ended = command("report", *signed)
    assert (ended.code, "n0" in ended.out, "n3" in ended.out) == (0, True, True)
    home = tmp_path / "net" / "sites" / "n0"
    assert "finished" in command("node", "status", "--home", home).out
    ended = command("node", "export", "--home", home, "-o", tmp_path / "model")
    assert ended.code == 0, ended.err
    written = runpy.run_path(str(tmp_path / "model" / "model.py"))
    with torch.no_grad():
        answers = written["load"]()(torch.zeros(5, 1, 8, 8, dtype=torch.uint8))
    assert answers.shape == (5, len(written["CLASSES"]))
    weights = load_file(home / "run" / "model.safetensors")["head.weight"]
    assert torch.equal(load_file(tmp_path / "model" / "weights.safetensors")["head.weight"], weights[0])
    card = (tmp_path / "model" / "README.md").read_text()
    assert "deployed by site 'n0'" in card
    assert "by 4 sites that exchanged models for 3 rounds" in card


def test_a_site_that_is_not_finished_has_no_model_to_take_home(command, tmp_path):
    with founded(tiny('data.clusters="2:1"'), tmp_path, "patient", QUICK) as made:
        ended = command("node", "export", "--home", made.homes[0], "-o", tmp_path / "model")
    assert ended.code == 2
    assert "a site has a model when its run is finished: facade node up" in ended.err


def test_a_site_leaves_in_good_order_on_sigterm_and_comes_back(tmp_path):
    experiment = tiny('data.clusters="3:1"', "topology.degree=2", "training.rounds=60", "evaluation.every=60")
    with founded(experiment, tmp_path, "patient", QUICK) as made, Processes(made.homes[1:]) as processes:
        process = processes.start(made.homes[0], leaves_on_sigterm)
        for home, event in processes.events():
            if home == made.homes[0] and event.get("rows") and process.is_alive():
                process.terminate()
                process.join()
                assert process.exitcode == 0
                break
        assert Outcome.load(made.homes[0] / "run") is None
        processes.start(made.homes[0])
        failures = [(home.name, event["failed"]) for home, event in processes.events() if "failed" in event]
        assert failures == [("n0", "left in good order; to come back: facade node up")]
    assert all(Outcome.load(home / "run") for home in made.homes)


def test_a_site_that_dies_without_a_word_ends_a_network_on_this_machine(tmp_path):
    with Processes([]) as processes:
        processes.start(tmp_path / "n0", stays)
        processes.start(tmp_path / "n1", vanishes)
        with pytest.raises(FacadeError, match="site n1 ended with code 7; see "):
            local_network._follow(processes, None)
    assert not multiprocessing.active_children()


def test_a_network_on_this_machine_that_is_told_to_stop_leaves_no_site_behind(tmp_path):
    class Terminated(Quiet):
        def round(self, done, rounds):
            os.kill(os.getpid(), signal.SIGTERM)

    experiment = tiny('data.clusters="1:1"', "topology.name=complete", "training.rounds=50", "evaluation.every=50")
    with pytest.raises(StoppedError) as stopped:
        local_network.run(experiment, tmp_path / "net", progress=Terminated())
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    assert not multiprocessing.active_children()


@pytest.fixture
def up():
    """`facade node up` as its operator starts it; none outlives its test."""
    with ExitStack() as started:

        def start(home, *more, program=("-m", "facade")):
            command = [sys.executable, *program, "node", "up", "--home", str(home), *more]
            site = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            started.enter_context(site)
            started.callback(site.kill)
            return site

        yield start


def on_free_ports(attempt):
    """What the sites of an attempt say, given its number: their ports were free a moment ago. It is made again
    where somebody has taken one meanwhile."""
    for number in range(5):
        said = attempt(number)
        if not any("cannot be listened on" in text for text in said):
            return
    raise AssertionError(said)


TWO = tiny('data.clusters="1:1"', "topology.name=complete", "training.rounds=3", "evaluation.every=3")


def test_the_command_plays_a_site_and_says_what_joining_was_worth(tmp_path, up):
    def played(number):
        nonlocal homes
        with founded(TWO, tmp_path / str(number), "patient", QUICK) as made:
            homes = made.homes
        sites = [up(home, "--baseline") for home in homes]
        said = [site.communicate()[0] for site in sites]
        taken = any("cannot be listened on" in text for text in said)
        assert taken or [site.returncode for site in sites] == [0, 0], said
        assert taken or all("round 3 of 3  " in text and "accuracy after the final exchange" in text for text in said)
        return said

    homes = []
    on_free_ports(played)
    finals = [
        [row for row in run(experiment).rows if row["kind"] == "final"]
        for experiment in (TWO, TWO.with_("algorithm.name=local"))
    ]
    for home, final, own in zip(homes, *finals, strict=True):
        told = json.loads((home / "run" / "site.json").read_text())["site"]
        assert told["alone"] == {"confusion": own["confusion"], "measures": own["measures"]}
        assert told["final"]["measures"] == final["measures"]
        both = (told["final"]["confusion"], told["alone"]["confusion"])
        together, apart = (metrics.accuracy(np.array([confusion]))[0] for confusion in both)
        assert told["gain"] == pytest.approx(together - apart)


def test_the_command_says_that_it_waits_and_leaves_in_good_order_when_it_is_told_to(tmp_path, up, command):
    def told(number):
        with founded(TWO, tmp_path / str(number), "patient", QUICK) as made:
            home = made.homes[0]
        site = up(home)
        until(lambda: logged(home, "waiting") or site.poll() is not None)  # the other one never comes
        status = command("node", "status", "--home", home).out
        site.terminate()
        said = site.communicate()[0]
        if "cannot be listened on" not in said:
            assert site.returncode == 0, said
            waited, left = said.splitlines()
            assert waited == "waiting for n1, at most 90 s"
            assert left == "left in good order; to come back: facade node up"
            assert status.startswith("n0: round 0 of 3, epoch 1, policy patient")
        return [said]

    on_free_ports(told)


def test_the_command_says_that_it_pauses_leaves_when_told_to_and_goes_on_alone_if_its_operator_will(
    tmp_path, up, command
):
    def told(number):
        with founded(TWO, tmp_path / str(number), "brisk", Limits(deadline=1, floor=0.1, linger=1)) as made:
            home = made.homes[0]
        site = up(home)
        until(lambda: logged(home, "paused") or site.poll() is not None)  # the other one never comes
        site.terminate()
        said = site.communicate()[0]
        if "cannot be listened on" not in said:
            assert site.returncode == 0, said
            few = "1 of 2 members are there, itself included, and 2 must be (absent: n1)"
            assert said.splitlines() == [
                "waiting for n1, at most 1 s",
                "beginning without n1: no answer",
                f"round 1: pausing, for {few}; going on when more answer",
                "left in good order; to come back: facade node up",
            ]
            assert logged(home, "mixed") == []
            status = command("node", "status", "--home", home).out.splitlines()
            assert status[:2] == ["n0: round 0 of 3, epoch 1, policy brisk", f"  pausing: {few}"]
            on_its_own = command("node", "up", "--home", home, "--without-quorum")
            said += on_its_own.err
            assert "cannot be listened on" in said or on_its_own.code == 0, said
        return [said]

    on_free_ports(told)


ENDLESS_TRAINING = """
import sys, threading
from pathlib import Path
from facade.cli import main
from facade.learning.stacked import Stacked

def train(*_):
    Path(sys.argv[-1], "trains").touch()
    threading.Event().wait()

Stacked.fit = train
main()
"""


def test_the_command_does_not_wait_for_its_training_when_it_is_told_to_leave(tmp_path, up):
    def told(number):
        with founded(TWO, tmp_path / str(number), "patient", Limits(deadline=1)) as made:
            home = made.homes[0]
        site = up(home, program=("-c", ENDLESS_TRAINING))
        until(lambda: (home / "trains").exists() or site.poll() is not None)
        site.terminate()
        said = site.communicate(timeout=60)[0]  # it would never end
        taken = "cannot be listened on" in said
        assert taken or (site.returncode, "left in good order" in said) == (0, True), said
        return [said]

    on_free_ports(told)
