import tomllib

import pytest

from facade import Experiment
from facade.paper import settings, studies, theory
from facade.paper.settings import CIFAR, FLICKR, IMAGENETTE, Part, Scale, experiment
from facade.paper.studies import STUDIES
from facade.paper.theory_figure import reduced
from facade.sweep import estimate
from surroundings import EXPERIMENTS, csv_lines

TINY = ("--quick", "--rounds", "12")


def lines_of(path):
    return csv_lines(path.read_text())


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("cifar10-30-2", Part(CIFAR, "30:2")),
        ("cifar10-20-10-2", Part(CIFAR, "20:10:2")),
        ("cifar10-labels-24-8", Part(CIFAR, "24:8", "labels")),
        ("cifar10-colour-20-6-4-2", Part(CIFAR, "20:6:4:2", "colour")),
        ("imagenette-20-4", Part(IMAGENETTE, "20:4")),
        ("flickr-mammals-14-2", Part(FLICKR, "14:2")),
    ],
)
def test_the_papers_experiments_are_those_of_the_experiment_files(file, part):
    exchanged = {"dac": ["algorithm.all_reduce=true"]}  # the studies show DAC before and after an exchange
    for algorithm in settings.RIVALS:
        chosen = [f"algorithm.name={algorithm}", "seed=3", *exchanged.get(algorithm, [])]
        written = Experiment.load(EXPERIMENTS / f"{file}.toml", chosen)
        assert experiment(part, algorithm, None, 3, Scale()).hash == written.hash


def test_every_figure_and_table_of_the_paper_has_a_name(command):
    wanted = {"F1", *(f"F{number}" for number in range(3, 21)), *(f"T{number}" for number in range(1, 5)), "theory"}
    assert wanted | {"minority", "pareto"} == set(STUDIES)
    listed = command("paper", "list")
    assert [line.split()[0] for line in listed.out.splitlines()] == list(STUDIES)


def test_an_unknown_figure_is_refused_with_a_suggestion(command):
    ended = command("paper", "F91", "--quick")
    assert ended.code == 2
    assert "did you mean" in ended.err


def test_every_reduction_is_a_valid_experiment_on_digits():
    for study in STUDIES.values():
        for part in study.parts:
            for algorithm in part.algorithms:
                described = experiment(part, algorithm, None, 1, Scale(quick=True))
                assert described.data.source == "digits"
                assert tomllib.loads(described.toml())["training"]["rounds"] == settings.QUICK_ROUNDS


def test_a_full_run_needs_no_note_and_a_reduction_says_what_it_is():
    study = STUDIES["F3"]
    assert study.note(Scale()) == ""
    assert study.note(Scale(rounds=100)) == "CHANGED: 100 of 1200 rounds, seeds 1, 2, 3, 4"
    assert study.note(Scale(rounds=1200, seeds=(1, 2, 3, 4))) == "", "these are the paper's own"
    assert study.note(Scale(quick=True)).startswith("QUICK: digits and an mlp for cifar10; 60 of 1200 rounds, seed 1")


def test_head_shares_are_drawn_compared_and_reused(command, tmp_path):
    ended = command("paper", "F9", *TINY, "--out", tmp_path)
    assert ended.code == 0, ended.err
    assert "Expected: about" in ended.err
    assert "QUICK: digits and an mlp for cifar10; 12 of 1200 rounds" in ended.out
    assert {path.name for path in tmp_path.iterdir()} >= {"F9.png", "F9.pdf", "F9.csv", "runs"}
    published_rounds = [line["published"] for line in lines_of(tmp_path / "F9.csv")[:2]]
    assert published_rounds == ["18", "42"]
    again = command("paper", "F16", *TINY, "--out", tmp_path)
    assert again.code == 0, again.err
    assert "1 runs: 1 finished, 0 to continue, 0 to start." in again.err


def test_table_two_stands_beside_the_published_numbers(command, tmp_path, monkeypatch):
    # Timing twelve kinds of run takes longer than running them; that estimates are made, F9 shows.
    monkeypatch.setattr(estimate, "trial", lambda experiment: estimate.Price(0, 0, 0))
    ended = command("paper", "T2", "--quick", "--rounds", "6", "--out", tmp_path)
    assert ended.code == 0, ended.err
    lines = {line["what"]: line for line in lines_of(tmp_path / "T2.csv")}
    line = lines["30:2 FACADE minority"]
    assert line["published"] == "59.96"
    assert float(line["difference"]) == pytest.approx(float(line["ours"]) - 59.96, abs=0.011)
    assert len(lines) == 3 * 5 * 6 + 1
    before, after = (lines[f"30:2 DAC{kind} all"] for kind in ("", ", exchanged"))
    assert (before["published"], after["published"]) == ("69.88", "-")
    assert before["ours"] != after["ours"]


def test_table_one_needs_no_runs(command, tmp_path):
    ended = command("paper", "T1", "--out", tmp_path)
    assert ended.code == 0, ended.err
    differences = {line["what"]: line["difference"] for line in lines_of(tmp_path / "T1.csv")}
    weights = {what: difference for what, difference in differences.items() if what.endswith("weights")}
    assert list(weights.values()) == ["-30166", "-129446", "+2649"]
    assert {difference for what, difference in differences.items() if what not in weights} <= {"+0", "+0.0000"}


def test_all_studies_together_end_with_a_contact_sheet(command, tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "STUDIES", {"T1": STUDIES["T1"]})
    ended = command("paper", "all", "--out", tmp_path)
    assert ended.code == 0, ended.err
    assert {path.name for path in tmp_path.iterdir()} == {"T1.png", "T1.pdf", "T1.csv", "contact-sheet.png"}


@pytest.mark.parametrize(
    ("scale", "note"),
    [
        (settings.Scale(), ""),
        (settings.Scale(seeds=(1,)), ""),
        (settings.Scale(seeds=(3, 4)), "CHANGED: seed 3 alone"),
        (settings.Scale(quick=True, seeds=(1, 2)), "QUICK: 120 of 400 rounds, seed 1 alone"),
    ],
)
def test_a_figure_of_the_theory_says_of_which_seed_it_is(scale, note):
    assert reduced(scale) == note


@pytest.fixture(scope="module")
def descents():
    return {degree: theory.descend(degree, 60)[1] for degree in (2, 8, None)}


def test_every_cluster_stays_below_the_bound_of_the_theory(descents):
    for degree, descent in descents.items():
        assert descent.holds, degree
        assert not descent.shared
        assert descent.distances[-1].max() < descent.distances[0].min(), degree


def test_hearing_more_peers_brings_models_closer_to_the_optimum(descents):
    ends = [descents[degree].distances[-1].max() for degree in (2, 8, None)]
    assert ends == sorted(ends, reverse=True)


def test_with_everyone_heard_the_bound_has_no_floor_and_the_rate_beats_it(descents):
    facts, descent = theory.descend(None, 20)
    assert descent.floor.max() < 1e-9
    assert (descents[None].rates < facts.factor).all()


def test_a_start_outside_the_assumption_does_not_converge():
    _, control = theory.descend(4, 30, inside=False)
    assert control.shared
    assert control.distances[-1].max() > control.distances[0].min()


def test_the_optima_are_optimal_and_heads_start_at_the_radius():
    facts, _ = theory.descend(4, 1)
    for head, best in zip(theory.starts(facts, 1, inside=True), facts.optima, strict=True):
        assert ((head - best) ** 2).sum() ** 0.5 == pytest.approx(facts.radius)
