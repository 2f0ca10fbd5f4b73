"""`facade node studies`, `add-study` and `archive`: which federations a site takes part in, or has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from facade.cli.console import Json, out, prose, write_json
from facade.cli.node import Home, need_extra
from facade.cli.passphrase import PassphraseFile, asking

if TYPE_CHECKING:
    from facade.peers.after.study_facts import StudyFacts
    from facade.peers.trust.site import Site

_STYLES = {"running": "green", "paused": "yellow", "stopped": "yellow", "broken": "bold red", "archived": "dim"}


def studies(home: Home = Path("."), as_json: Json = False) -> None:
    """Every study of this site, those put away included: federation, round, state, accuracy, directory."""
    need_extra()
    from dataclasses import asdict

    from facade.peers.after.study_facts import all_studies

    found = all_studies(home)
    print_to = prose(as_json)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("study", "state", "federation", "epoch", "round", "accuracy"):
        table.add_column(
            heading, no_wrap=True, justify="right" if heading in ("epoch", "round", "accuracy") else "left"
        )
    table.add_column("directory", overflow="fold")
    for facts in found:
        table.add_row(*_cells(facts, home), style=_STYLES.get(facts.state))
    print_to.print(table)
    for facts in found:
        if facts.says:
            print_to.print(f"{facts.study}: {facts.says}", soft_wrap=True)
    if as_json:
        write_json([asdict(facts) for facts in found])


def _cells(facts: StudyFacts, home: Path) -> list[str]:
    """A line of the table; what is not known is left empty. Its directory is told from the home on."""
    epoch = "" if facts.epoch is None else str(facts.epoch)
    where = "" if facts.rounds is None else f"{min(facts.round or 0, facts.rounds)} of {facts.rounds}"
    accuracy = "" if facts.accuracy is None else f"{facts.accuracy:.1%}"
    return [
        facts.study,
        facts.state,
        facts.federation or "",
        epoch,
        where,
        accuracy,
        str(Path(facts.directory).relative_to(home)),
    ]


def add_study(
    name: Annotated[str, typer.Argument(help="What to call it here; its settings stand in node.toml as [study.NAME].")],
    membership: Annotated[Path, typer.Argument(help="Its signed list.")],
    home: Home = Path("."),
    passphrase_file: PassphraseFile = None,
) -> None:
    """Take part in a further federation: look at its list, and put it in place."""
    need_extra()
    from facade.peers.trust.new_study import add_study

    site, listed = add_study(home, name, membership, asking(passphrase_file))
    out.print(
        f"Written: {site.study.list_path}, the list of '{listed.federation}', epoch {listed.epoch}, {listed.n} members."
        f" {_data_of(site, name)} Start it with: facade node up; if the node runs, stop it and start it again.",
        soft_wrap=True,
    )


def _data_of(site: Site, name: str) -> str:
    """Which data a study is played with: the wrong ones would do harm."""
    from facade.peers.trust.site import Settings

    own = Settings.load(site.home).study.get(name)
    if own is not None and "data" in own.model_fields_set:
        return f"It is played with its own data, of [study.{name}.data] in node.toml."
    if site.settings.data:
        return f"It is played with this site's [data]; for others, add [study.{name}.data] to node.toml."
    return "The experiment brings its own data; node.toml names none for it."


def archive(
    study: Annotated[str, typer.Option(help="The study to put away.")],
    home: Home = Path("."),
    give_up: Annotated[bool, typer.Option("--give-up", help="Also one that is not finished.")] = False,
) -> None:
    """Put a finished study away: its list and its run are moved below the archive, and stay listed."""
    need_extra()
    from facade.peers.after.archive import archive

    out.print(f"Moved to {archive(home, study, give_up)}", soft_wrap=True)
