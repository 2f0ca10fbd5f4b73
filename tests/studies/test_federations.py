"""The study of real federations: what is kept of a run, how rates are chosen, and the page drawn from it."""

from pathlib import Path

import numpy as np
import pytest

from data import site_makers
from facade import Experiment
from facade.studies import computing, federations
from facade.studies.federations_numbers import ChosenRun, FederationRuns, Gain, gains, who_found_whom
from facade.studies.federations_page import drawn
from facade.studies.kept_lines import Case, KeptLines, KeptRun, of_sites
from facade.studies.methods import METHODS
from surroundings import EXPERIMENTS

CLONE = Path(__file__).parents[2]
KEPT = CLONE / "results" / "federations.jsonl.gz"


@pytest.fixture(scope="module")
def kept():
    return KeptLines(KEPT)


def test_the_page_is_drawn_from_what_is_kept(kept):
    assert (CLONE / "docs" / "federations.md").read_text() == drawn(kept)


def test_what_is_kept_is_small_and_whole(kept):
    assert KEPT.stat().st_size <= 2_000_000
    assert kept.missing(federations.cases()) == []


@pytest.mark.parametrize("name", [name for name in federations.FEDERATIONS if "," not in name])
def test_the_experiment_of_a_federation_is_what_the_study_runs(name):
    written = Experiment.load(EXPERIMENTS / f"{name}.toml").model_dump()
    known = federations.FEDERATIONS[name]
    for key, value in known.settings.items():
        section, _, field = key.partition(".")
        assert written[section][field] == value, key
    assert written["algorithm"]["heads"] == known.heads
    assert written["algorithm"]["seeding"] == METHODS["farthest"]["algorithm.seeding"]
    assert written["training"]["lr"] in known.rates


SMALL = {
    "data.source": "landmine", "data.clusters": "15:14", "data.skew": "none", "data.partition": "natural",
    "data.validation": 0.2, "training.rounds": 2, "training.steps": 1,
}  # fmt: skip


def small(**more):
    return Case("small", "EL", SMALL | {"algorithm.name": "el"} | more, (1,))


def test_a_line_keeps_what_every_site_got_on_its_own_samples(tmp_path):
    site_makers.write_landmine(tmp_path, rows=40)
    line = computing._line(small(), 1, str(tmp_path))
    assert len(line["measured"]) == len(line["validated"]) == 29
    assert all(0 <= value <= 1 for value in line["measured"])
    assert sum(value is None for value in line["validated"]) < 29
    kept = KeptLines(tmp_path / "kept.jsonl.gz")
    kept.add(line)
    (run,) = kept.runs(small())
    assert run.measured == line["measured"]


def test_of_two_classes_a_line_keeps_areas_under_the_curve_where_a_site_has_both():
    one = {"confusion": [[3, 1], [0, 2]], "measures": {"auc": [0.87504, 0.01]}}
    finals = [one | {"validation_confusion": [[2, 1], [0, 0]], "validation_measures": {"auc": None}}]
    assert of_sites(finals) == {"measured": [0.875], "validated": [None]}


def test_sites_whose_clusters_are_unknown_are_one_group(tmp_path):
    site_makers.write_landmine(tmp_path, rows=40)
    assert computing._line(small(**{"data.clusters": "unknown"}), 1, str(tmp_path))["cluster"] == [0] * 29


def test_of_more_than_two_classes_a_line_keeps_accuracies(tmp_path):
    site_makers.write_surf(tmp_path, each=8)
    case = small(**{"data.source": "office-caltech10-surf", "data.clusters": "1:1:1:1", "topology.degree": 2})
    line = computing._line(case, 1, str(tmp_path))
    first = np.array(line["confusion"][line["of_node"][0]]).reshape(10, 10)
    assert line["measured"][0] == pytest.approx(np.trace(first) / first.sum(), abs=1e-4)


def run(seed, measured, validated=(0.5, 0.5, 0.5), cluster=(0, 0, 1), choice=None, diverged=False):
    matrices = np.ones((3, 2, 2), np.int64)
    number = np.array(cluster)
    return KeptRun(seed, matrices, choice, number, None, diverged=diverged, measured=measured, validated=validated)


class Lines:
    """Runs by rate, as if they had been kept."""

    def __init__(self, by_rate):
        self.by_rate = by_rate

    def runs(self, case):
        return self.by_rate.get(case.settings["training.lr"], [])


def test_a_method_is_judged_by_the_rate_that_validation_chose(monkeypatch):
    known = federations.FEDERATIONS["landmine"]
    monkeypatch.setitem(federations.FEDERATIONS, "landmine", known._replace(splits=(1, 2)))
    low, middle, high = known.rates
    tried = {
        low: [run(1, [0.9, 0.9, 0.9], [0.6, None, 0.6]), run(2, [0.1, 0.1, 0.1], [0.7, 0.7, 0.7])],
        middle: [run(1, [0.2, 0.4, 0.8], [0.7, 0.7, 0.7]), run(2, [0.5, 0.5, 0.5], [0.7, 0.7, 0.7])],
        high: [run(1, [0.9, 0.9, 0.9], [0.9, 0.9, 0.9]), run(2, [0.9, 0.9, 0.9], [0.9, 0.9, 0.9], diverged=True)],
    }
    chosen = FederationRuns(Lines(tried)).chosen("landmine", "EL")
    assert [(each.run.seed, each.rate) for each in chosen] == [(1, middle), (2, middle)]
    assert chosen[0].groups == pytest.approx([30, 80])
    assert (chosen[0].worst_group, chosen[0].worst_site) == (pytest.approx(30), pytest.approx(20))
    del tried[low][1]  # as long as a run is missing nothing is said
    assert FederationRuns(Lines(tried)).chosen("landmine", "EL") == []


def test_gains_are_taken_split_by_split():
    new = [ChosenRun(run(seed, [0.5 + seed / 10] * 3), 0.1) for seed in (1, 2, 3)]
    old = [ChosenRun(run(seed, [0.4 + seed / 10] * 3), 0.1) for seed in (2, 3, 4)]
    first, second = gains(new, old)
    assert first.points == second.points == pytest.approx([10, 10])
    assert first.above_zero
    assert str(Gain([1.0, -1.0])).startswith("+0.0 ± 12.7")
    assert not Gain([5.0]).above_zero


def test_groups_that_share_a_head_are_named_together():
    apart = ChosenRun(run(1, [0.5] * 3, choice=[1, 1, 0]), 0.1)
    together = ChosenRun(run(2, [0.5] * 3, choice=[0, 0, 0]), 0.1)
    assert who_found_whom([apart, together, apart], ("foliated", "bare")) == [
        ("foliated · bare", 2, 0.0),
        ("foliated + bare", 1, 0.0),
    ]
    hospitals = ChosenRun(run(1, [0.5] * 3, cluster=(0, 0, 0), choice=[0, 1, 0]), 0.1)
    assert who_found_whom([hospitals], ("a", "b", "c")) == [("a + c · b", 1, 0.0)]


def test_what_failed_comes_first(kept):
    page = drawn(kept)
    assert page.index("## Where FACADE does not help") < page.index("## What it had to show") < page.index("## Land")
    bars = page.split("## What it had to show")[1].split("##")[0]
    met = [line.endswith("| yes |") for line in bars.splitlines() if line.startswith("|")][2:]
    assert met == sorted(met)
    assert len(met) >= 11
