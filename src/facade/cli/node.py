"""`facade node`: one site of a permissioned network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from facade.cli.console import Json, err, out, prose, write_json
from facade.cli.passphrase import PassphraseFile, asking, new_passphrase
from facade.errors import ExperimentError, need

app = typer.Typer(help="One site of a network of real peers.", no_args_is_help=True)

Home = Annotated[Path, typer.Option(help="The site's directory.")]
OneStudy = Annotated[str | None, typer.Option("--study", help="Which study; needed where there are several.")]
Studies = Annotated[list[str] | None, typer.Option("--study", help="Only this study. Repeatable.")]


def need_extra() -> None:
    """Refuse politely where the peer runtime's libraries are not installed."""
    need("peer", "the peer runtime", "grpc", "cryptography", "prometheus_client")


_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "bold red")}
"""How a finding of the doctor's is shown."""


@app.command()
def init(
    id: Annotated[str, typer.Option(help="A short name, such as h07; it decides the site's place in the list.")],
    address: Annotated[str, typer.Option(help="host:port where the other sites reach this one.")],
    admin: Annotated[list[str], typer.Option(help="Public key of an admin whose lists to follow. Repeatable.")],
    home: Home = Path("."),
    listen: Annotated[str, typer.Option(help="host:port to listen on, if it is another one.")] = "",
    metrics_listen: Annotated[
        str, typer.Option(help="host:port for Prometheus and health probes; keep it off public networks.")
    ] = "",
    days: Annotated[int, typer.Option(min=1, help="How long the certificate is good.")] = 365,
    required: Annotated[int, typer.Option(min=1, help="How many of the admins must have signed a list.")] = 1,
    encrypt_key: Annotated[bool, typer.Option("--encrypt-key", help="Encrypt both keys with a passphrase.")] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make this site's keys (they never leave it), node.toml, and the .join file for the admin."""
    need_extra()
    from facade.peers.trust.founding import NewSite, found_site

    passphrase = new_passphrase(encrypt_key, passphrase_file)
    said = {"listen": listen, "metrics_listen": metrics_listen, "required": required if required > 1 else None}
    extra: dict[str, Any] = {key: value for key, value in said.items() if value}
    join = found_site(home, NewSite(id, address, admin, extra, days, passphrase))
    out.print(
        f"Written: {join}. Send it to the federation's admin; it holds nothing secret.\n"
        f"Then say in {home / 'node.toml'} where this site's data are, and put membership.json beside it.",
        soft_wrap=True,
    )


@app.command()
def rotate(
    home: Home = Path("."),
    days: Annotated[int, typer.Option(min=1, help="How long the new certificate is good.")] = 365,
    finish: Annotated[bool, typer.Option("--finish", help="Use the new one from the next start on.")] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make a new TLS key and certificate, to be listed by `facade network update --rotate`."""
    need_extra()
    from facade.peers.trust.founding import finish_rotation, rotate_site
    from facade.peers.trust.site import Settings

    id = Settings.load(home).id  # keys and certificate need not fit while a change is under way
    if finish:
        finish_rotation(home, id)
        out.print("The new certificate is in place; if the node runs, stop it and start it again.")
    else:
        written = rotate_site(home, id, days, asking(passphrase_file))
        out.print(f"Written: {written}. Send it to the federation's admin.", soft_wrap=True)


@app.command()
def up(
    home: Home = Path("."),
    study: Studies = None,
    baseline: Annotated[bool, typer.Option("--baseline", help="Also train a model alone, to see the gain.")] = False,
    without_quorum: Annotated[
        bool, typer.Option("--without-quorum", help="Go on also where too few members answer.")
    ] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="After the end, answer on until SIGTERM; for what restarts all that ends.")
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Take part until the experiment is finished, in all studies that are not. SIGTERM: leave in good order; start
    again any time."""
    need_extra()
    from facade.cli.node_up import play_one, play_side_by_side
    from facade.peers.after.study_facts import to_play
    from facade.peers.node.shutdown import LeftError, end_process, leaving_on_signals
    from facade.peers.node.side_by_side import Asked

    studies = to_play(home, study or [], also_finished=stay)
    asked, ask = Asked(baseline, without_quorum, stay), asking(passphrase_file)
    if not studies:
        out.print(f"All studies of {home} are finished; they are listed by: facade node studies", soft_wrap=True)
        return
    try:
        with leaving_on_signals():
            if len(studies) == 1:
                play_one(home, studies[0], asked, ask)
            else:
                play_side_by_side(home, studies, asked, ask)
    except LeftError as left:
        err.print(str(left), soft_wrap=True)
        end_process(left)


@app.command()
def rollback(
    to_round: Annotated[int, typer.Option(min=0, help="The round that the newest list goes back to.")],
    home: Home = Path("."),
    study: OneStudy = None,
) -> None:
    """Take this site, which is stopped, back to the start of a round, as its membership.json says. `facade node up`
    does the same when it starts; this shows what it comes to."""
    need_extra()
    from facade.peers.node.rollback import roll_back
    from facade.peers.trust.studies import the_study

    way = roll_back(home, to_round, the_study(home, study).name)
    if way is None:
        out.print(f"Nothing to do: this site is not beyond round {to_round}, or has gone back to it.", soft_wrap=True)
        return
    state = "begins anew" if way.state is None else f"goes on from its state of round {way.state}"
    out.print(
        f"Back from round {way.before} to round {way.round}, by the list of epoch {way.epoch}: this site {state}."
        " Start it with: facade node up",
        soft_wrap=True,
    )


@app.command()
def doctor(
    home: Home = Path("."),
    study: Studies = None,
    as_json: Json = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Check everything that a start needs: keys, dates, lists, names, data, disk, and how fast peers answer."""
    need_extra()
    from facade.peers.doctor import examine

    findings = examine(home, asking(passphrase_file), study or [])
    for finding in findings:
        mark, style = _MARKS[finding.kind]
        whose = f"{finding.study}: " if finding.study else ""
        prose(as_json).print(f"{mark:>8}  {whose}{finding.says}", style=style, soft_wrap=True)
    if as_json:
        write_json([{key: said for key, said in finding._asdict().items() if said} for finding in findings])
    if any(finding.kind == "problem" for finding in findings):
        raise typer.Exit(1)


@app.command()
def export(
    out_dir: Annotated[Path, typer.Option("-o", "--out", help="Directory for the model; new or empty.")],
    home: Home = Path("."),
    study: OneStudy = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Write this site's model so that it runs without this library, with a model card."""
    need_extra()
    from facade.cli.export import print_exported
    from facade.peers.after.export import export_site
    from facade.peers.trust.studies import the_study

    print_exported(export_site(home, out_dir, asking(passphrase_file), the_study(home, study).name))


@app.command()
def status(
    home: Home = Path("."),
    study: Studies = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON on standard output.")] = False,
) -> None:
    """Where this site is, and whom it has heard, in every study."""
    need_extra()
    from facade.peers.trust.studies import chosen_studies

    studies = chosen_studies(home, study or [])
    found = {one.name: facts for one in studies if (facts := _status_of(one.run)) is not None}
    if not found:
        path = studies[0].run / "status.json"
        raise ExperimentError(f"{path} is not there; the node has not begun, or --home is another one")
    if as_json:
        write_json({one.name: found.get(one.name) for one in studies} if len(studies) > 1 else found[studies[0].name])
        return
    for one in studies:
        prefix = f"{one.name}: " if len(studies) > 1 else ""
        if one.name in found:
            _print_status(found[one.name], prefix)
        else:
            out.print(f"{prefix}not begun")


def _status_of(run: Path) -> dict[str, Any] | None:
    """What is known of the run in a directory; None before it has begun."""
    from facade.files import seals

    path = run / "status.json"
    if not path.exists():
        return None
    finished = (run / "outcome.json").exists()
    closed, lacks = _gate_closed(run), _what_it_lacks(run)
    return seals.read_json(path).content | {"finished": finished, "gate_closed": closed, "shortage": lacks}


def _print_status(facts: dict[str, Any], prefix: str) -> None:
    where = "finished" if facts["finished"] else f"round {facts['round']} of {facts['rounds']}"
    left = "" if facts["finished"] else _time_left(facts.get("seconds_left"))
    out.print(f"{prefix}{facts['id']}: {where}, epoch {facts['epoch']}, policy {facts['policy']}{left}", soft_wrap=True)
    if facts.get("accuracy") is not None:
        out.print(f"  accuracy {facts['accuracy']:.1%} after round {facts['evaluated']}, on this site's test data")
    if facts.get("paused"):
        from facade.cli.site_lines import too_few

        out.print(f"  pausing: {too_few(facts['paused'])}", soft_wrap=True)
    if lacks := facts["shortage"]:
        out.print(f"  pausing: too little of {lacks['lacks']} ({lacks['says']})", soft_wrap=True)
    for id, entry in facts["ledger"].items():
        gone = f", gone on {entry['gone']}" if entry.get("gone") else ""
        refused = f", refused {sum(entry['refused'].values())}" if entry["refused"] else ""
        heard = f"heard {entry['heard']}, late {entry['late']}, missed {entry['missed']}"
        out.print(f"  {id:>8}  {heard}{gone}{refused}{_dropped(entry)}", soft_wrap=True)
    if facts.get("missed"):
        out.print(f"  missed in the last round: {', '.join(facts['missed'])}", soft_wrap=True)
    if closed := facts["gate_closed"]:
        out.print(f"  the last gate closed {closed}x: this site went on as if it had heard nobody", soft_wrap=True)


def _time_left(seconds: float | None) -> str:
    """How long a run will take yet, where that is known; roughly."""
    if seconds is None:
        return ""
    unit, size = next(
        (unit, size) for unit, size in (("h", 3600), ("min", 60), ("s", 1)) if seconds >= size or size == 1
    )
    return f", some {seconds / size:.0f} {unit} left"


def _dropped(entry: dict[str, Any]) -> str:
    """In words, what the guard did not use of a peer's messages."""
    if not entry.get("unused"):
        return ""
    parts = ", ".join(f"{part} {count}" for part, count in entry["dropped"].items())
    return f", dropped {entry['unused']} ({parts})"


def _what_it_lacks(run: Path) -> dict[str, str] | None:
    """What a site lacks that pauses."""
    from facade.peers.node.shortages import read_notice

    return read_notice(run)


def _gate_closed(run: Path) -> int:
    """How often the last gate of a site's guard has closed, as its rows say."""
    from facade.runs.run_directory import RunDirectory

    rows = RunDirectory(run).rows
    return sum(row.get("gate_closed", False) for row in rows) if rows.path.exists() else 0
