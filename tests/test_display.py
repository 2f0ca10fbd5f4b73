"""What a person reads in the terminal after a run."""

import io
import re

import pytest
from rich.console import Console

from experiments import digits
from facade.cli import display
from facade.cli.progress import RunProgress

CLUSTER, SIZES = [0, 0, 0, 1, 1], [3, 2]


def bar_of(width, shares, measure="accuracy"):
    """The last line of a run's bar, on a terminal."""
    terminal = io.StringIO()
    console = Console(file=terminal, width=width, force_terminal=True, color_system=None)
    run = digits(clusters=":".join(str(9 - c) for c in range(len(shares))), rounds=1200, steps=1, every=80)
    run = run.with_(f"evaluation.measure={measure}")
    with RunProgress(console) as progress:
        progress.start(run, 0)
        progress.evaluated(80, {"measured": {"clusters": shares}}, final=False)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).splitlines()
    return next(line for line in reversed(lines) if line.strip())


@pytest.mark.parametrize(
    ("width", "shares", "accuracies"),
    [
        (80, [0.848, 0.517, 0.387], "84.8 51.7 38.7 %"),
        (120, [0.848, 0.517, 0.387], "84.8 51.7 38.7 %"),
        (80, [0.848, 0.517], "84.8 51.7 %"),
        (100, [0.848, 0.517], "majority  84.8%  minority  51.7%"),
    ],
)
def test_a_bar_keeps_its_time_beside_the_accuracies_of_all_clusters(width, shares, accuracies):
    line = bar_of(width, shares)
    assert re.search(rf"  facade .+ 0/1200 +{accuracies} [-0]:[-0]{{2}}:[-0]{{2}}$", line.rstrip()), line
    assert len(line) <= width


@pytest.mark.parametrize(
    ("width", "measure", "values", "shown"),
    [
        (80, "auc", [0.9512, None], "AUC 0.951 -"),
        (80, "log-loss", [0.3, 1.25], "log loss 0.300 1.250"),
        (80, "balanced-accuracy", [0.5, 0.25], "bal. acc. 50.0 25.0 %"),
        (110, "auc", [0.9512, None], "AUC: majority  0.951  minority      -"),
        (110, "log-loss", [0.3, 1.25], "log loss: majority  0.300  minority  1.250"),
    ],
)
def test_a_bar_shows_the_measure_that_counts(width, measure, values, shown):
    assert shown in bar_of(width, values, measure)


def test_every_number_stands_below_its_heading():
    summary = {
        "clusters": [0.91, 0.42], "all": 0.88, "worst_node": 0.41, "fair_accuracy": 0.73, "dp": 0.011, "eo": 0.222,
        "bytes_per_node": 15.4e6, "settled": False, "separated": True, "seconds": 1.5,
    }  # fmt: skip
    terminal = io.StringIO()
    display.print_summaries(Console(file=terminal, width=120), {"el": summary}, [30, 2])
    _, above, below, numbers, _ = terminal.getvalue().splitlines()
    assert above.split() == ["majority", "minority", "worst", "fair", "MB", "per"]
    assert below.split() == [
        "algorithm",
        "30",
        "nodes",
        "2",
        "nodes",
        "all",
        "node",
        "acc.",
        "DP",
        "EO",
        "node",
        "settled",
        "sec.",
    ]
    assert numbers.split() == ["el", "91.0", "42.0", "88.0", "41.0", "73.0", "0.011", "0.222", "15.4", "apart", "1.5"]


def test_what_leads_is_bold_and_nothing_else():
    numbers = {"all": 0.9, "worst_node": 0.8, "fair_accuracy": 0.9, "dp": 0.0, "eo": 0.1, "bytes_per_node": 0}
    rest = {"settled": None, "separated": None, "seconds": 1.0}
    summaries = {
        name: numbers | rest | {"clusters": [0.97, minority]}
        for name, minority in {"el": 0.625, "deprl": 0.856, "facade": 0.885}.items()
    }
    terminal = io.StringIO()
    console = Console(file=terminal, width=120, force_terminal=True, color_system="standard")
    display.print_summaries(console, summaries, [30, 2], {"cluster_1": {"deprl", "facade"}})
    _, _, _, *lines = terminal.getvalue().splitlines()
    bold = [re.findall(r"\x1b\[1(?:;36)?m *([0-9.]+)", line) for line in lines[:3]]
    assert bold == [[], ["85.6"], ["88.5"]]
    assert ["36m" in line for line in lines[:3]] == [False, False, True], "FACADE's line is coloured"
    assert "Bold: the best, and what cannot be told from it" in terminal.getvalue()


@pytest.mark.parametrize(
    ("settled", "choice", "sentence"),
    [
        (None, None, None),
        (True, [1, 1, 1, 0, 0], "Settled: every cluster found a head of its own."),
        (
            False,
            [0, 1, 0, 0, 2],
            "Not settled: head 0 is shared by majority and minority. Clusters that share a head get no model of"
            " their own.",
        ),
        (
            False,
            [0, 1, 0, 2, 2],
            "Apart, but not settled: no head is shared, yet a cluster uses several heads.",
        ),
    ],
)
def test_what_the_choice_of_heads_came_to_is_said_in_a_sentence(settled, choice, sentence):
    assert display.settlement({"settled": settled, "choice": choice}, CLUSTER, SIZES) == sentence


def test_every_head_that_is_shared_is_named_with_its_users():
    sentence = display.settlement({"settled": False, "choice": [0, 1, 1, 1, 0]}, [0, 0, 1, 1, 2], [2, 2, 1])
    assert "head 0 is shared by cluster 0 and cluster 2; head 1 is shared by cluster 0 and cluster 1." in sentence


def chosen(rounds):
    """A node chooses head 0 in odd rounds and its cluster's in even ones."""
    return {round: [c * (1 - round % 2) for c in CLUSTER] for round in rounds}


def test_the_strip_shows_chosen_heads_cluster_by_cluster_at_a_few_rounds():
    strip = display.head_strip(chosen(range(1, 15)), CLUSTER, width=80)
    assert strip.plain.splitlines() == [
        "  round    1  000  00",
        "  round    3  000  00",
        "  round    4  000  11",
        "  round    6  000  11",
        "  round    8  000  11",
        "  round   11  000  00",
        "  round   12  000  11",
        "  round   13  000  00",
        "  round   14  000  11",
    ]
    shown = {(strip.plain[span.start], span.style) for span in strip.spans if span.style != "dim"}
    assert shown == {("0", display.HEAD_STYLES[0]), ("1", display.HEAD_STYLES[1])}


def test_a_strip_is_cut_where_the_terminal_ends():
    (line,) = display.head_strip(chosen([2]), CLUSTER, width=20).plain.splitlines()
    assert line.split() == ["round", "2", "000", "1"]
    assert len(line.rstrip()) == 20


def test_rounds_are_shown_where_heads_are_found_and_some_between():
    choices = {round: [0, round > 16, 2 * (round > 23)] for round in range(1, 81)}
    assert display.few_rounds(choices) == [1, 16, 17, 23, 24, 38, 52, 66, 80]


def test_where_choices_never_change_rounds_are_shown_evenly():
    assert display.few_rounds({round: [0, 0] for round in range(1, 82)}) == [1, 11, 21, 31, 41, 51, 61, 71, 81]


def test_of_a_short_run_all_rounds_are_shown():
    assert display.few_rounds({round: [0] for round in (1, 2, 4)}) == [1, 2, 4]
    assert display.few_rounds({}) == []
