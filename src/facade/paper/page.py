"""The page of the reproduction: ours beside the published numbers, drawn from kept runs alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from facade import store
from facade.algorithms.seeding import Calendar
from facade.config import Experiment
from facade.history import History
from facade.paper import page_figures
from facade.paper.done import as_compared
from facade.paper.published import FINAL, SAVED, TARGETS, Printed
from facade.paper.reproduction import SETTLING_IMAGES, SETTLING_ROUNDS, Kept, Run, claims, plan
from facade.paper.settings import EVERY, QUICK_TARGET, Part, Scale
from facade.paper.tables import COLUMNS
from facade.records import RunDirectory
from facade.statistics import cost_to, numbers, settlement, settles, tested
from facade.topology import Regular

_COLUMNS = {("fair_accuracy" if name.startswith("fair") else name): how for name, how in COLUMNS.items()}
"""Those of the paper's tables; one seed is its own mean."""
_HEADINGS = [heading for _, heading, _, _ in _COLUMNS.values()]

NOTES = "notes.md"
"""In the directory of kept runs: what people learned from them, put on the page as it is."""


def write(page: Path, results: Path, scale: Scale) -> list[Path]:
    """Write the page, its pictures into a directory beside it of the same name, and say which files."""
    kept = Kept(results)
    runs = plan(scale, kept)
    pictures = page_figures.write(runs, kept, scale, page.with_suffix(""))
    notes = results / NOTES
    sections = [
        _opening(runs, kept, scale),
        _shown(runs, kept),
        *(_results(part, runs, kept) for part in _parts(runs, "full")),
        _curves(pictures, page),
        _bytes(runs, kept, scale),
        _settling(runs, kept, pictures, page),
        _steps(runs, kept),
        _artefact(runs, kept),
        notes.read_text().strip() if notes.exists() else "",
        _deviations(runs),
        _long_runs(runs, kept),
        _commands(),
    ]
    store.replace(page, ("\n\n".join(section for section in sections if section) + "\n").encode())
    return [page, *pictures.values()]


def _opening(runs: list[Run], kept: Kept, scale: Scale) -> str:
    missing = [f"{run.part.clusters} {run.label}" for run in runs if kept.get(run) is None]
    lines = ["# The paper's main experiment, reproduced"]
    if scale.quick:
        lines.append("**QUICK: digits and an mlp instead of CIFAR-10; nothing here is comparable with the paper.**")
    lines.append(
        "FACADE and the baselines as in the paper's Figure 3 and Table II: CIFAR-10 divided among 32 nodes, some of"
        " which see everything upside down (30:2 are 30 upright nodes and 2 others; 20:10:2, used for the question who"
        " settles, has a cluster turned by 90 degrees as well), GN-LeNet, 1,200 rounds of 10 steps on batches of 8,"
        " four peers a round, the paper's learning rates, FACADE with a warm-up of 10 rounds, tests on all 10,000"
        " images every 80 rounds. All algorithms have the same seed, division of the data, test set and evaluation"
        " rounds. The paper's other experiments are not on this page; `facade paper` computes them."
    )
    lines.append(
        "Everything is drawn from the rows in `results/` by `facade paper reproduction --draw`. Numbers in brackets and"
        " those called published are the paper's, means over several seeds; ours are single runs, and"
        " `facade show results/DIRECTORY` gives the interval of each that comes from the choice of test images."
    )
    if missing:
        counted = [
            f"{name} ({count} runs)" if (count := missing.count(name)) > 1 else name for name in dict.fromkeys(missing)
        ]
        lines.append(f"**Not computed yet:** {'; '.join(counted)}.")
    return "\n\n".join(lines)


def _shown(runs: list[Run], kept: Kept) -> str:
    words = {"fails": "**FAILS**", "open": "not known yet", "holds": "holds"}
    lines = [
        [claim.text, f"≥ {claim.least:g}", _number(claim.ours, 1, 1), f"{claim.published:.1f}", words[claim.state]]
        for claim in claims(runs, kept)
    ]
    text = (
        "In percentage points. What was wanted was fixed before the first run, well below what was published; baselines"
        " are EL, DePRL, DAC and training alone, and each counts with the better of what it had before and after its"
        " final exchange. What fails comes first."
    )
    asked = [run for run in runs if run.stage == "full" and run.part.clusters in ("30:2", "16:16")]
    found = {f"{run.part.clusters} {run.label}": kept.get(run) for run in asked}
    never = [
        name
        for name, history in found.items()
        if history is not None and history.choice is not None and not settles(history)
    ]
    if never:
        text += f" **Not judged, because they never settled:** {'; '.join(never)}."
    return f"## What it had to show\n\n{text}\n\n" + _table(["", "wanted", "ours", "published", ""], lines)


def _results(part: Part, runs: list[Run], kept: Kept) -> str:
    """Final numbers of one division into clusters, and those before the final exchange."""
    lines, before = [], []
    for run in _of(runs, "full", part):
        found = kept.get(run)
        if found is None:
            continue
        printed = FINAL.get((part.setting.source, part.clusters, found.algorithm))
        lines.append([run.label, *_beside(numbers(as_compared(found)), printed), _settled(found)])
        if found.algorithm == "dac":
            lines.append([f"{run.label}, after an exchange", *_cells(numbers(found)), ""])
        elif run.experiment.algorithm.get("all_reduce"):
            before.append([run.label, *_cells(tested(found.evaluations[-1], found.cluster))])
    if not lines:
        return ""
    return "\n\n".join(
        [
            f"## {part.clusters}",
            "Final numbers (published), accuracies in percent; DP and EO: 0 is fair; the last column is the round from"
            " which on every cluster had a head of its own.",
            _table(["", *_HEADINGS, "settled"], lines),
            "After the last round, before the final exchange, in which everybody hears everybody once:",
            _table(["", *_HEADINGS], before),
        ]
    )


def _beside(ours: dict[str, float], printed: Printed | None) -> Iterable[str]:
    for name, (theirs, _, scale, digits) in _COLUMNS.items():
        published = "" if printed is None else f" ({getattr(printed, theirs):.{digits}f})"
        yield _number(ours.get(name), scale, digits) + published


def _settled(run: History) -> str:
    found = settlement(run)
    if found is None:
        return ""
    return "**never**" if found.settling_round is None else str(found.settling_round)


def _curves(pictures: dict[str, Path], page: Path) -> str:
    if "accuracy" not in pictures:
        return ""
    return "## Over rounds\n\nLarge marks: after the final exchange.\n\n" + _image(
        "Accuracy over rounds", pictures["accuracy"], page
    )


def _image(words: str, picture: Path, page: Path) -> str:
    return f"![{words}]({picture.relative_to(page.parent).as_posix()})"


# Further questions


def _bytes(runs: list[Run], kept: Kept, scale: Scale) -> str:
    """The price of an accuracy, where two algorithms can be compared."""
    lines = []
    for part in _parts(runs, "full"):
        target = QUICK_TARGET if scale.quick else TARGETS[part.setting.source]
        found = {run.label: kept.get(run) for run in _of(runs, "full", part)}
        costs = {label: cost_to(as_compared(run), target) for label, run in found.items() if run is not None}
        el = costs.get("EL")
        for label, cost in costs.items():
            if label == "alone":  # hears nothing
                continue
            saved = None if cost is None or el is None else 100 * (1 - cost.bytes / el.bytes)
            published = SAVED.get((part.setting.source, part.clusters, "el")) if label.startswith("FACADE") else None
            reached = ("not reached", "") if cost is None else (str(cost.rounds), f"{cost.bytes / 1e6:,.0f}")
            saving = "" if label == "EL" else _number(saved, 1, 1) + ("" if published is None else f" ({published})")
            lines.append([part.clusters, label, *reached, saving])
    if not lines:
        return ""
    return (
        f"## The price of {target:.0%}\n\nThe first evaluation at which the mean over all nodes reached it, and the"
        f" megabytes a node had heard by then. Evaluations are {EVERY} rounds apart (the artefact's: 40), and"
        " no saving below such a step is seen.\n\n"
        + _table(["", "", "round", "MB", "% fewer bytes than EL (published)"], lines)
    )


def _settling(runs: list[Run], kept: Kept, pictures: dict[str, Path], page: Path) -> str:
    lines, counts, spent = [], [], []
    for part in _parts(runs, "settling"):
        first, last = _seeding_rounds(_of(runs, "settling", part)[0].experiment)
        spent.append(f"{part.clusters}: {last - first + 1}")
        by_seed: dict[int, dict[str, History]] = {}
        for run in _of(runs, "settling", part):
            found = kept.get(run)
            if found is not None:
                by_seed.setdefault(run.experiment.seed, {})[run.label] = found
        for seed, pair in by_seed.items():
            cells = [_accuracies(pair[label]) if label in pair else "" for label in ("plain", "seeded")]
            lines.append([part.clusters, str(seed), *cells])
        for label in ("plain", "seeded"):
            of_label = [pair[label] for pair in by_seed.values() if label in pair]
            settled = sum(map(settles, of_label))
            counts.append(f"{part.clusters} {label} {settled} of {len(of_label)}")
    if not lines:
        return ""
    return "\n\n".join(
        [
            "## Who settles",
            f"FACADE for {SETTLING_ROUNDS} rounds, plain (as published) and with seeded heads; tested on"
            f" {SETTLING_IMAGES:,} images of each test set. A cell has the round from which on, until the last one,"
            f" every cluster had a head of its own, and the final accuracy of every cluster. Seeded runs spend some"
            f" rounds on finding heads ({', '.join(spent)}) and train that much less. Settled: {'; '.join(counts)}.",
            _table(["", "seed", "plain", "seeded"], lines),
            _image("Share of nodes at a head of their own cluster", pictures["settling"], page),
            "The picture shows, per round, the share of every cluster's nodes at a head that is their cluster's own,"
            " averaged over clusters: if all nodes share one head, that is 50 % with two clusters, 33 % with three.",
        ]
    )


def _accuracies(run: History) -> str:
    found = numbers(run)
    shown = [f"{100 * found[f'cluster_{c}']:.1f}" for c in range(int(max(run.cluster)) + 1)]  # type: ignore[arg-type]
    return f"{_settled(run)} · {' / '.join(shown)}"


def _steps(runs: list[Run], kept: Kept) -> str:
    found = [(run, kept.get(run)) for run in runs if run.stage == "steps"]
    lines = []
    for run, history in found:
        if history is not None:
            before = tested(history.evaluations[-1], history.cluster)
            lines += [[run.label, "before", *_cells(before)], ["", "after", *_cells(numbers(history))]]
    if not lines:
        return ""
    rounds = found[0][0].experiment.training.rounds
    return (
        f"## Which DePRL\n\nIts authors describe one core step a round; with as many as head steps it does the same"
        f" work as the others. {rounds} rounds at {found[0][0].part.clusters}, before and after the final exchange; the"
        " one that is fairer, each at its better, is the DePRL of the tables above.\n\n"
        + _table(["", "exchange", *_HEADINGS], lines)
    )


def _artefact(runs: list[Run], kept: Kept) -> str:
    """The artefact's runs beside the paper's at the same rounds, before any final exchange."""
    lines = []
    for theirs in (run for run in runs if run.stage == "artefact"):
        algorithm = theirs.label.partition(",")[0]
        paper = next(
            run for run in _of(runs, "full", theirs.part) if run.label in (algorithm, f"{algorithm}, as published")
        )
        one, other = kept.get(theirs), kept.get(paper)
        if one is None or other is None:
            continue
        at = {evaluation.round: evaluation for evaluation in other.evaluations}
        for evaluation in one.evaluations:
            if evaluation.round not in at:
                continue
            for label, run, then in (("artefact", one, evaluation), ("paper", other, at[evaluation.round])):
                lines.append(
                    [str(evaluation.round), algorithm, label, *_cells(tested(then, run.cluster)), _settled(run)]
                )
    if not lines:
        return ""
    return (
        "## The artefact's way\n\nThe published artefact computes something else than the paper describes (`--preset"
        " artefact`: every node its own random start, a random division of the data, heads scored on batches of their"
        " own, one's own head always averaged in, and the head to be tested chosen by its loss on the test data). EL"
        " also gives up a tenth of its training images for validation (`data.validation = 0.1`). 30:2, before any final"
        " exchange.\n\n" + _table(["round", "", "as in the", *_HEADINGS, "settled"], lines)
    )


def _deviations(runs: list[Run]) -> str:
    steps = {run.experiment.algorithm["core_steps"] for run in runs if run.stage == "full" and run.label == "DePRL"}
    work = f" with core_steps = {steps.pop()}, the fairer of the two above," if steps else ""
    seeded = next(run for run in runs if run.stage == "full" and run.label == "FACADE, seeded")
    rounds, (first, last) = seeded.experiment.training.rounds, _seeding_rounds(seeded.experiment)
    return f"""## Where this differs

From the paper:

* One seed per line; the paper shows deviations of 0.1 to 1.4 points between seeds.
* A node chooses its head by 80 samples of its own, drawn for that; the paper takes the current batch.
* DAC is compared as its last round leaves it: a final exchange, which the paper describes for every
  baseline, makes one model of all of DAC's (both are in the table).
* DP and EO are means over classes, EO with false positives, because the printed numbers are: EL's gap of 33.22 points
  gives 0.3322 x 10/9 = 0.3691, the paper prints 0.3693. Its equations are sums (`dp_sum`, `eo_sum` in result.json).
* The model has 89,834 weights. The paper says 120k, which is the same with 41 outputs instead of 10.
* DePRL runs{work} on a fixed graph, as in the paper. Training alone, which the paper does not show, has EL's rate.
* `FACADE, seeded` is our own: heads that start apart ([seeding](seeding.md)). It spends rounds {first} to {last} on
  that and trains in {rounds - (last - first + 1):,} of the {rounds:,} rounds.

From the published artefact:

* Every algorithm has the same seed, division of the data, test set and evaluation rounds. The artefact gives its
  algorithms different seeds and two of the four a validation cut.
* A node deploys the head it chose by its own training data. The artefact tests the head with the lowest loss on the
  test data.
* Divisions are stratified, as in the paper; the artefact shuffles.
* Heads are compared on the same 80 samples; the artefact draws 80 others for every head.
* DAC scores every model it hears and weighs also nodes that it never met, through those that it met (`two_hop`), as
  its authors describe it. The artefact's DAC meets 6 to 10 of the 31 others.
* The artefact's DePRL has a fresh graph every round and some twenty times the samples of the others."""


def _seeding_rounds(experiment: Experiment) -> tuple[int, int]:
    """The first and the last round, counted from 1, that a seeded run spends on finding heads."""
    spread = Regular(experiment.topology.degree).spread(experiment.n, experiment.seed, fresh=True)
    warmup = experiment.algorithm["warmup"]
    return warmup + 1, Calendar(warmup, experiment.algorithm["heads"]).ready(spread)


def _long_runs(runs: list[Run], kept: Kept) -> str:
    lines = []
    machines = set()
    for run in runs:
        found = kept.get(run)
        if found is None or run.stage == "settling":
            continue
        directory = RunDirectory(found.path)
        environment = directory.read("environment.json")
        machines.add(f"{environment['cpu']}, {environment['cores']} cores, PyTorch {environment['torch']}")
        rounds = run.experiment.training.rounds
        lr, minutes = run.experiment.training.lr, _minutes(directory)
        lines.append([run.part.clusters, run.label, str(rounds), f"{lr:g}", f"{minutes:.0f}", f"`{found.path.name}`"])
    if not lines:
        return ""
    return f"## The long runs\n\nOn {'; '.join(sorted(machines))}, with whatever else it did meanwhile.\n\n" + _table(
        ["", "", "rounds", "rate", "minutes", "directory"], lines
    )


def _minutes(directory: RunDirectory) -> float:
    laps = (directory.path / "timings.jsonl").read_text().splitlines()
    return sum(float(json.loads(lap)["seconds"]) for lap in laps) / 60


def _commands() -> str:
    return """## Do it again

    facade paper reproduction --draw             # this page and its pictures, from results/
    facade data get cifar10 --root data          # or bring the files; docs/data.md
    facade paper reproduction --data data        # everything from raw data: some 16 hours on two idle cores

The last command computes what is missing in `results/` and goes on where it was stopped; move `results/` away to
compute everything again.
`facade show results/*-seed1` and `facade report results/DIRECTORY` look at single runs. A run on its own:
`facade run results/DIRECTORY/experiment.toml --set data.root=data --out runs/again`."""


# Small things


def _parts(runs: Sequence[Run], stage: str) -> list[Part]:
    return list(dict.fromkeys(run.part for run in runs if run.stage == stage))


def _of(runs: Sequence[Run], stage: str, part: Part) -> list[Run]:
    return [run for run in runs if run.stage == stage and run.part == part]


def _cells(found: dict[str, float]) -> list[str]:
    return [_number(found.get(name), scale, digits) for name, (_, _, scale, digits) in _COLUMNS.items()]


def _number(value: float | None, scale: float, digits: int) -> str:
    return "" if value is None else f"{round(scale * value, digits) + 0.0:.{digits}f}"  # no minus zero


def _table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rules = ["---"] * len(headings)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rules, *lines))
