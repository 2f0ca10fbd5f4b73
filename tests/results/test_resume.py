import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from dataclasses import dataclass

import pytest
import torch

from facade import Experiment, Result, run
from facade.algorithms import ALGORITHMS
from facade.algorithms.el import EL
from facade.errors import RunDirectoryError, StoppedError, StorageError
from facade.files import store
from facade.runs.checkpoint import Checkpoints
from facade.runs.run_directory import RunDirectory
from facade.runs.stop_signals import StopSignals
from facade.runtimes.local import run as run_here
from facade.runtimes.recorder import Quiet
from results.conftest import tiny
from results.killing import run_until
from runs import stop_at, stopped, unseal
from surroundings import no_space

STORAGE = ("files/store.py", "runs/checkpoint.py", "runs/run_directory.py")


def facts(path):
    """What must be equal to the bit."""
    summary = Result.load(path).summary
    return (
        (path / "rows.jsonl").read_bytes(),
        (path / "models.safetensors").read_bytes(),
        (path / "moments.safetensors").read_bytes(),
        {key: value for key, value in summary.items() if key not in ("seconds", "run_dir")},
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody disturbed."""
    path = tmp_path_factory.mktemp("whole") / "run"
    run(tiny(), path)
    return path


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """How many lines the run executes: in the whole library, and where files are written."""
    path = tmp_path_factory.mktemp("lines")
    counts = [run_until(tiny(), path / files[0], files)[1] for files in ((".py",), STORAGE)]
    assert counts[0] > counts[1] > 500
    return counts


@pytest.mark.parametrize("part", range(4))
def test_a_run_killed_at_any_moment_and_resumed_equals_one_that_was_not(part, whole, lines, tmp_path):
    luck = random.Random(part)
    for number in range(7):
        files, total = ((".py",), lines[0]) if number % 2 else (STORAGE, lines[1])
        moment = luck.randrange(1, total)
        out = tmp_path / f"{number}"
        code, _ = run_until(tiny(), out, files, moment)
        assert code == -signal.SIGKILL, f"line {moment} of {files}"
        if luck.random() < 0.5 and (out / "rows.jsonl").exists() and not (out / "result.json").exists():
            with (out / "rows.jsonl").open("ab") as rows:
                rows.write(b'{"kind":"round","rou')
        run(tiny(), out, resume=True)
        assert facts(out) == facts(whole), f"killed at line {moment} of {files}"
        assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in whole.iterdir())


def test_a_run_killed_again_and_again_still_ends_the_same(whole, lines, tmp_path):
    luck = random.Random(9)
    moments = [luck.randrange(lines[0] // 4, lines[0] // 2) for _ in range(5)]
    codes = [run_until(tiny(), tmp_path / "run", last=moment)[0] for moment in moments]
    assert codes.count(-signal.SIGKILL) >= 3
    run(tiny(), tmp_path / "run", resume=True)
    assert facts(tmp_path / "run") == facts(whole)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_resumes_to_the_bit(algorithm, tmp_path):
    experiment = tiny(f"algorithm.name={algorithm}", "network.loss=0.2", "network.offline=0.1")
    run(experiment, tmp_path / "whole")
    stopped(experiment, tmp_path / "parts", 3)
    stopped(experiment, tmp_path / "parts", 5)
    run(experiment, tmp_path / "parts", resume=True)
    assert facts(tmp_path / "parts") == facts(tmp_path / "whole")


def test_a_checkpoint_does_not_depend_on_shards_or_threads(whole, tmp_path):
    stopped(tiny("runtime.shards=3"), tmp_path / "run", 3)
    run(tiny("runtime.shards=2", "runtime.threads=2"), tmp_path / "run", resume=True)
    assert facts(tmp_path / "run") == facts(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_says_how_to_go_on_and_leaves_with_the_signals_code(number, tmp_path):
    out = tmp_path / "run"
    before = signal.getsignal(number)
    said = stopped(tiny(), out, 3, number)
    assert str(said) == (
        f"stopped after round 3 of 6; continue with: facade run {out}/experiment.toml --out {out} --resume"
    )
    assert said.exit_code == 128 + number
    assert signal.getsignal(number) is before, "the handler of whoever called is back"


def test_ctrl_c_ends_the_command_with_code_130_and_a_sentence(tmp_path):
    (tmp_path / "tiny.toml").write_text(tiny("training.rounds=4000").toml())
    out = tmp_path / "run"
    program = "from facade.cli import main; main()"
    command = [sys.executable, "-c", program, "run", str(tmp_path / "tiny.toml"), "--out", str(out)]
    pipe, quick = subprocess.PIPE, os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=pipe, stdout=pipe, text=True, env=quick) as process:
        while "round   4/4000" not in (line := process.stderr.readline()):
            assert line, "it ended too early"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert f"continue with: facade run {out}/experiment.toml --out {out} --resume" in said
    assert "Traceback" not in said


def test_resume_starts_what_is_not_there_and_prints_what_is_finished(command, tmp_path):
    (tmp_path / "tiny.toml").write_text(tiny().toml())
    first = command("run", tmp_path / "tiny.toml", "--out", tmp_path / "run", "--resume")
    assert first.code == 0, first.err
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    second = command("run", tmp_path / "tiny.toml", "--out", tmp_path / "run", "--resume")
    assert second.code == 0
    table, _, ending = first.out.rpartition("\n\n")
    assert ending == f"Written to {tmp_path / 'run'}\n"
    assert second.out == f"{table}\n\nNothing was computed: this run was finished already, in {tmp_path / 'run'}\n"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == written
    refused = command("run", tmp_path / "tiny.toml", "--out", tmp_path / "run")
    assert refused.code == 2
    assert "add --resume to continue it" in refused.err


def test_without_a_directory_resume_finds_the_last_run_of_the_experiment(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(tiny().toml())
    for settings in ([], ["--set", "training.lr=0.1"]):
        assert command("run", "tiny.toml", *settings).code == 0
    assert "finished already, in runs/tiny-facade-seed1\n" in command("run", "tiny.toml", "--resume").out
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["tiny-facade-seed1", "tiny-facade-seed1-2"]


def test_a_stop_signal_ends_also_a_run_that_is_written_nowhere():
    stop_signals = StopSignals()
    with (
        stop_signals.listening(),
        pytest.raises(StoppedError, match=r"; without a run directory nothing is kept"),
    ):
        run_here(tiny(), None, stop_signals=stop_signals, progress=stop_at(2))


@dataclass(frozen=True)
class Weighted(EL):
    """EL with fields of its own that TOML writes in another way, or not at all."""

    weights: tuple[float, ...] = (0.5, 0.5)
    clip: float | None = None


def test_own_algorithms_with_tuples_and_none_among_their_fields_resume(tmp_path):
    experiment = tiny("algorithm.name=results.test_resume:Weighted")
    stopped(experiment, tmp_path / "run", 3)
    run(experiment, tmp_path / "run", resume=True)
    assert Result.load(tmp_path / "run").experiment.hash == experiment.hash
    with pytest.raises(RunDirectoryError, match=r"algorithm.weights = \[0.5, 0.5\] there and \[0.1, 0.9\] here"):
        run(experiment.with_("algorithm.weights=[0.1, 0.9]"), tmp_path / "run", resume=True)


def checkpoints(out):
    return sorted((out / "checkpoints").glob("*.saved"))


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    stored = bytearray(path.read_bytes())
    stored[len(stored) // 2] ^= 4
    path.write_bytes(stored)


@pytest.mark.parametrize("damage", [cut, flip, os.unlink])
def test_a_damaged_or_missing_checkpoint_falls_back_to_the_one_before(damage, whole, tmp_path):
    out = tmp_path / "run"
    stopped(tiny(), out, 5)
    older, newer = checkpoints(out)
    assert (older.stem, newer.stem) == ("000000004", "000000005")
    damage(newer)
    if damage is os.unlink:
        run(tiny(), out, resume=True)
    else:
        with pytest.warns(UserWarning, match=f"{newer} is damaged .* going back to the one before"):
            run(tiny(), out, resume=True)
    assert facts(out) == facts(whole)


def test_with_all_checkpoints_damaged_the_run_starts_again_and_says_so(whole, tmp_path):
    out = tmp_path / "run"
    stopped(tiny(), out, 5)
    for path in checkpoints(out):
        flip(path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run(tiny(), out, resume=True)
    assert ["is damaged" in str(w.message) for w in said] == [True, True, False]
    assert "starting again from the beginning" in str(said[-1].message)
    assert facts(out) == facts(whole)


def test_a_checkpoint_whose_rows_are_lost_is_not_used(whole, tmp_path):
    out = tmp_path / "run"
    stopped(tiny(), out, 5)
    os.truncate(out / "rows.jsonl", (out / "rows.jsonl").stat().st_size - 10)
    with pytest.warns(UserWarning, match=r"000000005.saved is not used: the \d+ bytes .* are missing"):
        run(tiny(), out, resume=True)
    assert facts(out) == facts(whole)


def test_a_stopped_run_has_its_time_counted(tmp_path):
    out = tmp_path / "run"
    stopped(tiny("evaluation.every=4"), out, 3)
    run(tiny("evaluation.every=4"), out, resume=True)
    laps = [json.loads(line) for line in (out / "timings.jsonl").read_text().splitlines()]
    assert [lap["round"] for lap in laps] == [3, 4, 6, 6]
    assert all("train" in lap for lap in laps[:3])


def test_timings_that_are_lost_cost_no_round(whole, tmp_path):
    out = tmp_path / "run"
    stopped(tiny(), out, 5)
    (out / "timings.jsonl").unlink()
    begun = []

    class Begun(Quiet):
        def start(self, experiment, done):
            begun.append(done)

    with pytest.warns(UserWarning, match="timings.jsonl is cut off or damaged; it is begun anew"):
        run(tiny(), out, resume=True, progress=Begun())
    assert begun == [5]
    assert facts(out) == facts(whole)
    assert b"\0" not in (out / "timings.jsonl").read_bytes()


def test_a_run_that_another_process_just_ends_is_loaded_and_left_to_it(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    left = store.Store(out / "checkpoints").save(6, b"the last one")
    with RunDirectory(out).claimed():
        assert run(tiny(), out, resume=True).summary == Result.load(out).summary
        assert left.exists()
    run(tiny(), out, resume=True)
    assert not left.parent.exists()


def test_checkpoints_are_written_at_every_evaluation_and_two_are_kept(tmp_path, monkeypatch):
    saved = []
    write = store.Store.write

    def watched(self, number, parts):
        path = write(self, number, parts)
        saved.append((number, self.numbers))
        return path

    monkeypatch.setattr(store.Store, "write", watched)
    run(tiny(), tmp_path / "run")
    assert saved == [(2, [2]), (4, [2, 4]), (6, [4, 6])]
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_disk_that_fills_up_stops_the_run_and_keeps_the_last_good_checkpoint(whole, tmp_path, monkeypatch):
    out = tmp_path / "run"
    replace = os.replace

    def full(source, target):
        if "000000004" in str(target):
            no_space()
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match=r"000000004.saved could not be written: No space left on device"):
        run(tiny(), out)
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["000000002.saved"]
    monkeypatch.undo()
    run(tiny(), out, resume=True)
    assert facts(out) == facts(whole)


def test_training_that_diverges_keeps_the_checkpoint_before_it(tmp_path):
    from facade import DivergedError
    from facade.learning.learner import Learner

    out = tmp_path / "run"
    fit, rounds = Learner.fit, []

    def worse(self, params, memory, samples, only=None):
        rounds.append(samples.round)
        if samples.round == 3:
            raise DivergedError("training diverged in round 4")
        return fit(self, params, memory, samples, only)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "fit", worse)
        with pytest.raises(DivergedError):
            run(tiny(), out)
    assert [path.stem for path in checkpoints(out)] == ["000000002"]


def test_a_state_of_other_code_is_refused_in_a_sentence(tmp_path, monkeypatch):
    stopped(tiny("algorithm.name=el"), tmp_path / "run", 3)
    init = EL.init
    monkeypatch.setattr(
        EL, "init", lambda self, shard: init(self, shard)._replace(loss=torch.zeros(len(shard.nodes), 2))
    )
    with pytest.raises(RunDirectoryError, match="its code has changed"):
        run(tiny("algorithm.name=el"), tmp_path / "run", resume=True)


def test_a_loaded_result_is_the_result_that_the_run_returned(tmp_path):
    ran = run(tiny(), tmp_path / "run")
    loaded = Result.load(tmp_path / "run")
    assert loaded.summary == ran.summary
    assert list(loaded.rows) == list(ran.rows) == run(tiny()).rows
    assert loaded.experiment == ran.experiment
    x = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    prepared = ran.learner.inputs.prepare(x, torch.float32)
    assert torch.equal(loaded.model(3)(prepared), ran.model(3)(prepared))


def test_a_checkpoint_remembers_how_long_the_run_has_computed(tmp_path):
    stopped(tiny(), tmp_path / "run", 3)
    before = Checkpoints(RunDirectory(tmp_path / "run")).restore().seconds
    assert before > 0
    assert run(tiny(), tmp_path / "run", resume=True).summary["seconds"] > before


def test_a_run_of_an_accelerator_is_loaded_where_there_is_none(tmp_path):
    run(tiny(), tmp_path / "run")
    file = tmp_path / "run" / "experiment.toml"
    unseal(tmp_path / "run")
    file.write_text(file.read_text().replace('device = "cpu"', 'device = "cuda"'))
    loaded = Result.load(tmp_path / "run")
    assert loaded.experiment.runtime.device == "cuda"
    assert loaded.model(0)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_the_resolved_experiment_of_a_run_directory_resumes_it(whole, tmp_path):
    out = tmp_path / "run"
    stopped(tiny(), out, 3)
    run(Experiment.load(out / "experiment.toml"), out, resume=True)
    assert facts(out) == facts(whole)
