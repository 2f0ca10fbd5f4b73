import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.conftest import tiny
from facade import run
from facade.errors import ExperimentError
from facade.runtimes.ray import cluster
from facade.testing.contract import assert_same
from runs import At

LONG = ("training.rounds=12", "evaluation.every=3")


def living(ray):
    """Process ids of the workers that host actors."""
    return [actor["Pid"] for actor in ray._private.state.actors().values() if actor["State"] == "ALIVE"]


def test_a_killed_worker_costs_a_warning_and_nothing_else(ray, simulated, tmp_path):
    experiment = tiny(*LONG, "runtime.shards=2")
    before = set(living(ray))

    def kill():
        os.kill(min(set(living(ray)) - before), signal.SIGKILL)

    with pytest.warns(UserWarning, match=r"a worker was lost .*; going on from round 6"):
        ended = cluster.run_connected(experiment, tmp_path / "run", progress=At(7, kill))
    assert_same(ended, simulated(experiment))


def test_without_a_directory_a_run_that_lost_a_worker_begins_again(ray, simulated):
    experiment = tiny("runtime.shards=2")
    before = set(living(ray))

    def kill():
        os.kill(min(set(living(ray)) - before), signal.SIGKILL)

    with pytest.warns(UserWarning, match="going on from round 0"):
        assert_same(cluster.run_connected(experiment, progress=At(2, kill)), simulated(experiment))


def test_a_machine_killed_in_the_middle_of_a_run_changes_no_bit(simulated, tmp_path):
    experiment = tiny(*LONG, "runtime.shards=3")
    (tmp_path / "tiny.toml").write_text(experiment.toml())
    command = [
        sys.executable,
        str(Path(__file__).with_name("lost_machine.py")),
        str(tmp_path / "tiny.toml"),
        str(tmp_path / "run"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert ended.returncode == 0, ended.stderr
    assert "going on from round 6 with what is left of the cluster" in ended.stdout
    assert ended.stdout.splitlines()[-1] == f"state {simulated(experiment).summary['state_sha256']}"


def test_more_shards_than_nodes_are_refused_before_anything_is_written(ray, tmp_path):
    with pytest.raises(ExperimentError, match="8 shards are more than the 7 nodes"):
        cluster.run_connected(tiny("runtime.shards=8"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def start():
    """Start a command in a session of its own; no process of it is left when the test is over."""
    with contextlib.ExitStack() as stack:

        def call(command):
            before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what nohup ignores here would be ignored there
            try:
                process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
            finally:
                signal.signal(signal.SIGHUP, before)
            stack.enter_context(process)
            stack.callback(end, process)
            return process

        def end(process):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        yield call


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_terminal_stops_a_run_after_a_round_and_it_can_go_on(number, code, start, simulated, tmp_path):
    experiment = tiny("training.rounds=400", "runtime.shards=2", "evaluation.every=400")
    (tmp_path / "tiny.toml").write_text(experiment.toml())
    where = [str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "run"), "--runtime", "ray"]
    command = [sys.executable, "-m", "facade", "run", *where]
    process = start(command)
    rows = tmp_path / "run" / "rows.jsonl"
    while not (rows.exists() and rows.stat().st_size):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
        assert process.poll() is None, process.stderr.read()
    os.killpg(process.pid, number)  # as a terminal does: to all processes of the group
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "stopped after round" in said
    assert "--resume" in said
    assert_same(run(experiment, tmp_path / "run", resume=True), simulated(experiment))
