import numpy as np
import pytest

from cluster.conftest import tiny
from facade import DivergedError, Federation, run
from facade.algorithms import ALGORITHMS
from facade.errors import StoppedError
from facade.testing.contract import assert_same
from runs import stop_at

EXECUTORS = ("stacked", "looped")
DTYPES = ("float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_two_and_five_shards_give_the_simulators_bits(algorithm, executor, dtype, run_on, simulated):
    settings = (f"algorithm.name={algorithm}", f"runtime.executor={executor}", f"runtime.dtype={dtype}")
    experiment = tiny(*settings)
    for shards in (1, 2, 5):
        assert_same(run_on(experiment, shards), simulated(experiment))


@pytest.mark.filterwarnings("ignore:network.loss")  # of trouble in which seeds may not be agreed on
@pytest.mark.parametrize(
    "settings",
    [
        ("topology.name=complete", "network.loss=0", "network.offline=0"),
        ("topology.name=ring",),
        ("algorithm.seeding=farthest", "training.rounds=16", "evaluation.every=16"),
        ("algorithm.seeding=class-means", "training.rounds=40", "evaluation.every=40"),
        ("model.name=cnn",),
        ("training.momentum=0.9", "training.lr=0.01"),
        ("data.validation=0.2",),
        ("training.loss=balanced", "data.partition=dirichlet"),
        ("algorithm.all_reduce=false",),
    ],
    ids=lambda settings: settings[0],
)
def test_topologies_seeding_momentum_and_validation_give_the_simulators_bits_too(settings, run_on, simulated):
    experiment = tiny(*settings)
    assert_same(run_on(experiment, 3), simulated(experiment))


def test_a_federation_of_ones_own_goes_to_the_cluster(run_on):
    generator = np.random.default_rng(1)
    nodes = [(generator.normal(size=(9 + i, 6)).astype(np.float32), np.arange(9 + i) % 3) for i in range(4)]
    test = (generator.normal(size=(12, 6)).astype(np.float32), np.arange(12) % 3)
    federation = Federation.from_nodes(nodes, test=test)
    experiment = tiny("data.source=given", "data.clusters=4", "data.skew=none")
    assert_same(run_on(experiment, 2, federation=federation), run(experiment, federation=federation))


def test_a_run_goes_from_the_laptop_to_the_cluster_and_back(run_on, simulated, tmp_path):
    experiment = tiny("training.rounds=9")
    with pytest.raises(StoppedError, match="after round 2"):
        run(experiment, tmp_path / "run", progress=stop_at(2))
    with pytest.raises(StoppedError, match="after round 5"):
        run_on(experiment, 3, tmp_path / "run", resume=True, progress=stop_at(5))
    with pytest.raises(StoppedError, match="after round 7"):
        run_on(experiment, 2, tmp_path / "run", resume=True, progress=stop_at(7))
    assert_same(run(experiment, tmp_path / "run", resume=True), simulated(experiment))


def test_what_the_cluster_leaves_is_what_the_simulator_leaves(run_on, tmp_path):
    experiment = tiny()
    run(experiment, tmp_path / "local")
    run_on(experiment, 3, tmp_path / "ray")
    for name in ("rows.jsonl", "moments.safetensors", "models.safetensors", "federation.json", "experiment.toml"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes(), name
    assert not (tmp_path / "ray" / "checkpoints").exists()
    assert "train" in (tmp_path / "ray" / "timings.jsonl").read_text(), "workers' time is counted"


def test_an_error_in_a_worker_is_the_sentence_it_would_be_here(run_on):
    with pytest.raises(DivergedError, match=r"^training diverged in round 1 at node 0: .* try a smaller training.lr$"):
        run_on(tiny("training.lr=1e30"), 2)
