import signal
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest

from experiments import written
from facade import run
from facade.errors import ExperimentError, StoppedError
from facade.runs.result import judge
from facade.trackers import TRACKERS, tracker
from facade.trackers.base import Several, Tracker, numbers
from results.conftest import tiny
from runs import stop_at


def tracked(name, out):
    """A run with a tracker that is stopped and resumed, as a careful tracker must survive."""
    with pytest.raises(StoppedError):
        run(tiny(), out, progress=Several([tracker(name, out), stop_at(3, signal.SIGTERM)]))
    return run(tiny(), out, resume=True, progress=tracker(name, out))


def test_tensorboard_shows_the_curves_of_a_resumed_run(tmp_path):
    pytest.importorskip("tensorboard", reason="the tensorboard extra is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = tracked("tensorboard", tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    minority = [(event.step, event.value) for event in events.Scalars("accuracy/cluster-1")]
    assert [step for step, _ in minority] == [2, 4, 6]
    final = events.Scalars("final/fair_accuracy")
    assert [(event.step, event.value) for event in final] == [(6, pytest.approx(result.summary["fair_accuracy"]))]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_settings_and_metrics_in_a_local_file(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="the mlflow extra is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    from mlflow import MlflowClient

    result = tracked("mlflow", tmp_path / "run")
    client = MlflowClient()
    home = client.get_experiment_by_name("tiny")
    (kept,) = client.search_runs([home.experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.params["algorithm.name"] == "facade"
    assert kept.data.metrics["final/accuracy/all"] == pytest.approx(result.summary["all"])
    assert [m.step for m in client.get_metric_history(kept.info.run_id, "accuracy/cluster-0")] == [2, 4, 6]
    assert kept.data.tags["model_sha256"] == result.summary["model_sha256"]


class Listening(Tracker):
    """Remembers what it is told; its tool can be reached once."""

    def __init__(self, run_dir):
        super().__init__(run_dir)
        self.opened, self.logged = 0, []

    def open(self, experiment, done):
        self.opened += 1
        if self.opened > 1:
            raise ConnectionError("gone")

    def log(self, values, step):
        self.logged.append((step, any(name.startswith("final/") for name in values)))

    def close(self, summary):
        pass


def test_without_a_final_exchange_the_last_evaluation_is_told_too(tmp_path):
    listening = Listening(tmp_path)
    run(tiny("algorithm.name=local"), progress=listening)
    assert listening.logged == [(2, False), (4, False), (6, False), (6, True)]


def test_a_run_that_goes_back_to_its_checkpoint_does_not_open_its_tracker_again(tmp_path):
    listening = Listening(tmp_path)
    listening.start(tiny(), 0)
    listening.start(tiny(), 4)
    assert listening.opened == 1


class Wandb(ModuleType):
    """Weights & Biases as far as a run meets it: everything it is told, in order."""

    def __init__(self):
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)  # what is installed has one
        self.begun, self.logged, self.summary, self.finished = [], [], {}, 0

    def init(self, **given):
        self.begun.append(given)
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.finished += 1


def test_weights_and_biases_is_told_the_curves_of_a_resumed_run_as_one_run(tmp_path, monkeypatch):
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    result = tracked("wandb", tmp_path / "run")
    first, again = wandb.begun
    assert first == again, "the same id, so that the curves go on"
    assert (first["project"], first["name"], first["resume"]) == ("tiny", "run", "allow")
    assert first["dir"] == str(tmp_path / "run")
    assert first["config"] == tiny().model_dump()
    assert [step for step, _ in wandb.logged] == [2, 4, 6, 6]
    last, final = (values for _, values in wandb.logged[-2:])
    tested = [row for row in result.rows if (row["kind"], row["round"]) == ("evaluation", 6)]
    assert last["accuracy/cluster-1"] == judge(tested, np.array([0, 0, 0, 1]))["clusters"][1]
    assert final["final/fair_accuracy"] == result.summary["fair_accuracy"]
    assert wandb.summary == {"model_sha256": result.summary["model_sha256"]}
    assert wandb.finished == 1


def test_runs_in_two_places_are_two_runs_for_weights_and_biases(tmp_path, monkeypatch):
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for place in ("one", "two"):
        tracker("wandb", tmp_path / place).start(tiny(), 0)
    assert len({given["id"] for given in wandb.begun}) == 2


class Broken(Tracker):
    """A tool that stops answering."""

    def open(self, experiment, done):
        if self.run_dir.name == "closed":
            raise ConnectionError("nobody there")

    def log(self, values, step):
        raise ConnectionError("gone")

    def close(self, summary):
        raise ConnectionError("gone")


def test_a_tracker_that_fails_on_the_way_costs_a_warning_and_not_the_run(tmp_path):
    with pytest.warns(UserWarning, match="Broken did not take some numbers: gone"):
        result = run(tiny(), tmp_path / "run", progress=Broken(tmp_path / "run"))
    assert result.summary["model_sha256"] == run(tiny()).summary["model_sha256"]


def test_a_tracker_that_cannot_start_is_one_sentence(tmp_path):
    with pytest.raises(ExperimentError, match="Broken cannot be used: nobody there"):
        run(tiny(), tmp_path / "run", progress=Broken(tmp_path / "closed"))
    run(tiny(), tmp_path / "run")  # nothing was left there


def test_an_unknown_tracker_and_a_missing_extra_are_refused(command, tmp_path, monkeypatch):
    arguments = ["run", written(tiny(), tmp_path / "tiny.toml"), "--out", tmp_path / "run", "--track"]
    ended = command(*arguments, "tensorbord")
    assert ended.code == 2
    assert "unknown tracker 'tensorbord'; did you mean 'tensorboard'?" in ended.err
    monkeypatch.setitem(TRACKERS, "mlflow", TRACKERS["mlflow"]._replace(needs="surely_not_installed"))
    ended = command(*arguments, "mlflow")
    assert ended.code == 2
    assert "tracker 'mlflow' needs an extra: pip install 'facade-dl[mlflow]'" in ended.err
    assert not (tmp_path / "run").exists()


def test_numbers_of_an_evaluation_have_stable_names():
    judged = {"all": 0.5, "clusters": [0.6, 0.2], "eo": None, "settled": True, "choice": [0, 1]}
    assert numbers(judged) == {
        "accuracy/cluster-0": 0.6,
        "accuracy/cluster-1": 0.2,
        "accuracy/all": 0.5,
        "settled": 1.0,
    }
