"""What a run leaves on the terminal: the results table, the strip of chosen heads, or one line of JSON."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from facade.cli.console import write_json
from facade.cli.display_measures import print_measured
from facade.cli.wide_tables import TextColumn, print_wide
from facade.core.names import short_ones
from facade.core.types import Row
from facade.data.clusters import cluster_names
from facade.runs.survey_facts import survey_in_words
from facade.runs.training_facts import never_learned_in_words

if TYPE_CHECKING:
    from facade.runs.result import Result

_FEW, _LAST_CHANGES = 9, 3
HEAD_STYLES = ("bold cyan", "bold yellow", "bold magenta", "bold green", "bold blue", "bold red")


def print_results(console: Console, results: Mapping[str, Result]) -> None:
    """The table of runs, and of those with heads who chose which."""
    first = next(iter(results.values()))
    sizes = first.experiment.data.sizes or [first.n]
    console.print()
    print_summaries(console, {name: result.summary for name, result in results.items()}, sizes)
    print_measured(console, results, sizes)
    cluster = [c for c, size in enumerate(sizes) for _ in range(size)]
    for name, result in results.items():
        if words := prediction(result.summary, sizes):
            console.print(f"{name}: {words}")
        if facts := result.summary.get("never_learned"):
            console.print(f"{name}: {never_learned_in_words(facts)}", style="yellow")
        bad = result.experiment.attack.nodes
        sentence = settlement(result.summary, [-1 if node in bad else c for node, c in enumerate(cluster)], sizes)
        if sentence:
            console.print(f"{name}: the head each node chose, clusters side by side. {sentence}")
            console.print(head_strip(result.rows, sizes, console.width, bad), end="")
            if survey := result.summary.get("survey"):
                console.print(survey_in_words(survey))
            if warning := health(result.summary):
                console.print(warning)
        for words in protection(result):
            console.print(f"{name}: {words}")


def protection(result: Result) -> list[str]:
    """In words, who attacks, and what the guard did; nothing where there is neither."""
    from facade.runs.guard_facts import backdoor_in_words, guard_in_words
    from facade.runs.honest_nodes import attack_in_words

    experiment, summary = result.experiment, result.summary
    attack = attack_in_words(experiment.model_dump(), result.n)
    names = cluster_names([experiment.data.sizes], len(summary.get("clusters", [])))
    sentences = [] if attack is None else [f"{attack}."]
    sentences += [guard_in_words(summary["guard"], names)] if "guard" in summary else []
    return sentences + ([backdoor_in_words(summary["backdoor"], names)] if "backdoor" in summary else [])


def write_summaries(results: Mapping[str, Result], base: Path) -> None:
    """All summaries as one line of JSON on standard output."""
    write_json({"run_dir": str(base), "algorithms": {name: result.summary for name, result in results.items()}})


def print_summaries(console: Console, summaries: Mapping[str, Row], sizes: Sequence[int]) -> None:
    """One line per algorithm, accuracies in percent, final models; the fairest stands out."""
    lines = list(summaries.values())
    best = max((s["fair_accuracy"] for s in lines if s.get("fair_accuracy") is not None), default=None)
    clusters = [f"{name}\n{_nodes(size)}" for name, size in zip(cluster_names([sizes], len(sizes)), sizes, strict=True)]
    clusters = clusters if "clusters" in lines[0] else []  # nobody knows them
    shares = {"\nall": "all", "worst\nnode": "worst_node", "fair\nacc.": "fair_accuracy"}
    columns = [TextColumn(heading, [_percent(s["clusters"][c]) for s in lines]) for c, heading in enumerate(clusters)]
    columns += [TextColumn(heading, [_percent(s.get(name)) for s in lines]) for heading, name in shares.items()]
    columns += [TextColumn(f"\n{name.upper()}", [_number(s.get(name)) for s in lines]) for name in ("dp", "eo")]
    columns.append(TextColumn("MB per\nnode", [f"{s['bytes_per_node'] / 1e6:.1f}" for s in lines]))
    columns.append(TextColumn("\nsettled", [_settled(s) for s in lines]))
    columns.append(TextColumn("\nsec.", [f"{s['seconds']:.1f}" for s in lines]))
    leads = [best is not None and len(lines) > 1 and s.get("fair_accuracy") == best for s in lines]
    console.print("Accuracy of the final models, in percent", style="bold")
    names = TextColumn("algorithm", list(short_ones(summaries).values()))
    print_wide(console, [names], columns, gap=1, styles=["bold" if lead else None for lead in leads])


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _settled(summary: Row) -> str:
    if summary.get("settled") is None:
        return "-"
    return "yes" if summary["settled"] else "apart" if summary["separated"] else "no"


def prediction(summary: Row, sizes: Sequence[int]) -> str | None:
    """In words, which prior counts, and the accuracies under the other one; None with the plain loss."""
    from facade.analysis.table import PRIORS
    from facade.core.plan import OTHER_PRIOR

    if "prior" not in summary:
        return None
    prior, other = summary["prior"], OTHER_PRIOR[summary["prior"]]
    names = cluster_names([sizes], len(sizes)) if f"{other}_clusters" in summary else []
    shares = dict(zip(names, summary.get(f"{other}_clusters", []), strict=True)) | {"all": summary[f"{other}_all"]}
    listed = ", ".join(f"{name} {_percent(share)}" for name, share in shares.items())
    return f"predicted {PRIORS[prior]} (prior = {prior}); {PRIORS[other]}: {listed}."


def settlement(summary: Row, cluster: Sequence[int], sizes: Sequence[int]) -> str | None:
    """In words, what the choice of heads came to; None for algorithms without heads. `cluster` is -1 for attackers,
    whose choice does not count."""
    if summary["choice"] is None:
        return None
    if summary["settled"] is None:
        return f"{_served(summary, cluster)}; which nodes are of one kind, the experiment does not say."
    if summary["settled"]:
        return "Settled: every cluster found a head of its own."
    names = cluster_names([sizes], len(sizes))
    users: dict[int, list[str]] = {}
    for c, name in enumerate(names):
        for head in sorted({h for h, of in zip(summary["choice"], cluster, strict=True) if of == c}):
            users.setdefault(head, []).append(name)
    shared = [f"head {head} is shared by {' and '.join(who)}" for head, who in sorted(users.items()) if len(who) > 1]
    if shared:
        return f"Not settled: {'; '.join(shared)}. Clusters that share a head get no model of their own."
    return "Apart, but not settled: no head is shared, yet a cluster uses several heads."


def _served(summary: Row, cluster: Sequence[int]) -> str:
    """How many honest nodes every head serves, and how well."""
    honest = [choice for choice, of in zip(summary["choice"], cluster, strict=True) if of >= 0]
    counts = {head: sum(choice == int(head) for choice in honest) for head in summary["heads"]}
    return ", ".join(
        f"head {head} serves {_nodes(counts[head])} at {share:.1%}" for head, share in summary["heads"].items()
    ).capitalize()


def health(summary: Row) -> str | None:
    """In words, heads that are dead or superfluous; None if there are none such. It needs no knowledge of
    clusters."""
    sentences = [f"Head {j} is dead since round {since}." for j, since in summary.get("dead_heads", {}).items()]
    sentences += [f"Heads {a} and {b} score alike." for a, b in summary.get("alike_heads", [])]
    return " ".join(sentences) or None


def head_strip(rows: Sequence[Row], sizes: Sequence[int], width: int, bad: Sequence[int] = ()) -> Text:
    """The head each node chose (its number; x: an attacker), clusters side by side, at a few rounds of the run."""
    choices: dict[int, list[int]] = {}
    for row in rows:
        if row["kind"] == "round" and "choice" in row:
            choices.setdefault(row["round"], []).append(row["choice"])
    strip = Text()
    shown = min(sum(sizes), width - 14 - 2 * (len(sizes) - 1))
    for round in few_rounds(choices):
        strip.append(f"  round {round:>4}", style="dim")
        left = shown
        for start, size in zip(_starts(sizes), sizes, strict=True):
            strip.append("  ")
            for node in range(start, start + min(size, left)):
                head = choices[round][node]
                if node in bad:
                    strip.append("x", style="dim")
                else:
                    strip.append(str(head), style=HEAD_STYLES[head % len(HEAD_STYLES)])
            left -= min(size, left)
        strip.append("\n")
    return strip


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]


def few_rounds(choices: Mapping[int, Sequence[int]]) -> list[int]:
    """Of the rounds in which nodes chose these heads, at most nine: the first, the last, those before and after the
    last changes, and others in the widest gaps between them."""
    rounds = sorted(choices)
    if len(rounds) <= _FEW:
        return rounds
    changes = [i for i in range(1, len(rounds)) if choices[rounds[i - 1]] != choices[rounds[i]]]
    kept = {0, len(rounds) - 1}
    for i in changes[-_LAST_CHANGES:]:
        kept |= {i - 1, i}
    while len(kept) < _FEW:
        before, after = max(itertools.pairwise(sorted(kept)), key=lambda gap: gap[1] - gap[0])
        kept.add((before + after) // 2)
    return [rounds[i] for i in sorted(kept)]
