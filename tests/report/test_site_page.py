"""The page of a federation of sites of which nobody knows who is alike, and tables that fit it."""

import json

import pytest

from facade.report import charts, facts, site_charts
from facade.report import page as pages
from facade.report.page_parts import fitting
from facade.report.verdicts import verdicts
from facade.runs.history import load_all
from handmade import write_run, write_sites

NAMES = [f"Hospital of {place}" for place in ("Basel", "Bern", "Chur", "Genf", "Lugano", "Sion")]
NAMES[3] = "Universitaetsspitalzentrum" * 4
ANSWERS = {"local": [6, 7, 6, 7, 6, 7], "el": [9, 9, 8, 9, 8, 3], "facade": [9, 9, 9, 9, 8, 8]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("sites")
    for algorithm, right in ANSWERS.items():
        choices = [0, 0, 0, 0, 0, 1] if algorithm == "facade" else None
        for seed in (1, 2):
            shifted = [min(10, right[0] + seed - 1), *right[1:]]
            settings = (f"algorithm.name={algorithm}", f"seed={seed}")
            write_sites(base / f"{algorithm}{seed}", shifted, *settings, names=NAMES, choices=choices)
    return load_all([base])


@pytest.fixture(scope="module")
def comparison(runs):
    (comparison,) = facts.comparisons(runs)
    return comparison


def test_the_verdict_names_the_worst_sites_who_gains_and_the_groups(comparison):
    el, local, alone, over_el, groups = verdicts(comparison)
    assert el.startswith("facade serves the worst site better than el by 50.0 points: 80.0\u00a0% (Hospital of Lugano)")
    assert "against 30.0\u00a0% (Hospital of Sion)" in el
    assert "(Hospital of Chur)" in local
    assert alone.startswith("Over training alone, sites gain 21.7 points on average by facade; Hospital of Sion gains")
    assert "least: +10.0 [10.0, 10.0]. By their own intervals, 6 of 6 sites are clearly better off" in alone
    assert "gains least: +0.0 [0.0, 0.0]" in over_el
    assert "2 of 6 sites are clearly better off (Hospital of Chur, Hospital of Sion)." in over_el
    assert groups.startswith("facade: Groups found by heads, the same with all 2 seeds: head 0: Hospital of Basel")


def test_there_is_a_line_per_site_and_a_gain_with_its_interval(comparison):
    figures = {figure.id: figure for figure in charts.of_comparison(comparison)}
    assert {"sites", "served", "gains", "pareto"} <= figures.keys()
    assert not {"accuracy", "fair", "odds"} & figures.keys(), "nothing is said of clusters"
    assert [panel.title for panel in figures["sites"].panels] == ["el", "facade", "local"]
    assert {row["site"] for row in figures["sites"].panels[0].rows} == set(NAMES)
    over_local, over_el = figures["gains"].panels
    sion = next(row for row in over_el.rows if row["site"] == NAMES[-1])
    assert (sion["who"], sion["gain"], sion["low"]) == ("facade", 50.0, 50.0)
    assert {row["who"] for row in over_local.rows} == {"el", "facade"}
    for figure in figures.values():
        for panel in figure.panels:
            panel.chart.to_dict(validate=True)
            assert "cluster" not in figure.title + panel.title


def test_heads_are_drawn_by_the_names_of_sites(comparison):
    (figure,) = charts.heads(comparison)
    assert figure.panels[0].title == "Every site"
    assert figure.panels[0].chart.to_dict(validate=False)["encoding"]["y"]["sort"] == NAMES
    assert "Groups found by heads" in figure.caption


@pytest.mark.parametrize(("sites", "lines"), [(12, 12), (100, 5)])
def test_many_sites_are_told_apart_by_their_ends_and_very_many_by_quantiles(tmp_path, sites, lines):
    right = [9] * (sites - 1) + [2]
    names = [f"s{i}" for i in range(sites)]
    path = write_sites(tmp_path / "run", right, "algorithm.name=el", names=names)
    (comparison,) = facts.comparisons(load_all([path]))
    rows = site_charts.over_rounds(comparison).panels[0].rows
    assert len({row["site"] for row in rows}) == lines
    last = [row for row in rows if row["final"]]
    if sites == 12:
        assert {row["shown"] for row in last} == {
            "lowest in the end: s11", "highest in the end: s0", "other sites",
        }  # fmt: skip
    else:
        assert {row["site"]: row["value"] for row in last}["lowest"] == 20.0


def test_names_are_used_where_clusters_are_known_too(tmp_path):
    rounds = [(1000, [0, 1, 0, 1])] * 2
    names = ["Basel", "Bern", "Chur", "Genf"]
    path = write_run(tmp_path / "run", rounds, {}, [9, 8, 9, 8], "data.clusters=2:2", cluster=(0, 1, 0, 1), sites=names)
    (comparison,) = facts.comparisons(load_all([path]))
    (figure,) = charts.heads(comparison)
    assert figure.panels[0].chart.to_dict(validate=False)["encoding"]["y"]["sort"] == ["Basel", "Chur", "Bern", "Genf"]
    assert not comparison.of_sites
    assert "worst-served cluster" in verdicts(comparison)[0]


def test_columns_stand_beside_each_other_as_far_as_there_is_room():
    column = [("a long heading", ""), ("80.00 ± 1.00", "[78.00, 82.00]")]
    parts = fitting([["algorithm", "facade"]], [column] * 20)
    assert [place for part in parts for place in part] == list(range(20))
    assert len(parts) == 3
    assert fitting([["algorithm", "facade"]], [column] * 3) == [[0, 1, 2]]
    assert fitting([["setting", "x" * 500]] * 6, [column] * 3) == [[0], [1], [2]]


def test_tables_of_sites_and_of_clusters_fit_1280_pixels(runs, tmp_path, browser):
    page = pages.write(runs, tmp_path / "sites.html")
    opened = browser(page, width=1280)
    assert opened.console == []
    assert opened.seen["drawn"] == len(opened.seen["marks"]) > 0
    assert opened.seen["sideways"] == 0
    for seed in (1, 2):
        for algorithm, lr in (("facade", 0.05), ("facade", 0.1), ("el", 0.05), ("local", 0.05)):
            settings = (f"algorithm.name={algorithm}", f"training.lr={lr}", f"seed={seed}")
            rounds = [(1e8, [0, 0, 0, 1] if algorithm == "facade" else None)] * 2
            write_run(
                tmp_path / "runs" / f"{algorithm}{lr}{seed}", rounds, {2: [9, 9, 9, 8]}, [9, 9, seed, 8], *settings
            )
    opened = browser(pages.write(load_all([tmp_path / "runs"]), tmp_path / "clusters.html"), width=1280)
    assert (opened.console, opened.seen["sideways"], opened.seen["lines"]) == ([], 0, 4)


def test_hostile_names_of_sites_are_text(tmp_path):
    names = ["<script>alert(1)</script>", "b", "c", "d"]
    path = write_sites(tmp_path / "run", [9, 9, 9, 5], "algorithm.name=el", names=names)
    page = pages.report(load_all([path]))
    assert "<script>alert" not in page
    assert json.loads((path / "federation.json").read_text())["sites"] == names
