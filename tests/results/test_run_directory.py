import dataclasses
import errno
import fcntl
import json
import os
import shutil
import stat

import numpy as np
import pytest

from facade import Experiment, Federation, Result, run
from facade.errors import ExperimentError, RunDirectoryError, StoppedError
from facade.runs.environment import environments
from facade.runs.history import load_all
from facade.runs.run_directory import RunDirectory
from results.conftest import tiny
from runs import stop_at, stopped


def test_a_directory_that_is_a_file_or_holds_other_files_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunDirectoryError, match="file is a file; give a directory that is new or empty"):
        run(tiny(), tmp_path / "file")
    with pytest.raises(RunDirectoryError, match="holds other files; give a directory that is new or empty"):
        run(tiny(), tmp_path, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_resuming_another_experiment_is_refused_with_the_differing_keys(tmp_path):
    stopped(tiny(), tmp_path / "run", 3)
    other = tiny("training.lr=0.5", "algorithm.heads=3", "runtime.threads=2")
    with pytest.raises(RunDirectoryError) as refused:
        run(other, tmp_path / "run", resume=True)
    assert "algorithm.heads = 2 there and 3 here, training.lr = 0.05 there and 0.5 here;" in str(refused.value)
    assert "threads" not in str(refused.value)


def test_resuming_on_other_data_is_refused(tmp_path, monkeypatch):
    stopped(tiny(), tmp_path / "run", 3)
    from facade.data import sources

    def brighter(data):
        made = sources.digits(data)
        made.train.x.add_(1)
        return made

    monkeypatch.setitem(sources.SOURCES, "digits", brighter)
    with pytest.raises(RunDirectoryError, match=r"the data are not those that .* began with"):
        run(tiny(), tmp_path / "run", resume=True)


def test_resuming_on_data_that_are_divided_or_scaled_otherwise_is_refused(tmp_path):
    x, y = np.arange(60 * 16, dtype=np.uint8).reshape(60, 4, 4), np.arange(60) % 3
    even, uneven = ([(x[:at], y[:at]), (x[at:], y[at:])] for at in (30, 15))
    test = (x[:12], y[:12])
    given = Federation.from_nodes(even, test=test)
    topology = ("topology.name=complete", "algorithm.name=el")
    experiment = Experiment.of({"data": given.section, "training": {"rounds": 4}, "evaluation": {"every": 2}}, topology)
    with pytest.raises(StoppedError):
        run(experiment, tmp_path / "run", federation=given, progress=stop_at(3))
    others = {
        "images": Federation.from_nodes(uneven, test=test),
        "mean": dataclasses.replace(given, mean=[0.25]),
    }
    for what, other in others.items():
        with pytest.raises(RunDirectoryError, match=rf"began with \(.*{what}.* differ\)"):
            run(experiment, tmp_path / "run", federation=other, resume=True)
    run(experiment, tmp_path / "run", federation=given, resume=True)
    with pytest.raises(RunDirectoryError, match="the data are not those"):
        run(experiment, tmp_path / "run", federation=others["images"], resume=True)
    run(experiment, tmp_path / "other", federation=others["images"])
    with pytest.raises(RunDirectoryError, match=r"same \[data\] and seed but were computed on other data"):
        load_all([tmp_path])
    run(experiment.with_("algorithm.name=local"), tmp_path / "another", federation=others["images"])
    with pytest.raises(RunDirectoryError, match=r"same \[data\] and seed but were computed on other data"):
        load_all([tmp_path / "run", tmp_path / "another"])


def test_resume_without_a_directory_is_refused():
    with pytest.raises(ExperimentError, match="nothing to resume without a run directory"):
        run(tiny(), resume=True)


def test_another_environment_is_said_and_kept(tmp_path, monkeypatch):
    stopped(tiny(), tmp_path / "run", 3)
    began = json.loads((tmp_path / "run" / "environment.json").read_text())
    monkeypatch.setattr(np, "__version__", "9.9")
    with pytest.warns(UserWarning, match=r"another environment \(numpy = .* there and 9.9 here\)"):
        stopped(tiny(), tmp_path / "run", 4)
    stopped(tiny(), tmp_path / "run", 5)  # where it was last: nothing new to say
    kept = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert kept == began | {"continued": [{"after_round": 3, "numpy": "9.9"}]}
    assert [where["numpy"] for where in environments(kept)] == [began["numpy"], "9.9"]
    monkeypatch.setattr(np, "__version__", began["numpy"])
    with pytest.warns(UserWarning, match=r"another environment \(numpy = 9.9 there and .* here\)"):
        run(tiny(), tmp_path / "run", resume=True)
    assert environments(RunDirectory(tmp_path / "run").read("environment.json"))[-1] == began


def test_two_processes_cannot_compute_one_run(tmp_path):
    with RunDirectory(tmp_path / "run").claimed(), pytest.raises(RunDirectoryError, match="another process"):
        run(tiny(), tmp_path / "run")


def test_where_directories_cannot_be_locked_a_file_is(tmp_path, monkeypatch):
    real = fcntl.flock

    def over_a_network(handle, how):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", over_a_network)
    with RunDirectory(tmp_path / "run").claimed(), pytest.raises(RunDirectoryError, match="another process"):
        run(tiny(), tmp_path / "run")
    run(tiny(), tmp_path / "run")


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    def unsupported(handle, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.warns(UserWarning, match="has no locks; let no other process compute the same run"):
        run(tiny(), tmp_path / "run")


def test_what_is_not_a_finished_run_is_not_loaded(tmp_path):
    stopped(tiny(), tmp_path / "run", 3)
    with pytest.raises(RunDirectoryError, match=r"holds an unfinished run; finish it with: facade run .* --resume"):
        Result.load(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="holds no run"):
        Result.load(tmp_path / "run")
