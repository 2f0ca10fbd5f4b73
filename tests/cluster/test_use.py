"""The cluster as a person uses it: commands, what is left behind, what it takes."""

import contextlib
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.conftest import tiny
from experiments import written
from facade import Result, run
from facade.errors import ExperimentError
from facade.runtimes.ray import cluster, connection
from facade.runtimes.ray import workers as driver
from facade.runtimes.ray.errors import ClusterError
from facade.runtimes.ray.private_directory import private_directory
from facade.runtimes.ray.worker import Worker
from facade.testing.contract import assert_same

WITHOUT_RAY = "import sys; sys.modules['ray'] = None; from facade.cli import main; sys.argv[0] = 'facade'; main()"


def facade(*arguments, program="from facade.cli import main; main()", **variables):
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, env={**os.environ, **variables})


def started_with(variable):
    """Ids and command lines of the processes that were given this entry of the environment."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found[process.name] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def wait_for_the_end_of(processes):
    """For a minute each: who was told to end may take a moment."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(int(process))
            select.select([handle], [], [], 60)
            os.close(handle)


def listening(processes):
    """IPv4 addresses, also those written as IPv6, on which the processes listen."""
    inodes = set()
    for process in processes:
        for handle in Path("/proc", process, "fd").glob("*"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(handle).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:  # LISTEN
                last = fields[1].split(":")[0][-8:]
                found.add(".".join(str(int(last[i : i + 2], 16)) for i in (6, 4, 2, 0)))
    return found


def test_the_command_line_runs_and_sweeps_on_ray_and_leaves_nothing_behind(simulated, tmp_path):
    file = written(tiny(), tmp_path / "tiny.toml")
    with tempfile.TemporaryDirectory(prefix="r") as short:  # Ray's sockets want a short path
        ended = facade("run", file, "--out", tmp_path / "run", "--runtime", "ray", "--shards", "2", TMPDIR=short)
        assert ended.returncode == 0, ended.stderr
        assert_same(Result.load(tmp_path / "run"), simulated(tiny()))
        assert 'name = "ray"' in (tmp_path / "run" / "experiment.toml").read_text()
        swept = facade("sweep", file, "--seeds", "1,2", "--out", tmp_path / "sweep", "--runtime", "ray", TMPDIR=short)
        assert swept.returncode == 0, swept.stderr
        for seed in (1, 2):
            (found,) = (tmp_path / "sweep").glob(f"*-seed{seed}")
            assert_same(Result.load(found), simulated(tiny(f"seed={seed}")))
        wait_for_the_end_of(started_with(f"TMPDIR={short}"))
        assert started_with(f"TMPDIR={short}") == {}
        assert list(Path(short).iterdir()) == []


def test_without_the_extra_one_sentence_says_what_to_install(tmp_path):
    file = written(tiny(), tmp_path / "tiny.toml")
    ended = facade("run", file, "--out", tmp_path / "run", "--runtime", "ray", program=WITHOUT_RAY)
    assert ended.returncode == 2
    assert ended.stderr.strip() == "error: the Ray runtime needs an extra: pip install 'facade-dl[ray]'"
    assert not (tmp_path / "run").exists()


def test_an_address_is_for_ray(tmp_path):
    with pytest.raises(ExperimentError, match=r"runtime.name = 'ray'"):
        run(tiny(), address="127.0.0.1:1")
    with pytest.raises(ExperimentError, match="give the cluster's head as host:port"):
        connection._options("ray://head:10001")


def test_a_cluster_without_a_token_for_it_is_refused_in_one_sentence(tmp_path):
    file, home = written(tiny(), tmp_path / "tiny.toml"), {"HOME": str(tmp_path), "RAY_AUTH_TOKEN": ""}
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        where = f"127.0.0.1:{somebody.getsockname()[1]}"
        ended = facade("run", file, "--out", tmp_path / "run", "--runtime", "ray", "--address", where, **home)
    assert ended.returncode == 1
    assert "have no token in common; set RAY_AUTH_TOKEN" in ended.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_an_address_where_nobody_is_costs_one_sentence_and_no_minutes():
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]
    with pytest.raises(ClusterError, match=rf"nothing answers at `address` 127.0.0.1:{port}"):
        connection._options(f"127.0.0.1:{port}")


def test_an_address_without_a_port_is_refused_before_ray_looks_for_it():
    with pytest.raises(ExperimentError, match="`address` head: give the cluster's head as host:port, or 'auto'"):
        connection._options("head")


def test_a_cluster_of_ones_own_can_be_reached_from_this_machine_with_a_token_only(ray):
    assert connection.cluster_cpus() >= 1
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]
    own = started_with(f"RAY_AUTH_TOKEN={os.environ['RAY_AUTH_TOKEN']}")
    assert any("gcs_server" in line for line in own.values())
    assert all("--disable-frontend" in line for line in own.values() if "dashboard.py" in line)
    assert listening(own) == {"127.0.0.1"}


def test_ray_that_was_imported_without_a_token_is_refused_every_time(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    for _ in range(2):
        with pytest.raises(ClusterError, match="ray was imported before this run"):
            connection.connected().__enter__()
    assert "RAY_AUTH_MODE" not in os.environ


def test_a_cluster_that_listens_beyond_the_machine_earns_a_warning(monkeypatch):
    monkeypatch.setattr(connection, "machines", lambda: [{"NodeManagerAddress": "10.0.0.1"}])
    with pytest.warns(UserWarning, match=r"\(10.0.0.1\): whoever reaches it with its token can run code"):
        connection._warn_if_exposed()


def test_a_thousand_nodes_over_two_shards(run_on):
    settings = ("data.clusters=900:100", "data.partition=sampled", "data.per_class=4", "topology.degree=4")
    experiment = tiny(*settings, "network.loss=0", "network.offline=0", "training.rounds=2")
    ended = run_on(experiment, 2)
    assert len(ended.summary["choice"]) == 1000
    assert ended.summary["state_sha256"] == run(experiment).summary["state_sha256"]


def test_states_and_models_pass_through_the_driver_in_pieces(stand_in, simulated, tmp_path, monkeypatch):
    pieces, piece = [], Worker.piece

    def watched(self, *what):
        pieces.append(piece(self, *what))
        return pieces[-1]

    monkeypatch.setattr(Worker, "piece", watched)
    monkeypatch.setattr(driver, "PIECE_BYTES", 1 << 16)
    experiment = tiny("data.clusters=40:8", "algorithm.name=el")
    assert_same(cluster.run_connected(experiment, tmp_path / "run"), simulated(experiment))
    models = (tmp_path / "run" / "models.safetensors").stat().st_size
    assert sum(found.nbytes for found in pieces) > 1.9 * models > 20 * driver.PIECE_BYTES, "a checkpoint, and models"
    assert max(found.nbytes for found in pieces) <= driver.PIECE_BYTES
    assert max(len(found) for found in pieces) > 1


@pytest.mark.parametrize(
    ("machines", "shards", "share"),
    [
        ([2], 1, 2),
        ([2], 2, 1),
        ([8, 8], 3, 4),
        ([8, 4], 2, 4),
        ([1, 1], 3, 0.5),
        ([2], 5, 0.4),
        ([16, 1], 4, 4),
        ([1], 7, 0.142),
    ],
)
def test_shards_get_the_largest_share_for_which_all_find_room(machines, shards, share):
    assert cluster.largest_share(machines, shards) == share


STAYS = "from facade.runtimes.ray import connection\nwith connection.connected(): print(flush=True); input()"


def test_rays_files_are_nobody_elses_and_what_a_killed_run_leaves_is_removed_at_the_next_start():
    with tempfile.TemporaryDirectory(prefix="r") as short:  # Ray's sockets want a short path
        own = {**os.environ, "TMPDIR": short}
        own.pop("RAY_AUTH_TOKEN", None)
        killed = subprocess.Popen([sys.executable, "-c", STAYS], env=own, stdin=-1, stdout=-1)
        with killed:
            assert killed.stdout.readline() == b"\n"
            killed.kill()
        for orphan in started_with(f"TMPDIR={short}"):  # some of Ray's processes take a minute to notice
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(orphan), signal.SIGKILL)
        wait_for_the_end_of(started_with(f"TMPDIR={short}"))
        (left,) = Path(short).iterdir()
        (session,) = (left / "r").glob("session_2*")
        assert [stat.S_IMODE(path.stat().st_mode) for path in (left, left / "r", session)] == [0o700] * 3
        assert (session / "sockets").is_dir()
        (Path(short) / "facade-ray.file").touch()
        (Path(short) / "facade-raylike").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", short)
            with private_directory() as first, private_directory() as second:
                assert (first.is_dir(), second.is_dir()) == (True, True), "one that is in use is no leftover"
                assert not left.exists()
        assert {path.name for path in Path(short).iterdir()} == {"facade-ray.file", "facade-raylike"}


def test_a_wrong_token_is_called_that_in_one_sentence(ray, tmp_path):
    file, where = written(tiny(), tmp_path / "tiny.toml"), ray.get_runtime_context().gcs_address
    wrong = {"RAY_AUTH_TOKEN": 64 * "0", "RAY_NUM_REDIS_GET_RETRIES": "1"}
    ended = facade("run", file, "--out", tmp_path / "run", "--runtime", "ray", "--address", where, **wrong)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        f"error: the Ray token of this process is wrong: the cluster at {where} has another one; set RAY_AUTH_TOKEN or"
        " RAY_AUTH_TOKEN_PATH to the cluster's"
    )
    assert not (tmp_path / "run").exists()


def test_where_the_temporary_directory_has_a_long_name_ray_gets_another(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 60)))
    with private_directory() as files:
        assert str(files.parents[1]) == "/tmp"
    monkeypatch.setattr(tempfile, "tempdir", "/missing")
    with pytest.raises(ClusterError, match=r"below /missing, which cannot be made \(No such file"):
        private_directory().__enter__()


def test_what_the_system_says_against_starting_ray_is_a_sentence(monkeypatch):
    def fails(**_):
        raise OSError("AF_UNIX path length cannot exceed 107 bytes: /long\nand more")

    kinds = SimpleNamespace(AuthenticationError=PermissionError, RayError=LookupError)
    stub = SimpleNamespace(is_initialized=bool, init=fails, exceptions=kinds, __spec__="installed")
    monkeypatch.setitem(sys.modules, "ray", stub)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr(connection, "_set_environment", lambda address: None)
    with pytest.raises(ClusterError, match=r"could not be started here \(AF_UNIX .*: /long\)$"):
        connection.connected().__enter__()
