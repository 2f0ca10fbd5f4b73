"""What a run leaves on the terminal: the results table, the strip of chosen heads, or one line of JSON."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from facade.cli.console import write_json
from facade.cli.display_each_site import print_each_site
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
OURS = "cyan"
"""How FACADE's line of a table looks."""
HEAD_STYLES = ("bold cyan", "bold yellow", "bold magenta", "bold green", "bold blue", "bold red")


def print_results(
    console: Console, results: Mapping[str, Result], leading: Mapping[str, Set[str]] = MappingProxyType({})
) -> None:
    """The table of runs, and of those with heads who chose which; `leading`: by number, the runs that stand out."""
    first = next(iter(results.values()))
    sizes = sizes_of(first)
    console.print()
    summaries = {name: result.summary for name, result in results.items()}
    if "clusters" in first.summary:
        print_summaries(console, summaries, sizes, leading)
    else:
        print_site_summaries(console, summaries)
    print_measured(console, results, sizes)
    cluster = [0] * first.n if first.cluster is None else first.cluster.tolist()
    for name, result in results.items():
        if words := prediction(result.summary, sizes):
            console.print(f"{name}: {words}")
        if facts := result.summary.get("never_learned"):
            console.print(f"{name}: {never_learned_in_words(facts)}", style="yellow")
        bad = result.experiment.attack.nodes
        sentence = settlement(result.summary, [-1 if node in bad else c for node, c in enumerate(cluster)], sizes)
        if sentence and "sites" in result.summary:
            console.print(f"{name}: the head each site chose, in the order of the sites. {sentence}")
        elif sentence:
            console.print(f"{name}: the head each node chose, clusters side by side. {sentence}")
        if sentence:
            console.print(head_strip(result.choices(), cluster, console.width, bad), end="")
            if survey := result.summary.get("survey"):
                console.print(survey_in_words(survey))
            if warning := health(result.summary):
                console.print(warning)
        for words in protection(result):
            console.print(f"{name}: {words}")


def sizes_of(result: Result) -> list[int]:
    """Nodes per cluster, attackers included; all of them where clusters are not known."""
    cluster = [0] * result.n if result.cluster is None else result.cluster.tolist()
    return [cluster.count(c) for c in sorted(set(cluster))]


def protection(result: Result) -> list[str]:
    """In words, who attacks, and what the guard did; nothing where there is neither."""
    from facade.runs.guard_facts import backdoor_in_words, guard_in_words
    from facade.runs.honest_nodes import attack_in_words

    experiment, summary = result.experiment, result.summary
    attack = attack_in_words(experiment.model_dump(), result.n)
    names = cluster_names([sizes_of(result)], len(summary.get("clusters", [])))
    sentences = [] if attack is None else [f"{attack}."]
    sentences += [guard_in_words(summary["guard"], names)] if "guard" in summary else []
    return sentences + ([backdoor_in_words(summary["backdoor"], names)] if "backdoor" in summary else [])


def write_summaries(results: Mapping[str, Result], base: Path) -> None:
    """All summaries as one line of JSON on standard output."""
    write_json({"run_dir": str(base), "algorithms": {name: result.summary for name, result in results.items()}})


def print_summaries(
    console: Console,
    summaries: Mapping[str, Row],
    sizes: Sequence[int],
    leading: Mapping[str, Set[str]] = MappingProxyType({}),
) -> None:
    """One line per algorithm, accuracies in percent, final models; of the numbers in `leading`, those of the algorithms
    that lead stand out."""
    lines = list(summaries.values())

    def bold(number: str) -> frozenset[int]:
        return frozenset(i for i, name in enumerate(summaries) if name in leading.get(number, ()))

    clusters = [f"{name}\n{_nodes(size)}" for name, size in zip(cluster_names([sizes], len(sizes)), sizes, strict=True)]
    shares = {"\nall": "all", "worst\nnode": "worst_node", "fair\nacc.": "fair_accuracy"}
    columns = [
        TextColumn(heading, [_percent(s["clusters"][c]) for s in lines], bold(f"cluster_{c}"))
        for c, heading in enumerate(clusters)
    ]
    columns += [TextColumn(heading, [_percent(s[name]) for s in lines], bold(name)) for heading, name in shares.items()]
    columns += [TextColumn(f"\n{name.upper()}", [_number(s[name]) for s in lines], bold(name)) for name in ("dp", "eo")]
    columns.append(TextColumn("MB per\nnode", [f"{s['bytes_per_node'] / 1e6:.1f}" for s in lines]))
    columns.append(TextColumn("\nsettled", [_settled(s) for s in lines]))
    columns.append(TextColumn("\nsec.", [f"{s['seconds']:.1f}" for s in lines]))
    console.print("Accuracy of the final models, in percent", style="bold")
    names = TextColumn("algorithm", list(short_ones(summaries).values()))
    print_wide(console, [names], columns, gap=1, styles=_ours(summaries))
    if any(leading.values()):
        console.print("Bold: the best, and what cannot be told from it (95 % intervals).", style="dim")


def _ours(summaries: Mapping[str, Row]) -> list[str | None]:
    """FACADE's line stands out among others."""
    return [OURS if name == "facade" and len(summaries) > 1 else None for name in summaries]


def print_site_summaries(console: Console, summaries: Mapping[str, Row]) -> None:
    """The same where clusters are not known: the worst site, the mean and the gap, then site by site."""
    from facade.analysis.measures import ACCURACY

    lines = list(summaries.values())
    worst = [min(s["sites"], key=s["sites"].__getitem__) for s in lines]
    gaps = [max(s["sites"].values()) - min(s["sites"].values()) for s in lines]
    columns = [
        TextColumn("worst\nsite", [_percent(s["worst_node"]) for s in lines]),
        TextColumn("\nwhich", worst),
        TextColumn("mean of\nsites", [_percent(s["all"]) for s in lines]),
        TextColumn("gap between\nsites", [_percent(gap) for gap in gaps]),
        TextColumn("MB per\nnode", [f"{s['bytes_per_node'] / 1e6:.1f}" for s in lines]),
        TextColumn("\nsec.", [f"{s['seconds']:.1f}" for s in lines]),
    ]
    console.print("Accuracy of the final models, in percent", style="bold")
    names = list(short_ones(summaries).values())
    print_wide(console, [TextColumn("algorithm", names)], columns, gap=1, styles=_ours(summaries))
    print_each_site(console, names, [s["sites"] for s in lines], ACCURACY)


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _sites(count: int) -> str:
    return f"{count} site{'' if count == 1 else 's'}"


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
    if "sites" in summary:
        return f"{_served(summary, cluster)}. {_shared(summary, cluster)}"
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
    counted = _sites if "sites" in summary else _nodes
    return ", ".join(
        f"head {head} serves {counted(counts[head])} at {share:.1%}" for head, share in summary["heads"].items()
    ).capitalize()


def _shared(summary: Row, cluster: Sequence[int]) -> str:
    """Which honest sites share which head."""
    from facade.analysis.sites import listed

    honest = [choice for choice, of in zip(summary["choice"], cluster, strict=True) if of >= 0]
    groups: dict[int, list[str]] = {}
    for site, head in zip(summary["sites"], honest, strict=True):
        groups.setdefault(head, []).append(site)
    if len(groups) == 1:
        return "All sites share it."
    return ". ".join(f"Head {head} is that of {listed(groups[head])}" for head in sorted(groups)) + "."


def health(summary: Row) -> str | None:
    """In words, heads that are dead or superfluous; None if there are none such. It needs no knowledge of
    clusters."""
    sentences = [f"Head {j} is dead since round {since}." for j, since in summary.get("dead_heads", {}).items()]
    sentences += [f"Heads {a} and {b} score alike." for a, b in summary.get("alike_heads", [])]
    return " ".join(sentences) or None


def head_strip(
    choices: Mapping[int, Sequence[int]], cluster: Sequence[int], width: int, bad: Sequence[int] = ()
) -> Text:
    """The head each node chose (its number; x: an attacker), clusters side by side, at a few of these rounds."""
    strip = Text()
    members = [[node for node, of in enumerate(cluster) if of == c] for c in sorted(set(cluster))]
    shown = min(len(cluster), width - 14 - 2 * (len(members) - 1))
    for round in few_rounds(choices):
        strip.append(f"  round {round:>4}", style="dim")
        left = shown
        for nodes in members:
            strip.append("  ")
            for node in nodes[: max(0, left)]:
                head = choices[round][node]
                if node in bad:
                    strip.append("x", style="dim")
                else:
                    strip.append(str(head), style=HEAD_STYLES[head % len(HEAD_STYLES)])
            left -= len(nodes)
        strip.append("\n")
    return strip


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
