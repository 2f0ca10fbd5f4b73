"""The page of the reproduction: ours beside the published numbers, drawn from kept runs alone."""

from __future__ import annotations

from pathlib import Path

from facade.analysis.statistics import numbers, settles, tested
from facade.files import store
from facade.paper import reproduction_figures
from facade.paper import reproduction_questions as questions
from facade.paper.published import FINAL
from facade.paper.reproduction import KeptRuns, Run, claims, plan
from facade.paper.reproduction_tables import (
    cells,
    headings,
    image,
    number,
    parts,
    runs_of,
    settled,
    table,
    with_published,
)
from facade.paper.settings import Part, Scale
from facade.paper.study import as_compared
from facade.runs.environment import environments
from facade.runs.run_directory import RunDirectory

NOTES = "notes.md"
"""In the directory of kept runs: what people learned from them, put on the page as it is."""


def write(page: Path, results: Path, scale: Scale) -> list[Path]:
    """Write the page, its pictures into a directory beside it of the same name, and say which files."""
    kept = KeptRuns(results)
    runs = plan(scale, kept)
    pictures = reproduction_figures.write(runs, kept, scale, page.with_suffix(""))
    notes = results / NOTES
    sections = [
        _opening(runs, kept, scale),
        _shown(runs, kept),
        *(_results(part, runs, kept) for part in parts(runs, "full")),
        _curves(pictures, page),
        questions.price(runs, kept, scale),
        questions.who_settles(runs, kept, pictures, page),
        questions.how_many_heads(runs, kept),
        questions.which_deprl(runs, kept),
        questions.artefacts_way(runs, kept),
        notes.read_text().strip() if notes.exists() else "",
        _deviations(runs),
        _long_runs(runs, kept),
        _commands(),
    ]
    store.replace(page, ("\n\n".join(section for section in sections if section) + "\n").encode())
    return [page, *pictures.values()]


def _opening(runs: list[Run], kept: KeptRuns, scale: Scale) -> str:
    missing = [f"{run.part.clusters} {run.label}" for run in runs if kept.get(run) is None]
    lines = ["# The paper's main experiment, reproduced"]
    if scale.quick:
        lines.append("**QUICK: digits and an mlp instead of CIFAR-10; nothing here is comparable with the paper.**")
    lines.append(
        "FACADE and the baselines as in the paper's Figure 3 and Table II: CIFAR-10 divided among 32 nodes, some of"
        " which see everything upside down (30:2 are 30 upright nodes and 2 others; 20:10:2, used to ask who settles"
        " and how many heads it takes, has a cluster turned by 90 degrees as well), GN-LeNet, 1,200 rounds of 10 steps"
        " on batches of 8, four peers a round, the paper's learning rates, FACADE with a warm-up of 10 rounds, tests on"
        " all 10,000 images every 80 rounds. All algorithms have the same seed, division of the data, test set and"
        " evaluation rounds. The paper's other experiments are not on this page; `facade paper` computes them."
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


def _shown(runs: list[Run], kept: KeptRuns) -> str:
    words = {"fails": "**FAILS**", "open": "not known yet", "holds": "holds"}
    lines = [
        [claim.text, f"≥ {claim.least:g}", number(claim.ours, 1, 1), f"{claim.published:.1f}", words[claim.state]]
        for claim in claims(runs, kept)
    ]
    text = (
        "In percentage points. What was wanted was fixed before the first run, well below what was published; baselines"
        " are EL, DePRL, DAC and training alone, and each counts with the better of what it had before and after its"
        " final exchange. What fails comes first."
    )
    asked = [run for run in runs if run.stage == "full" and run.part.clusters in ("30:2", "16:16")]
    histories = {f"{run.part.clusters} {run.label}": kept.get(run) for run in asked}
    never = [
        name
        for name, history in histories.items()
        if history is not None and history.choice is not None and not settles(history)
    ]
    if never:
        text += f" **Not judged, because they never settled:** {'; '.join(never)}."
    return f"## What it had to show\n\n{text}\n\n" + table(["", "wanted", "ours", "published", ""], lines)


def _results(part: Part, runs: list[Run], kept: KeptRuns) -> str:
    """Final numbers of one division into clusters, and those before the final exchange."""
    lines, before = [], []
    for run in runs_of(runs, "full", part):
        history = kept.get(run)
        if history is None:
            continue
        printed = FINAL.get((part.setting.source, part.clusters, history.algorithm))
        lines.append([run.label, *with_published(numbers(as_compared(history)), printed), settled(history)])
        if history.algorithm == "dac":
            lines.append([f"{run.label}, after an exchange", *cells(numbers(history)), ""])
        elif run.experiment.algorithm.get("all_reduce"):
            before.append([run.label, *cells(tested(history.evaluations[-1], history.cluster))])
    if not lines:
        return ""
    return "\n\n".join(
        [
            f"## {part.clusters}",
            "Final numbers (published), accuracies in percent; DP and EO: 0 is fair; the last column is the round from"
            " which on every cluster had a head of its own.",
            table(["", *headings(part), "settled"], lines),
            "After the last round, before the final exchange, in which everybody hears everybody once:",
            table(["", *headings(part)], before),
        ]
    )


def _curves(pictures: dict[str, Path], page: Path) -> str:
    if "accuracy" not in pictures:
        return ""
    return "## Over rounds\n\nLarge marks: after the final exchange.\n\n" + image(
        "Accuracy over rounds", pictures["accuracy"], page
    )


def _deviations(runs: list[Run]) -> str:
    steps = {run.experiment.algorithm["core_steps"] for run in runs if run.stage == "full" and run.label == "DePRL"}
    work = f" with core_steps = {steps.pop()}, the fairer of the two above," if steps else ""
    seeded = next(run for run in runs if run.stage == "full" and run.label == "FACADE, seeded")
    rounds, (first, last) = seeded.experiment.training.rounds, questions.seeding_rounds(seeded.experiment)
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


def _long_runs(runs: list[Run], kept: KeptRuns) -> str:
    lines = []
    machines = set()
    for run in runs:
        history = kept.get(run)
        if history is None or run.stage == "settling":
            continue
        directory = RunDirectory(history.path)
        for machine in environments(directory.read("environment.json")):
            machines.add(f"{machine['cpu']}, {machine['cores']} cores, PyTorch {machine['torch']}")
        rounds = run.experiment.training.rounds
        lr, minutes = run.experiment.training.lr, directory.read("result.json")["seconds"] / 60
        lines.append([run.part.clusters, run.label, str(rounds), f"{lr:g}", f"{minutes:.0f}", f"`{history.path.name}`"])
    if not lines:
        return ""
    return f"## The long runs\n\nOn {'; '.join(sorted(machines))}, with whatever else it did meanwhile.\n\n" + table(
        ["", "", "rounds", "rate", "minutes", "directory"], lines
    )


def _commands() -> str:
    return """## Do it again

    facade paper reproduction --draw             # this page and its pictures, from results/
    facade data get cifar10 --root data          # or bring the files; docs/data.md
    facade paper reproduction --data data        # everything from raw data: some 20 hours on two idle cores

The last command computes what is missing in `results/` and goes on where it was stopped; move `results/` away to
compute everything again.
`facade show results/*-seed1` and `facade report results/DIRECTORY` look at single runs. A run on its own:
`facade run results/DIRECTORY/experiment.toml --set data.root=data --out runs/again`."""
