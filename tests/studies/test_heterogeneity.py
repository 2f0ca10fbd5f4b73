"""The study of heterogeneity: what is kept of a run, that it can be repeated, and the page drawn from it."""

from pathlib import Path

import pytest

from facade import FacadeError
from facade.studies import computing, heterogeneity
from facade.studies.heterogeneity_page import drawn
from facade.studies.kept_lines import Case, KeptLines

CLONE = Path(__file__).parents[2]
KEPT = CLONE / "results" / "heterogeneity.jsonl.gz"

SMALL = {
    "data.source": "digits", "data.clusters": "3:1", "topology.degree": 2, "training.rounds": 3, "training.steps": 1,
}  # fmt: skip


def small(name, seeds, **more):
    return Case("small", name, SMALL | {"algorithm.name": name} | more, seeds)


@pytest.fixture(scope="module")
def kept():
    return KeptLines(KEPT)


def test_the_page_is_drawn_from_what_is_kept(kept):
    assert (CLONE / "docs" / "heterogeneity.md").read_text() == drawn(kept)


def test_what_is_kept_is_small_and_whole(kept):
    assert KEPT.stat().st_size <= 2_000_000
    assert kept.missing(heterogeneity.cases()) == []


@pytest.mark.parametrize(
    ("part", "label", "settings"),
    [
        ("labels", "class-means", {"data.clusters": "24:8", "data.alpha": 0.3, "training.loss": None}),
        ("labels", "as published", {"data.clusters": "30:2", "data.alpha": 1.0, "training.loss": "balanced"}),
        ("looks", "auto", {"data.skew": "brightness", "data.alpha": 0.3}),
        ("settling", "class-means", {"data.clusters": "30:2", "network.loss": 0.1}),
    ],
)
def test_a_kept_run_can_be_repeated(part, label, settings, kept, tmp_path):
    (case,) = (
        case
        for case in heterogeneity.cases()
        if (case.part, case.label) == (part, label) and all(case.settings.get(k) == v for k, v in settings.items())
    )
    once = Case(part, label, case.settings, case.seeds[:1])
    again = KeptLines(tmp_path / "again.jsonl.gz")
    again.add(computing._line(once, once.seeds[0], "data"))
    (then,), (now,) = kept.runs(once), again.runs(once)
    # Another processor rounds differently, and 120 rounds later a few images in a hundred are taken for others.
    assert now.clusters == pytest.approx(then.clusters, abs=3)
    assert (now.settled, now.heads) == (then.settled, then.heads)


def test_what_is_computed_is_kept_and_not_computed_again(tmp_path, monkeypatch):
    cases, said = [small("el", (1, 2)), small("local", (1,))], []
    kept = KeptLines(tmp_path / "kept.jsonl.gz")
    computing.compute(cases, kept, 1, "data", said.append)
    assert said[-1] == "3 of 3 runs"
    again = KeptLines(kept.path)
    assert len(again) == 3
    assert again.missing([*cases, small("el", (2, 3))]) == [(small("el", (2, 3)), 3)]
    assert [run.seed for run in again.runs(cases[0])] == [1, 2]
    assert all(len(run.clusters) == 2 and 0 < run.worst_node < 100 for run in again.runs(cases[0]))


def test_a_run_that_fails_is_named_and_what_was_computed_is_kept(tmp_path):
    cases = [small("el", (1,)), small("dpsgd", (7,), **{"topology.degree": 9})]
    kept = KeptLines(tmp_path / "kept.jsonl.gz")
    with pytest.raises(FacadeError, match=r"^the run 'dpsgd' of 'small', seed 7, failed: topology.degree = 9"):
        computing.compute(cases, kept, 1, "data", lambda words: None)
    assert len(KeptLines(kept.path)) == 1


def test_the_same_lines_are_the_same_bytes_in_whatever_order_they_come(tmp_path):
    lines = [computing._line(small("local", (seed,)), seed, "data") for seed in (1, 2)]
    written = []
    for order in (lines, lines[::-1]):
        kept = KeptLines(tmp_path / f"{len(written)}.jsonl.gz")
        for line in order:
            kept.add(line)
        kept.write()
        written.append(kept.path.read_bytes())
    assert written[0] == written[1]


def test_nodes_that_have_one_model_share_a_matrix():
    el, alone = (computing._line(small(name, (1,)), 1, "data") for name in ("el", "local"))
    assert (len(el["confusion"]), el["of_node"]) == (2, [0, 0, 0, 1])
    assert len(alone["confusion"]) == 4


def test_bars_that_were_missed_come_first(kept):
    table = drawn(kept).split("## What it had to show")[1].split("##")[0]
    met = [line.endswith("| yes |") for line in table.splitlines() if line.startswith("|")][2:]
    assert met == sorted(met)
    assert len(met) > 20


def test_the_command_draws_the_page_and_knows_its_studies(command, tmp_path):
    page = tmp_path / "page.md"
    ended = command("study", "heterogeneity", "--draw", "--results", str(KEPT.parent), "--page", str(page))
    assert ended.code == 0, ended.err
    assert page.read_text() == (CLONE / "docs" / "heterogeneity.md").read_text()
    wrong = command("study", "heterogenity", "--draw")
    assert wrong.code == 2
    assert "did you mean 'heterogeneity'?" in wrong.err
