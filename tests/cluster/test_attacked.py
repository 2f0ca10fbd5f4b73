"""With a guard and attackers, the cluster gives the simulator's bits too."""

import pytest

from cluster.conftest import tiny
from facade.testing.contract import assert_same


@pytest.mark.parametrize("kind", ["sign-flip", "label-flip", "backdoor"])
def test_a_guarded_run_under_attack_gives_the_simulators_bits(kind, run_on, simulated):
    experiment = tiny("guard.rule=fair", f"attack.kind={kind}", "attack.nodes=[0, 3]")
    here, there = simulated(experiment), run_on(experiment, 3)
    assert_same(there, here)
    assert there.summary["guard"] == here.summary["guard"]
