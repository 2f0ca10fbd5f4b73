"""`facade export` and `facade recommend`: the model a site takes home, and which one that should be."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facade.cli.console import Json, out, prose, write_json

if TYPE_CHECKING:
    from rich.console import Console

    from facade.export.package import WrittenPackage
    from facade.export.recommend import OfferedModel, Recommendation

Run = Annotated[Path, typer.Argument(help="The directory of a finished run.")]
_MOST_LINES = 12


def export(
    run: Run,
    out_dir: Annotated[Path, typer.Option("-o", "--out", help="Directory for the model; new or empty.")],
    node: Annotated[int | None, typer.Option(help="Export what this node deploys.")] = None,
    head: Annotated[int | None, typer.Option(help="Export what the nodes that chose this head deploy.")] = None,
    site: Annotated[str | None, typer.Option(help="Export what the site with this name deploys.")] = None,
) -> None:
    """Write a model that runs without this library, with a model card."""
    from facade.errors import ExperimentError, unknown
    from facade.export.package import export as write
    from facade.runs.history import load

    if site is not None:
        if node is not None or head is not None:
            raise ExperimentError("--site, --node and --head exclude each other; give one of them")
        names = load(run).sites
        if site not in names:
            raise unknown("site", site, names)
        node = names.index(site)
    print_exported(write(run, out_dir, node, head))


def print_exported(exported: WrittenPackage) -> None:
    """What was written, and what could not be."""
    for path in exported.files:
        out.print(str(path), soft_wrap=True)
    for name, reason in exported.left_out.items():
        out.print(f"no {name}: {reason}", soft_wrap=True)


def recommend(
    run: Run,
    data: Annotated[str, typer.Option(help="The new site's labelled data: a source, such as npz or folder.")],
    root: Annotated[str, typer.Option(help="data.root of that source.")] = "data",
    path: Annotated[str, typer.Option(help="data.path of that source.")] = "",
    as_json: Json = False,
) -> None:
    """Tell a new site which head of a run fits its own labelled data."""
    from facade.data.section import DataSection
    from facade.export.model_card import OWN_SHARES
    from facade.export.recommend import lead
    from facade.export.recommend import recommend as recommend_from

    recommendation = recommend_from(run, DataSection(source=data, clusters="1", skew="none", root=root, path=path))
    console = prose(as_json)
    fits = recommendation.models
    _print_models(console, recommendation)
    export_command = f"facade export {quote(str(run))} --node {fits[0].nodes[0]} -o DIR"
    console.print(f"{_verdict(fits)} Take it home: {export_command}", soft_wrap=True)
    _print_local_parts(console, recommendation)
    if recommendation.log_shares is not None:
        console.print(f"Losses and accuracies are with the site's own label shares added. {OWN_SHARES}", soft_wrap=True)
    if as_json:
        facts = {"fits": [_facts(fit) for fit in fits], "unused": recommendation.unused, "lead": None}
        facts |= {"estimated": recommendation.estimated, "untrained": recommendation.untrained}
        if len(fits) > 1:
            ahead = lead(fits[0], fits[1])
            facts["lead"] = ahead._asdict() | {"clear": ahead.clear}
        if recommendation.log_shares is not None:
            facts["log_shares"] = recommendation.log_shares.tolist()
        write_json(facts)


def _print_models(console: Console, recommendation: Recommendation) -> None:
    """The best models, one a line, and the heads that are not offered."""
    fits = recommendation.models
    for fit in fits[:_MOST_LINES]:
        who = f"{len(fit.nodes)} node{'s' if len(fit.nodes) > 1 else ''}"
        console.print(f"{fit.name:>10}  loss {fit.loss:.4f}  accuracy {fit.accuracy:.1%}  ({who})")
    if len(fits) > _MOST_LINES:
        console.print(f"  and {len(fits) - _MOST_LINES} models with higher losses")
    for head in recommendation.unused:
        console.print(f"{f'head {head}':>10}  deployed by nobody, not trained to the end")


def _print_local_parts(console: Console, recommendation: Recommendation) -> None:
    """What of a model the new site has to make its own."""
    if recommendation.estimated:
        console.print(
            "Running statistics stay at their nodes (model.local), so they were estimated anew from these data before a"
            " model was judged. Do the same with the one you take home; the README.md beside it says how.",
            soft_wrap=True,
        )
    if recommendation.untrained:
        console.print(
            f"{recommendation.untrained[0]} and all else that model.local names was judged as the node has it that"
            " deploys the model; train these parts on your own data before you use it.",
            soft_wrap=True,
        )


def _verdict(fits: list[OfferedModel]) -> str:
    """Which model fits best, and how sure that is."""
    from facade.export.recommend import ENOUGH, lead

    best = fits[0]
    if len(fits) == 1:
        return f"All nodes deploy the same model: {best.name}."
    ahead = lead(best, fits[1])
    by = f"by {ahead.by:.4f}" + ("" if ahead.reach is None else f" ± {ahead.reach:.4f}")
    if ahead.samples < ENOUGH:
        few = f"{ahead.samples} sample{'s are' if ahead.samples > 1 else ' is'} too few"
        sure = f"but {few} to tell from chance (give {ENOUGH} or more):"
    else:
        sure = "clearly" if ahead.clear else "but too little to tell from chance:"
    return f"{best.name.capitalize()} fits best, {sure} {by} over {fits[1].name}."


def _facts(fit: OfferedModel) -> dict[str, Any]:
    """A model on the site's data, for programs."""
    return {"name": fit.name, "head": fit.head, "nodes": fit.nodes, "loss": fit.loss, "accuracy": fit.accuracy}
