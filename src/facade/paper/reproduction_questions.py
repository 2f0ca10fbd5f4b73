"""Sections of the reproduction's page that ask further: the price of an accuracy, who settles, which DePRL, how many
heads, and what the published artefact computes. A section is empty until one of its runs is kept."""

from __future__ import annotations

from pathlib import Path

from facade.algorithms.seeding.farthest import Calendar
from facade.analysis.statistics import cost_to, numbers, settlement, settles, tested
from facade.experiment.config import Experiment
from facade.experiment.setup import planned
from facade.paper.published import ONE_HEAD_MINORITY, SAVED, TARGETS
from facade.paper.reproduction import CAUSES, SETTLING_IMAGES, SETTLING_ROUNDS, KeptRuns, Run
from facade.paper.reproduction_tables import cells, headings, image, number, parts, runs_of, settled, table
from facade.paper.settings import EVERY, QUICK_TARGET, Part, Scale
from facade.paper.study import as_compared
from facade.runs.history import History


def price(runs: list[Run], kept: KeptRuns, scale: Scale) -> str:
    """The price of an accuracy, where two algorithms can be compared."""
    lines = []
    for part in parts(runs, "full"):
        target = QUICK_TARGET if scale.quick else TARGETS[part.setting.source]
        histories = {run.label: kept.get(run) for run in runs_of(runs, "full", part)}
        costs = {label: cost_to(as_compared(run), target) for label, run in histories.items() if run is not None}
        el = costs.get("EL")
        for label, cost in costs.items():
            if label == "alone":  # hears nothing
                continue
            saved = None if cost is None or el is None else 100 * (1 - cost.bytes / el.bytes)
            published = SAVED.get((part.setting.source, part.clusters, "el")) if label.startswith("FACADE") else None
            reached = ("not reached", "") if cost is None else (str(cost.rounds), f"{cost.bytes / 1e6:,.0f}")
            saving = "" if label == "EL" else number(saved, 1, 1) + ("" if published is None else f" ({published})")
            lines.append([part.clusters, label, *reached, saving])
    if not lines:
        return ""
    return (
        f"## The price of {target:.0%}\n\nThe first evaluation at which the mean over all nodes reached it, and the"
        f" megabytes a node had heard by then. Evaluations are {EVERY} rounds apart (the artefact's: 40), and"
        " no saving below such a step is seen.\n\n"
        + table(["", "", "round", "MB", "% fewer bytes than EL (published)"], lines)
    )


def who_settles(runs: list[Run], kept: KeptRuns, pictures: dict[str, Path], page: Path) -> str:
    """Plain and seeded heads in the first rounds, for every seed."""
    lines, counts, spent = [], [], []
    for part in parts(runs, "settling"):
        first, last = seeding_rounds(runs_of(runs, "settling", part)[0].experiment)
        spent.append(f"{part.clusters}: {last - first + 1}")
        by_seed: dict[int, dict[str, History]] = {}
        for run in runs_of(runs, "settling", part):
            history = kept.get(run)
            if history is not None:
                by_seed.setdefault(run.experiment.seed, {})[run.label] = history
        for seed, pair in by_seed.items():
            both = [_accuracies(pair[label]) if label in pair else "" for label in ("plain", "seeded")]
            lines.append([part.clusters, str(seed), *both])
        for label in ("plain", "seeded"):
            of_label = [pair[label] for pair in by_seed.values() if label in pair]
            counts.append(f"{part.clusters} {label} {sum(map(settles, of_label))} of {len(of_label)}")
    if not lines:
        return ""
    return "\n\n".join(
        [
            "## Who settles",
            f"FACADE for {SETTLING_ROUNDS} rounds, plain (as published) and with seeded heads; tested on"
            f" {SETTLING_IMAGES:,} images of each test set. A cell has the round from which on, until the last one,"
            f" every cluster had a head of its own, and the final accuracy of every cluster. Seeded runs spend some"
            f" rounds on finding heads ({', '.join(spent)}) and train that much less. Settled: {'; '.join(counts)}.",
            table(["", "seed", "plain", "seeded"], lines),
            image("Share of nodes at a head of their own cluster", pictures["settling"], page),
            "The picture shows, per round, the share of every cluster's nodes at a head that is their cluster's own,"
            " averaged over clusters: if all nodes share one head, that is 50 % with two clusters, 33 % with three.",
        ]
    )


def _accuracies(run: History) -> str:
    ours = numbers(run)
    accuracies = [f"{100 * ours[f'cluster_{c}']:.1f}" for c in range(int(max(run.cluster)) + 1)]  # type: ignore[arg-type]
    return f"{settled(run)} · {' / '.join(accuracies)}"


def which_deprl(runs: list[Run], kept: KeptRuns) -> str:
    """One core step a round, or as many as head steps."""
    pairs = [(run, kept.get(run)) for run in runs if run.stage == "steps"]
    lines = []
    for run, history in pairs:
        if history is not None:
            before = tested(history.evaluations[-1], history.cluster)
            lines += [[run.label, "before", *cells(before)], ["", "after", *cells(numbers(history))]]
    if not lines:
        return ""
    rounds = pairs[0][0].experiment.training.rounds
    return (
        f"## Which DePRL\n\nIts authors describe one core step a round; with as many as head steps it does the same"
        f" work as the others. {rounds} rounds at {pairs[0][0].part.clusters}, before and after the final exchange; the"
        " one that is fairer, each at its better, is the DePRL of the tables above.\n\n"
        + table(["", "exchange", *headings(pairs[0][0].part)], lines)
    )


def how_many_heads(runs: list[Run], kept: KeptRuns) -> str:
    """The same run with different numbers of heads."""
    lines, pairs = [], [(run, kept.get(run)) for run in runs if run.stage == "heads"]
    for run, history in pairs:
        if history is None:
            continue
        ours, heads = numbers(history), settlement(history)
        names = [*(f"cluster_{c}" for c in range(history.clusters)), "all", "fair_accuracy"]
        shown = [number(ours[name], 100, 2) for name in names]
        used = "" if heads is None else str(history.heads - len(heads.unused))
        lines.append([run.label, *shown, used, "" if heads is None else str(len(heads.shared))])
    if not lines:
        return ""
    first = pairs[0][0]
    clusters = [f"cluster {c} ({size} nodes)" for c, size in enumerate(first.experiment.data.sizes)]
    return (
        f"## How many heads\n\nFACADE as published, {first.part.clusters}, seed {first.experiment.seed},"
        f" {first.experiment.training.rounds:,} rounds, after the final exchange; the last columns count the heads that"
        " are in use, and those that nodes of several clusters share. The paper (Figure 8, the highest accuracies in"
        f" {first.part.setting.rounds:,} rounds) has {ONE_HEAD_MINORITY} % for the smallest cluster with one head, its"
        " best with three, and with four and five about the same.\n\n"
        + table(["", *clusters, "all", "fair", "in use", "shared"], lines)
    )


def artefacts_way(runs: list[Run], kept: KeptRuns) -> str:
    """The artefact's runs beside the paper's at the same rounds, before any final exchange."""
    artefacts = [run for run in runs if run.stage == "artefact"]
    part, lines = artefacts[0].part, []
    for algorithm in dict.fromkeys(run.label.partition(", the ")[0] for run in artefacts):
        paper = _as_published(runs, part, algorithm)
        theirs = {run.label.partition(", the ")[2]: run for run in artefacts if run.label.startswith(f"{algorithm},")}
        histories = {label: history for label, run in theirs.items() if (history := kept.get(run)) is not None}
        ours = kept.get(paper)
        if ours is not None and histories:
            lines += _at_same_rounds(algorithm, histories | {"paper": ours})
    if not lines:
        return ""
    return (
        "## The artefact's way\n\nThe published artefact computes something else than the paper describes (`--preset"
        " artefact`: every node its own random start, a random division of the data, heads scored on batches of their"
        " own, one's own head always averaged in, and the head to be tested chosen by its loss on the test data). EL"
        " also gives up a tenth of its training images for validation (`data.validation = 0.1`)."
        f" {part.clusters}, before any final exchange.\n\n"
        + table(["round", "", "as in the", *headings(part), "settled"], lines)
        + _causes(runs, kept)
    )


def _as_published(runs: list[Run], part: Part, algorithm: str) -> Run:
    labels = (algorithm, f"{algorithm}, as published")
    return next(run for run in runs_of(runs, "full", part) if run.label in labels)


def _at_same_rounds(algorithm: str, histories: dict[str, History]) -> list[list[str]]:
    """Lines for the rounds in which all of these runs were tested."""
    tests = {label: {one.round: one for one in history.evaluations} for label, history in histories.items()}
    shared = sorted(set.intersection(*(set(of_run) for of_run in tests.values())))
    return [
        [str(round), algorithm, label, *cells(tested(tests[label][round], history.cluster)), settled(history)]
        for round in shared
        for label, history in histories.items()
    ]


def _causes(runs: list[Run], kept: KeptRuns) -> str:
    """Which of the artefact's settings keep heads from settling: mixtures of them with the paper's."""
    mixtures = [run for run in runs if run.stage == "cause"]
    if not any(kept.get(run) for run in mixtures):
        return ""
    part, rounds = mixtures[0].part, mixtures[0].experiment.training.rounds
    late = range(rounds - rounds // 3, rounds)
    artefact = next(run for run in runs if run.stage == "artefact")
    compared = [_as_published(runs, part, "FACADE"), *mixtures, artefact]
    lines = [_mixture(run, history, late) for run in compared if (history := kept.get(run)) is not None]
    return (
        f"\n\nWhich of these settings keep heads from settling: {rounds} rounds with some of them, seed"
        f" {mixtures[0].experiment.seed}; the start is a node's own first model and share of the data. The last columns"
        f" say how many nodes changed their head from one round to the next, in rounds {late[0] + 1} to {late[-1] + 1};"
        " the first and the last line are from the longer runs above.\n\n"
        + table([*CAUSES, "settled", *(f"{name}, % changing" for name in headings(part)[:2])], lines)
    )


def _mixture(run: Run, history: History, late: range) -> list[str]:
    """A line: where each group of settings is from, when heads settled, and the share of choices in the late rounds,
    counted from 0, that are not those of the round before."""
    assert history.choice is not None, "FACADE chooses"
    changes = history.choice[late] != history.choice[late.start - 1 : late.stop - 1]
    by_cluster = [number(changes[:, history.cluster == c].mean(), 100, 1) for c in range(history.clusters)]
    theirs = [run.experiment.with_(*settings) == run.experiment for settings in CAUSES.values()]
    return [*("artefact" if has else "paper" for has in theirs), settled(history), *by_cluster]


def seeding_rounds(experiment: Experiment) -> tuple[int, int]:
    """The first and the last round, counted from 1, that a seeded run spends on finding heads."""
    warmup = experiment.algorithm["warmup"]
    return warmup + 1, Calendar(warmup, experiment.algorithm["heads"]).ready(planned(experiment)[1].spread)
