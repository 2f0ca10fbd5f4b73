"""The picture of the theory: distances to the optimum, the bound above them, and a control."""

from __future__ import annotations

import functools

import altair as alt

from facade.analysis.statistics import Estimate
from facade.paper.settings import Scale
from facade.paper.study import PublishedComparison, StudyRuns
from facade.paper.theory import DEGREES, L2, Descent, Problem, descend
from facade.report import charts
from facade.report.panels import Panel

ROUNDS, QUICK_ROUNDS, SEED = 400, 120, 1
_CLUSTERS = ("majority", "minority")


def rounds_of(scale: Scale) -> int:
    """Rounds of every descent."""
    return scale.rounds or (QUICK_ROUNDS if scale.quick else ROUNDS)


def seed_of(scale: Scale) -> int:
    """The one seed of all descents: the first that is asked for."""
    return scale.seeds[0] if scale.seeds else SEED


def reduced(scale: Scale) -> str:
    """What differs from the usual figure."""
    rounds, seed = rounds_of(scale), seed_of(scale)
    changed = [f"{rounds} of {ROUNDS} rounds"] if rounds != ROUNDS else []
    changed += [f"seed {seed} alone"] if seed != SEED or len(scale.seeds) > 1 else []
    return f"{'QUICK' if scale.quick else 'CHANGED'}: {', '.join(changed)}" if changed else ""


@functools.cache
def descents(rounds: int, seed: int) -> tuple[Problem, list[Descent]]:
    """A descent per degree, and last the control, which starts outside the assumption."""
    inside = [descend(degree, rounds, seed) for degree in DEGREES]
    control = descend(4, rounds, seed, inside=False)
    return inside[0][0], [descent for _, descent in (*inside, control)]


def _descents_of(runs: StudyRuns) -> tuple[Problem, list[Descent]]:
    return descents(rounds_of(runs.scale), seed_of(runs.scale))


def name_of(descent: Descent) -> str:
    """A descent in a figure."""
    degree = "complete" if descent.degree is None else f"degree {descent.degree}"
    return degree if descent.inside else f"{degree}, far start"


def panels(runs: StudyRuns) -> list[Panel]:
    """Per descent: the distance of each cluster, the bound, and its contraction alone."""
    drawn = []
    for descent in _descents_of(runs)[1]:
        lines = {name: descent.distances[:, c] for c, name in enumerate(_CLUSTERS)}
        lines |= {"bound": descent.bound, "bound without floor": descent.contraction}
        rows = [
            {"who": who, "round": t, "distance": float(f"{value:.4g}")}
            for who, values in lines.items()
            for t, value in enumerate(values)
        ]
        names = list(lines)
        chart = alt.Chart().mark_line().encode(
            alt.X("round:Q", scale=alt.Scale(nice=False)),
            alt.Y("distance:Q", title="largest distance to the optimum", scale=alt.Scale(type="log")),
            charts.colour(names),
            alt.StrokeDash("who:N", title=None, scale=alt.Scale(domain=names, range=[[1, 0], [1, 0], [6, 3], [2, 3]])),
        )  # fmt: skip
        drawn.append(Panel(chart, rows, name_of(descent)))
    return drawn


def numbers(runs: StudyRuns) -> list[PublishedComparison]:
    """The measured contraction per round beside the bound's."""
    facts, every_descent = _descents_of(runs)
    return [
        PublishedComparison(
            f"{name_of(descent)}, {name}: contraction per round (published: the bound)",
            Estimate([float(rate)]),
            facts.factor,
            1,
            5,
        )
        for descent in every_descent
        if descent.inside
        for name, rate in zip(_CLUSTERS, descent.rates, strict=True)
    ]


def sentences(runs: StudyRuns) -> list[str]:
    """The constants, whether the bound held, whether degrees help, and what the control did."""
    facts, every_descent = _descents_of(runs)
    inside, control = [d for d in every_descent if d.inside], every_descent[-1]
    lines = [
        f"L = {facts.smoothness:.3f}, lambda = {L2:g}, Delta = {facts.distance:.3f}, p = {facts.smallest:g};"
        f" heads start {facts.radius:.4f} from their optimum.",
        f"The bound held in every round for {sum(d.holds for d in inside)} of {len(inside)} graphs.",
    ]
    final = ", ".join(f"{name_of(d)} {d.distances[-1].max():.2g}" for d in inside)
    shrunk = control.distances[-1].max() / control.distances[0].max()
    return [
        *lines,
        f"Largest distance in the end: {final}.",
        f"Far start: {100 * shrunk:.0f} % of the distance is left;"
        f" in the end the clusters {'share a head' if control.shared else 'have heads of their own'}.",
    ]
