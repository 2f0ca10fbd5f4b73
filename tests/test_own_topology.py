from dataclasses import dataclass

import pytest

from experiments import digits
from facade import run
from facade.core.topology import (
    Topology,
    undirected,
)
from facade.errors import ExperimentError
from facade.experiment.setup import set_up


@dataclass(frozen=True)
class Striding(Topology):
    """A circle in which nodes hear those next to them, in the next round those two away, and so on up to `degree`."""

    degree: int = 1

    def draw(self, n, seed, round):
        stride = 1 + round % self.degree
        return undirected(n, {tuple(sorted((a, (a + stride) % n))) for a in range(n)})


def test_a_topology_of_ones_own_is_found_by_its_path_and_told_its_degree():
    experiment = digits(
        "topology.name=test_own_topology:Striding", clusters="5:3", degree=3, rounds=4, steps=1, every=4
    )
    plan = set_up(experiment).plan
    for round, stride in enumerate([1, 2, 3, 1]):
        graph = plan.graph(round)
        expected = {(a, (a + step) % 8) for a in range(8) for step in (stride, -stride)}
        assert set(zip(graph.receiver.tolist(), graph.sender.tolist(), strict=True)) == expected
    rows = [row for row in run(experiment).rows if row["kind"] == "round"]
    assert {row["bytes"] for row in rows} == {2 * (4 * (64 * 64 + 64 + 64 * 10 + 10) + 8)}, "two peers a round"


def test_what_is_no_topology_is_refused():
    with pytest.raises(ExperimentError, match=r"^topology '.+:regular' is not derived from facade.Topology$"):
        set_up(digits("topology.name=test_topology:regular", clusters="5:3", rounds=4, steps=1, every=4))
