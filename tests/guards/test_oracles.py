"""Every rule equals itself in plain loops."""

import functools

import pytest
import torch

from facade.guards import GUARDS
from facade.guards import fair as fair_guard
from facade.guards.guard import PartHeard
from facade.guards.last_gate import FLOOR, MEMORY, TIMES, passage
from oracle import guard_loops as loops

FAIR = GUARDS["fair"]()
GUESSING = 8.0
BY = loops.FairNumbers(
    FAIR.own_data.times,
    FAIR.own_data.floor,
    loops.Known(FAIR.own_data.share, GUESSING),
    FAIR.reach,
    FAIR.kappa,
    FAIR.trimmed.share,
    fair_guard.ENOUGH,
    affordable=6,
)
SLOW = {
    "fair": functools.partial(loops.fair, by=BY),
    "balance": loops.balance,
    "own-data": loops.own_data,
    "clip": loops.clip,
    "median": loops.median,
    "trimmed": loops.trimmed,
    "krum": loops.krum,
    "nearest": loops.nearest,
}
CASES = {
    "some heard": {},
    "two groups": {"groups": 2},
    "four groups": {"groups": 4},
    "all heard": {"missing": 0.0},
    "own only": {"missing": 1.0},
    "one other": {"places": 2, "missing": 0.0},
    "far apart": {"spread": 5.0},
    "almost alike": {"spread": 1e-3, "missing": 0.1},
    "nothing to judge by": {"judged": 0.0},
    "few to judge by": {"judged": 0.4},
    "the end": {"progress": 1.0},
}


def part(seed, nodes=5, places=7, numbers=6, groups=1, missing=0.3, spread=1.0, judged=1.0, progress=0.4, affordable=6):
    """What some nodes heard, at random; in groups of one number all hold the same, as of a head."""
    g = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, generator=g, dtype=torch.float64)

    own = torch.nn.functional.one_hot((uniform(nodes) * places).long(), places).bool()
    here = own | (uniform(nodes, places) >= missing)
    group = (uniform(nodes, places) * groups).long()
    of_groups = torch.randn(nodes, groups, numbers, generator=g, dtype=torch.float64)
    held = of_groups.gather(1, group.unsqueeze(2).expand(-1, -1, numbers))
    noise = torch.randn(nodes, places, numbers, generator=g, dtype=torch.float64)
    values = torch.where(own.unsqueeze(2), held, held + spread * noise)
    aim = torch.randn(nodes, 1, numbers, generator=g, dtype=torch.float64)

    def losses(given):
        return (given - aim).square().sum(2)

    can = here & ((uniform(nodes, places) < judged) | own)
    return PartHeard(values, held, here, own, group, can, losses, affordable, GUESSING, None, progress), aim


def as_places(heard, aim, node):
    """One node's view, as lists."""
    at = aim[node, 0].tolist()

    def loss(value):
        return sum((x - y) ** 2 for x, y in zip(value, at, strict=True))

    columns = (heard.values, heard.held, heard.here, heard.own, heard.group, heard.judged)
    return [loops.Place(*row, loss) for row in zip(*(column[node].tolist() for column in columns), strict=True)]


def test_every_rule_has_its_loops():
    assert SLOW.keys() == GUARDS.keys()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rule", GUARDS)
def test_a_rule_equals_its_loops(rule, case):
    for seed in range(8):
        heard, aim = part(seed, **CASES[case])
        verdict = GUARDS[rule]().judge(heard)
        for node in range(len(heard.own)):
            values, dropped = SLOW[rule](as_places(heard, aim, node), heard.progress)
            here = heard.here[node]
            expected = torch.tensor(values, dtype=torch.float64)
            assert (verdict.values[node] - expected)[here].abs().max() < 1e-12
            assert (verdict.dropped[node] & here).tolist() == [
                out and yes for out, yes in zip(dropped, here, strict=True)
            ]


@pytest.mark.parametrize("affordable", [1, 2, 4])
def test_of_many_those_are_judged_that_differ_most(affordable):
    for seed in range(8):
        heard, aim = part(seed, affordable=affordable, missing=0.0, spread=3.0)
        verdict = FAIR.judge(heard)
        for node in range(len(heard.own)):
            slow = loops.fair(as_places(heard, aim, node), heard.progress, BY._replace(affordable=affordable))
            assert (verdict.values[node] - torch.tensor(slow[0], dtype=torch.float64)).abs().max() < 1e-12
            assert verdict.dropped[node].tolist() == slow[1]


@pytest.mark.parametrize("rule", GUARDS)
def test_without_samples_to_judge_by_a_rule_equals_its_loops_with_nothing_judged(rule):
    heard, aim = part(3, judged=0.0)
    alone = heard.judged & heard.own
    verdict = GUARDS[rule]().judge(heard._replace(losses=None, judged=torch.zeros_like(heard.judged)))
    for node in range(len(heard.own)):
        values, _ = SLOW[rule](as_places(heard._replace(judged=alone), aim, node), heard.progress)
        assert (verdict.values[node] - torch.tensor(values, dtype=torch.float64))[heard.here[node]].abs().max() < 1e-12


class Told:
    """A turn that has the losses it is told."""

    def __init__(self, rises):
        self._rises = rises

    def losses(self, models):
        return 1 + self._rises.unsqueeze(1)


def test_the_last_gate_equals_its_loops():
    rises = torch.rand(4, 25, generator=torch.Generator().manual_seed(2), dtype=torch.float64) ** 3
    rises[0] *= 4  # often above the floor
    rises[1] -= 0.3
    rises[2, 9] = torch.inf
    rises[3, 4] = torch.nan
    usual, closed = torch.zeros(4, dtype=torch.float64), []
    for round in range(rises.shape[1]):
        before = torch.ones(4, dtype=torch.float64)
        shut, usual = passage(Told(rises[:, round]), before, {"w": torch.zeros(4, 1)}, usual)
        closed.append(shut)
    for node in range(4):
        expected, in_the_end = loops.last_gate(rises[node].tolist(), TIMES, FLOOR, MEMORY)
        assert torch.stack(closed)[:, node].tolist() == expected
        assert abs(float(usual[node]) - in_the_end) < 1e-12
    assert 0 < torch.stack(closed)[:, 0].sum() < 25
    assert closed[9][2]
    assert closed[4][3]


def padded(heard, places):
    """The same with more places in which nothing was heard, as beside a node that hears more."""
    own, rows = heard.own.long().argmax(1), torch.arange(len(heard.own))

    def more(leaf, empty):
        return torch.cat([leaf, empty.unsqueeze(1).expand(-1, places, *empty.shape[1:])], 1)

    nothing = torch.zeros_like(heard.own[:, 0])
    kept = {name: more(getattr(heard, name), getattr(heard, name)[rows, own]) for name in ("values", "held", "group")}
    return heard._replace(**kept, **{name: more(getattr(heard, name), nothing) for name in ("here", "own", "judged")})


@pytest.mark.parametrize("rule", GUARDS)
def test_whom_a_node_is_judged_beside_changes_no_bit(rule):
    for seed in range(8):
        heard, _ = part(seed, groups=2, affordable=20)
        one, other = GUARDS[rule]().judge(heard), GUARDS[rule]().judge(padded(heard, 4))
        assert torch.equal(one.values[heard.here], other.values[:, :7][heard.here])
        assert torch.equal(one.dropped & heard.here, other.dropped[:, :7] & heard.here)
