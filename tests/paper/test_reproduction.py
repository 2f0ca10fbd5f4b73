"""The reproduction: what is computed in which order, what is kept, and what the page says of it."""

import json
import re
import shutil
import tomllib

import pytest

from facade import Experiment
from facade.paper import reproduction, settings
from facade.paper.reproduction import Claim, KeptRuns, Run, claims, plan
from facade.paper.reproduction_page import write
from facade.paper.settings import CIFAR, Part, Scale
from handmade import write_run_of
from surroundings import ROOT

SKEWED = Part(CIFAR, "30:2")


def keep(run: Run, into, right=(8, 8), settled=True, before=None, wavering=0):
    """Write a finished run by hand: `right` answers of ten per class for either cluster, `before` the final
    exchange if that is not the same; the first `wavering` nodes choose another head in the last round."""
    cluster = [c for c, size in enumerate(run.experiment.data.sizes) for _ in range(size)]
    choices = cluster if settled else [0] * len(cluster)
    rounds = [(10, choices if run.experiment.algorithm["name"] == "facade" else None)] * 3
    if wavering:
        rounds[-1] = (10, [1] * wavering + choices[wavering:])
    last, final = ([answers[min(c, 1)] for c in cluster] for answers in (before or right, right))
    path = write_run_of(run.experiment, into / run.name, rounds, {3: last}, final, cluster, final_bytes=10)
    (path / "environment.json").write_text(json.dumps({"cpu": "abacus", "cores": 2, "torch": "2"}))
    (path / "result.json").write_text('{"seconds": 120}')


def labelled(runs, stage, clusters="30:2"):
    return {run.label: run for run in runs if run.stage == stage and run.part.clusters == clusters}


def test_the_published_method_is_computed_before_anything_else_at_full_length(tmp_path):
    runs = plan(Scale(), KeptRuns(tmp_path))
    assert [run.stage for run in runs[:30]] == ["settling"] * 30
    assert {run.experiment.seed for run in runs[:30]} == {1, 2, 3, 4, 5}
    first = runs[30].experiment
    assert first.hash == settings.experiment(SKEWED, "facade", None, 1, Scale()).hash
    assert (first.training.rounds, first.evaluation.images, first.algorithm["seeding"]) == (1200, 0, "none")
    assert len({run.name for run in runs}) == len(runs)


def test_the_fairer_deprl_runs_at_full_length(tmp_path):
    kept = KeptRuns(tmp_path)
    runs = plan(Scale(), kept)
    assert "DePRL" not in labelled(runs, "full")
    steps = labelled(runs, "steps")
    assert set(steps) == {"core_steps = 1", "core_steps = 10"}
    keep(steps["core_steps = 1"], tmp_path, (7, 5))
    keep(steps["core_steps = 10"], tmp_path, (8, 5))
    chosen = labelled(plan(Scale(), kept), "full")["DePRL"].experiment
    assert chosen.algorithm["core_steps"] == 1  # 6 of 10 with a gap of 2 is fairer than 6.5 with a gap of 3
    assert chosen.training.rounds == 1200


def test_an_exchange_that_harms_a_deprl_does_not_decide_against_it(tmp_path):
    kept = KeptRuns(tmp_path)
    steps = labelled(plan(Scale(), kept), "steps")
    keep(steps["core_steps = 1"], tmp_path, (7, 5))
    keep(steps["core_steps = 10"], tmp_path, (8, 4), before=(8, 7))
    assert labelled(plan(Scale(), kept), "full")["DePRL"].experiment.algorithm["core_steps"] == 10


def test_a_published_run_that_never_settles_stays_and_is_joined_by_another_seed(tmp_path):
    kept = KeptRuns(tmp_path)
    first = labelled(plan(Scale(), kept), "full")["FACADE, as published"]
    keep(first, tmp_path, settled=False)
    again = labelled(plan(Scale(), kept), "full")
    assert again["FACADE, as published"] == first
    assert again["FACADE, as published, seed 2"].experiment.seed == 2
    assert not [claim for claim in claims(again.values(), kept) if "FACADE, as published:" in claim.text]


def test_the_page_says_which_runs_are_not_judged(tmp_path):
    results = tmp_path / "results"
    keep(labelled(plan(Scale(), KeptRuns(results)), "full")["FACADE, as published"], results, settled=False)
    write(tmp_path / "page.md", results, Scale())
    sentence = "**Not judged, because they never settled:** 30:2 FACADE, as published."
    assert sentence in (tmp_path / "page.md").read_text()


def test_claims_that_fail_come_first_and_nothing_is_claimed_of_missing_runs(tmp_path):
    kept = KeptRuns(tmp_path)
    runs = plan(Scale(), kept)
    assert {claim.state for claim in claims(runs, kept)} == {"open"}
    full = labelled(runs, "full")
    keep(full["FACADE, as published"], tmp_path, (9, 7))
    keep(full["EL"], tmp_path, (9, 6))
    every_claim = claims(runs, kept)
    assert [claim.state for claim in every_claim[:1]] == ["fails"]
    assert "minority above EL's" in every_claim[0].text
    assert every_claim[0].ours == pytest.approx(10)
    held = [claim.text for claim in every_claim if claim.state == "holds"]
    assert held == ["30:2: EL's majority above its minority"]
    assert any("every baseline's" in claim.text for claim in every_claim if claim.state == "open")


def test_every_baseline_counts_with_its_better_models(tmp_path):
    kept = KeptRuns(tmp_path)
    for run in labelled(plan(Scale(), kept), "steps").values():
        keep(run, tmp_path)
    runs = plan(Scale(), kept)
    full = labelled(runs, "full")
    keep(full["FACADE, as published"], tmp_path, (9, 8), before=(9, 9))
    keep(full["EL"], tmp_path, (9, 4))
    keep(full["DePRL"], tmp_path, (7, 5), before=(7, 6))
    keep(full["alone"], tmp_path, (4, 4))
    about = "FACADE, as published: minority above every baseline's"
    (claim,) = (claim for claim in claims(runs, kept) if about in claim.text)
    assert claim.ours is None  # DAC is missing
    keep(full["DAC"], tmp_path, (7, 7), before=(8, 5))
    (claim,) = (claim for claim in claims(runs, kept) if about in claim.text)
    assert claim.ours == pytest.approx(10)  # our final 8 of ten above DAC's 7 after its exchange


def test_a_claim_holds_from_its_limit_on():
    assert Claim("", 4, 7.4, 4.0).state == "holds"
    assert Claim("", 4, 7.4, 3.99).state == "fails"


def test_the_page_shows_what_is_there_and_names_what_is_not(tmp_path):
    results = tmp_path / "results"
    runs = plan(Scale(), KeptRuns(results))
    full, settling = labelled(runs, "full"), [run for run in runs if run.stage == "settling"]
    keep(full["FACADE, as published"], results, (9, 7))
    keep(settling[0], results, settled=False)
    (results / "notes.md").write_text("## What the runs teach\n\nPatience.\n")
    written = write(tmp_path / "page.md", results, Scale())
    text = (tmp_path / "page.md").read_text()
    assert "| FACADE, as published | 90.00 (73.32) | 70.00 (59.96) |" in text
    assert "| 30:2 | 1 | **never** · 80.0 / 80.0 |  |" in text
    assert "Patience." in text
    assert "Not judged" not in text
    assert re.search(r"\*\*Not computed yet:\*\* 30:2 plain \(4 runs\);.* 30:2 EL;", text)
    assert [path.name for path in written] == ["page.md", "accuracy.png", "settling.png"]
    assert all(path.read_bytes() for path in written)
    assert write(tmp_path / "page.md", results, Scale()) == written
    assert (tmp_path / "page.md").read_text() == text


def test_the_page_counts_heads_that_are_used_and_shared(tmp_path):
    results = tmp_path / "results"
    runs = labelled(plan(Scale(), KeptRuns(results)), "heads", "20:10:2")
    assert [run.experiment.algorithm["heads"] for run in runs.values()] == [1, 2, 3, 5]
    assert {run.experiment.training.rounds for run in runs.values()} == {reproduction.HEADS_ROUNDS}
    keep(runs["k = 2"], results, (9, 6), settled=False)
    keep(runs["k = 5"], results, (9, 8))
    write(tmp_path / "page.md", results, Scale())
    text = (tmp_path / "page.md").read_text()
    assert "| cluster 0 (20 nodes) | cluster 1 (10 nodes) | cluster 2 (2 nodes) |" in text
    assert "| k = 2 | 90.00 | 60.00 | 60.00 | 78.75 | 70.00 | 1 | 1 |" in text  # 2/3 of 0.7 and 1/3 of 1 - 0.3
    assert "| k = 5 | 90.00 | 80.00 | 80.00 | 86.25 | 85.56 | 3 | 0 |" in text
    assert "| k = 1 |" not in text


def test_an_artefact_that_never_settles_is_asked_why(tmp_path):
    kept = KeptRuns(tmp_path)
    first = labelled(plan(Scale(), kept), "artefact")["FACADE, the artefact"]
    assert not labelled(plan(Scale(), kept), "cause")
    keep(first, tmp_path, settled=False)
    runs = plan(Scale(), kept)
    second = labelled(runs, "artefact")["FACADE, the artefact, seed 2"].experiment
    assert second.hash == first.experiment.with_("seed=2").hash
    mixtures = [run.experiment for run in labelled(runs, "cause").values()]
    published = settings.experiment(SKEWED, "facade", None, 1, Scale())

    def groups(e):
        return e.algorithm["scoring"], e.algorithm["own_head"], (e.training.init, e.data.partition)

    paper, artefact = groups(published), groups(first.experiment)
    assert all(one != other for one, other in zip(paper, artefact, strict=True))
    assert [groups(e) for e in mixtures] == [
        (artefact[0], paper[1], paper[2]),
        (paper[0], artefact[1], paper[2]),
        (paper[0], paper[1], artefact[2]),
        (paper[0], artefact[1], artefact[2]),
    ]
    assert {e.training.rounds for e in mixtures} == {reproduction.CAUSE_ROUNDS}


def test_the_page_says_with_which_settings_heads_never_come_to_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "CAUSE_ROUNDS", 3)
    kept = KeptRuns(tmp_path / "results")
    runs = plan(Scale(), kept)
    keep(labelled(runs, "artefact")["FACADE, the artefact"], kept.directory, settled=False)
    keep(labelled(runs, "full")["FACADE, as published"], kept.directory)
    mixtures = labelled(plan(Scale(), kept), "cause")
    keep(mixtures["FACADE, the artefact's scoring"], kept.directory, wavering=3)
    keep(mixtures["FACADE, the artefact's own head and start"], kept.directory)
    write(tmp_path / "page.md", kept.directory, Scale())
    text = (tmp_path / "page.md").read_text()
    assert "| scoring | own head | start | settled | majority, % changing | minority, % changing |" in text
    assert [line for line in text.splitlines() if line.startswith(("| paper | paper |", "| artefact |"))] == [
        "| paper | paper | paper | 1 | 0.0 | 0.0 |",
        "| artefact | paper | paper | **never** | 10.0 | 0.0 |",
        "| artefact | artefact | artefact | **never** | 0.0 | 0.0 |",
    ]
    assert "| paper | artefact | artefact | 1 | 0.0 | 0.0 |" in text


def test_the_whole_reproduction_in_small(command, tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "QUICK_ROUNDS", 30)
    monkeypatch.setattr(reproduction, "SETTLING_ROUNDS", 36)
    ended = command("paper", "reproduction", "--quick", "--out", tmp_path)
    assert ended.code == 0, ended.err
    page = (tmp_path / "reproduction.md").read_text()
    assert "**QUICK: digits" in page
    assert "Not computed yet" not in page
    for label in ("FACADE, as published", "FACADE, seeded", "EL", "DePRL", "DAC", "alone"):
        assert f"| {label} |" in page
    for k in (1, 2, 3, 5):
        assert f"| k = {k} |" in page
    assert "## The artefact's way" in page
    for who in ("FACADE", "EL"):
        assert f"| 30 | {who} | artefact |" in page
    (tmp_path / "reproduction.md").unlink()
    drawn = command("paper", "reproduction", "--quick", "--draw", "--out", tmp_path)
    assert drawn.code == 0, drawn.err
    assert (tmp_path / "reproduction.md").read_text() == page


def test_every_run_of_the_plan_is_committed_although_experiments_have_got_fields_since():
    files = list((ROOT / "results").glob("*/experiment.toml"))
    hashes = {Experiment.load(file).hash for file in files}
    runs = plan(Scale(), KeptRuns(ROOT / "results"))
    assert [f"{run.part.clusters} {run.label}" for run in runs if run.experiment.hash not in hashes] == []
    older = [file for file in files if "edges" not in tomllib.loads(file.read_text())["topology"]]
    assert older, "some were computed before there was topology.edges, and are found by the rule for older files"


def test_drawing_leaves_the_page_in_docs_as_it_is(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "results").symlink_to(ROOT / "results")
    ended = command("paper", "reproduction", "--draw")
    assert ended.code == 0, ended.err
    assert (tmp_path / "docs/reproduction.md").read_text() == (ROOT / "docs/reproduction.md").read_text()
    pictures = {path.name for path in (ROOT / "docs/reproduction").iterdir()}
    assert {path.name for path in (tmp_path / "docs/reproduction").iterdir()} == pictures


def test_seeds_are_not_picked(command, tmp_path):
    ended = command("paper", "reproduction", "--seeds", "3", "--out", tmp_path)
    assert ended.code == 2
    assert "picks no seeds" in ended.err


def test_only_the_reproduction_is_drawn_without_computing(command, tmp_path):
    ended = command("paper", "T2", "--draw", "--out", tmp_path)
    assert ended.code == 2
    assert "--draw belongs to reproduction" in ended.err


@pytest.mark.parametrize("options", [(), ("--draw",), ("--results", "kept"), ("--page", "page.md")])
def test_outside_a_clone_nothing_is_written_unless_it_is_named(command, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    ended = command("paper", "reproduction", *options)
    assert ended.code == 2
    assert "call it in a clone, or name others with --results DIR --page FILE.md" in ended.err
    assert ended.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]


def test_a_page_is_drawn_from_named_results_anywhere(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "kept"
    keep(labelled(plan(Scale(), KeptRuns(results)), "full")["FACADE, as published"], results, (9, 7))
    ended = command("paper", "reproduction", "--draw", "--results", results, "--page", "mine/page.md")
    assert ended.code == 0, ended.err
    assert "| FACADE, as published | 90.00 (73.32) |" in (tmp_path / "mine/page.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "mine"}


def test_a_page_cannot_be_drawn_from_nothing(command, tmp_path):
    ended = command("paper", "reproduction", "--draw", "--results", tmp_path / "none", "--page", tmp_path / "page.md")
    assert ended.code == 1
    assert "none/ is not here" in ended.err
    assert not (tmp_path / "page.md").exists()


def test_only_the_reproduction_has_results_and_a_page(command, tmp_path):
    for option in ("--results", "--page"):
        ended = command("paper", "T2", option, tmp_path / "x", "--out", tmp_path)
        assert ended.code == 2
        assert f"{option} belongs to reproduction" in ended.err
