"""`facade network`: found a permissioned network, change it, or try one on this machine."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facade.cli.console import Json, err, out, prose, write, write_json
from facade.cli.directories import fresh_directory
from facade.cli.display import print_results, write_summaries
from facade.cli.node import need_extra
from facade.cli.options import ExperimentFile, Settings
from facade.cli.passphrase import PassphraseFile, asking, new_passphrase
from facade.cli.report import leave_report
from facade.cli.site_report import report_sites
from facade.errors import ExperimentError, first_mistake

if TYPE_CHECKING:
    from facade.experiment.config import Experiment
    from facade.peers.trust.membership import Membership

app = typer.Typer(help="A network of real peers: found it, change it, try it here.", no_args_is_help=True)

GUARDS_OF_ONE_MODEL = dict.fromkeys(("el", "dpsgd", "dac"), "balance")
"""How real sites guard themselves, where an experiment says nothing of it, if one model is to serve all: there "fair",
which others get, takes from the minority (docs/robustness.md)."""

Key = Annotated[list[Path], typer.Option(help="An admin's key. Repeatable.")]
List = Annotated[Path, typer.Option("--output", "-o", help="Where to write the signed list.")]
Required = Annotated[int | None, typer.Option(min=1, help="How many admins must sign.", show_default="1, or as before")]
Expires = Annotated[str | None, typer.Option(help="The list's last day (UTC), such as 2027-03-31.")]


@app.command()
def admin(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the key.")],
    encrypt_key: Annotated[bool, typer.Option("--encrypt-key", help="Encrypt it with a passphrase.")] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make an admin's key; sites name its public half at `facade node init --admin`."""
    need_extra()
    from facade.peers.trust.identity import new_signing_key

    public = new_signing_key(output, new_passphrase(encrypt_key, passphrase_file))
    out.print(f"Written: {output} (keep it private). Its public half, for the sites:", soft_wrap=True)
    write(f"{public}\n")


@app.command()
def public(
    key: Annotated[Path, typer.Argument(help="An admin's key.")], passphrase_file: PassphraseFile = None
) -> None:
    """Print the public half of an admin's key, for new sites' `facade node init --admin`."""
    need_extra()
    (half,) = _public_halves([key], asking(passphrase_file))
    write(f"{half}\n")


@app.command()
def build(
    joins: Annotated[list[Path], typer.Argument(help="The sites' .join files.")],
    experiment: Annotated[Path, typer.Option(help="The experiment, a TOML file.")],
    key: Key,
    output: List = Path("membership.json"),
    policy: Annotated[str, typer.Option(help="How to wait for peers: brisk or patient.")] = "brisk",
    schema: Annotated[Path | None, typer.Option(help="JSON of the sites' data: facade data schema.")] = None,
    limit: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, such as deadline=300. Repeatable.")] = None,
    attack: Annotated[bool, typer.Option("--attack", help="Sign also what has members attack the others.")] = False,
    admin: Annotated[list[str] | None, typer.Option(help="Public key of a further admin. Repeatable.")] = None,
    required: Required = None,
    expires: Expires = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make the signed list of a new federation from the sites' .join files. Sites are guarded (guard.rule = "fair",
    or "balance" where one model serves all) unless the experiment says another rule. Where several admins must sign,
    the others do it with: network sign."""
    need_extra()
    from facade.files import store
    from facade.peers.trust import identity
    from facade.peers.trust.founding import Terms, check_plan, found_federation
    from facade.peers.trust.schema import Schema
    from facade.peers.trust.site import refuse_attack

    described = _described(experiment, len(joins))
    refuse_attack(described, attack, "give --attack")
    ask = functools.cache(asking(passphrase_file))
    admins = [*_public_halves(key, ask), *(admin or [])]
    look = None if schema is None else _checked(Schema, _read(schema), "--schema")
    limits = limits_for(policy, limit or [])
    terms = Terms(described.name, admins, _policy(policy), limits, look, required or 1, expires or "")
    federation = found_federation([identity.Join.load(path) for path in joins], described, terms)
    check_plan(federation)
    store.replace(output, federation.sign(key, ask=ask).encode())
    written = f"Written: {output}, {federation.n} members, digest {federation.digest.hex()[:16]}."
    out.print(f"{written} {_next_step(federation, len(key))}", soft_wrap=True)


def _public_halves(keys: list[Path], ask: Callable[[], bytes]) -> list[str]:
    """The public keys of admins' key files; `ask` gives the passphrase of encrypted ones."""
    from facade.peers.trust import identity

    return [identity.public_half(identity.load_signing_key(path, ask)) for path in keys]


def _next_step(membership: Membership, signed: int) -> str:
    """What is to be done with a list that so many admins have signed."""
    if signed >= membership.required:
        return "Every site puts it beside its node.toml."
    return f"{signed} of {membership.required} admins have signed it; the next one adds a signature with: network sign."


def _read(schema: Path) -> Any:
    try:
        return json.loads(schema.read_text())
    except (OSError, ValueError) as error:
        raise ExperimentError(f"--schema {schema} cannot be read as JSON ({error})") from None


def _described(path: Path, sites: int) -> Experiment:
    """The experiment of a file, for so many sites; behind the recommended guard if it says nothing of guards."""
    from facade.data.clusters import UNKNOWN
    from facade.experiment.config import Experiment

    settings = []
    given = Experiment.load(path, ["data.clusters=2"]).data.source == "given"
    written = tomllib.loads(path.read_text())
    if given and written["data"].get("clusters") != UNKNOWN:  # they are as many as come
        settings.append(f'data.clusters="{sites}"')
    if not _names_guard(written):
        rule = GUARDS_OF_ONE_MODEL.get(Experiment.load(path, settings).algorithm["name"], "fair")
        settings.append(f"guard.rule={rule}")
        out.print(f'Guard: "{rule}", for the experiment says nothing of it; guard.rule = "none" would be none.')
    return Experiment.load(path, settings)


def _names_guard(written: dict[str, Any]) -> bool:
    """Whether an experiment says by which rule nodes guard themselves, for all algorithms or the one that it names."""
    name = written.get("algorithm", {}).get("name", "facade")
    tables = written, written.get("override", {}).get(name, {})
    return any("rule" in table.get("guard", {}) for table in tables)


def _policy(name: str) -> str:
    from facade.core.names import look_up

    return look_up("policy", name, {"brisk": "brisk", "patient": "patient"})


def limits_of(written: list[str]) -> Any:
    """Limits from NAME=VALUE texts."""
    from facade.peers.trust.membership import Limits

    pairs = [text.partition("=") for text in written]
    return _checked(Limits, {name: value for name, _, value in pairs}, "--limit")


def limits_for(policy: str, written: list[str]) -> Any:
    """Limits from NAME=VALUE texts. Under `patient`, who is back by the deadline ends as if nothing had happened,
    also in the last rounds: others stay so long, unless another `linger` is given."""
    limits = limits_of(written)
    if policy != "patient" or "linger" in limits.model_fields_set:
        return limits
    return limits.model_copy(update={"linger": max(limits.linger, limits.deadline)})


def _checked(kind: Any, written: Any, option: str) -> Any:
    from pydantic import ValidationError

    try:
        return kind.model_validate(written)
    except ValidationError as error:
        raise ExperimentError(f"{option}: {first_mistake(error, kind.model_fields)}") from None


@app.command()
def update(
    membership: Annotated[Path, typer.Argument(help="The list in force.")],
    key: Key,
    from_round: Annotated[
        int | None, typer.Option(min=1, help="The first round that is played by the new list.")
    ] = None,
    back_to_round: Annotated[
        int | None, typer.Option(min=0, help="The same, for a round that was played: all sites go back to it.")
    ] = None,
    add: Annotated[list[Path] | None, typer.Option(help="A new site's .join file. Repeatable.")] = None,
    remove: Annotated[list[str] | None, typer.Option(help="The id of a site that goes. Repeatable.")] = None,
    rotate: Annotated[list[Path] | None, typer.Option(help="A .join file with a new certificate. Repeatable.")] = None,
    output: List = Path("membership.json"),
    required: Required = None,
    expires: Expires = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make the next epoch's list: add, remove, or change certificates, from a round on. Without any of
    them it ends a rotation: from that round on, the old certificate is refused."""
    need_extra()
    from facade.files import store
    from facade.peers.trust import identity
    from facade.peers.trust.founding import check_plan
    from facade.peers.trust.membership import Change, changed, read, signed_list
    from facade.peers.trust.signatures import check_signers

    first_round, back = _first_round(from_round, back_to_round)
    old, signatures = signed_list(read(membership), membership)
    ask = functools.cache(asking(passphrase_file))
    check_signers(
        membership, signatures, _public_halves(key, ask), 1
    )  # what others must have signed too is for the sites
    rotates = any(member.next_certificate for member in old.members)
    if not (add or remove or rotate or rotates or required or expires or back):
        raise ExperimentError(
            f"{membership}: nothing to change; give --add, --remove, --rotate, --expires or --required"
            " (without them, an update ends a rotation, but this list has none)"
        )
    joins = {name: [identity.Join.load(p) for p in paths or []] for name, paths in (("add", add), ("rotate", rotate))}
    new = changed(old, Change(joins["add"], remove or [], joins["rotate"], required, expires, back), first_round)
    check_plan(new)
    store.replace(output, new.sign(key, ask=ask).encode())
    written = f"Written: {output}, epoch {new.epoch}, {new.n} members from round {first_round} on."
    going_back = f"\n{_going_back(first_round)}" if back else ""
    out.print(f"{written} {_next_step(new, len(key))}{going_back}", soft_wrap=True)


def _first_round(from_round: int | None, back_to_round: int | None) -> tuple[int, bool]:
    """(the first round of a new list, whether sites go back to it)."""
    if (from_round is None) == (back_to_round is None):
        raise ExperimentError(
            "give --from-round with a round that nobody has reached, or --back-to-round with one that all go back to"
        )
    return (from_round, False) if from_round is not None else (back_to_round or 0, True)


def _going_back(round: int) -> str:
    """What the admin should know of a list that goes back."""
    from facade.peers.node.checkpoints import EVERY

    told = f"All sites that take it go back to round {round}: what they have played since does not count."
    if round % EVERY == 0:
        return told
    kept = round - round % EVERY
    return f"{told} They keep the state of every {EVERY}th round: most will begin it with that of round {kept}."


@app.command()
def sign(
    membership: Annotated[Path, typer.Argument(help="A list that another admin has made.")],
    key: Key,
    output: Annotated[Path | None, typer.Option("--output", "-o", show_default="the same file")] = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Add an admin's signature to a list, and say what it is that was signed."""
    need_extra()
    from facade.files import store
    from facade.peers.trust.membership import read, signed_list

    listed, signatures = signed_list(read(membership), membership)
    ask = functools.cache(asking(passphrase_file))
    signed = set(signatures) | set(_public_halves(key, ask))
    store.replace(output or membership, listed.sign(key, signatures, ask).encode())
    members = ", ".join(member.id for member in listed.members)
    ends = f"; its last day is {listed.expires}" if listed.expires else ""
    out.print(
        f"Signed: {output or membership}, epoch {listed.epoch} of '{listed.federation}' from round"
        f" {listed.first_round} on, digest {listed.digest.hex()[:16]}; members {members}{ends}."
        f" {_next_step(listed, len(signed))}",
        soft_wrap=True,
    )


@app.command()
def up(
    experiment: ExperimentFile,
    local: Annotated[int, typer.Option(min=2, help="How many sites, each a process on this machine.")],
    settings: Settings = None,
    policy: Annotated[str, typer.Option(help="How to wait for peers: patient or brisk.")] = "patient",
    limit: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, such as deadline=300. Repeatable.")] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Directory for the run; new or empty.", show_default="below runs/")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run an experiment with real processes, keys and certificates on this machine."""
    need_extra()
    from facade.cli.progress import RunProgress
    from facade.experiment.config import Experiment
    from facade.peers.local_network import run
    from facade.runs.history import load_all

    described = Experiment.load(experiment, settings or ())
    if not described.n:  # as many as the data have, which are counted when they are read
        described = described.with_(f"data.clusters={local}")
    if described.n != local:
        raise ExperimentError(
            f"--local {local} but data.clusters = '{described.data.clusters}' asks for {described.n} nodes;"
            f" give --local {described.n} or --set data.clusters=..."
        )
    directory = out_dir or fresh_directory(f"{described.name}-network-seed{described.seed}")
    limits = limits_of(["linger=10", *(limit or [])])
    with RunProgress(err) as progress:
        result = run(described, directory, policy=_policy(policy), limits=limits, progress=progress)
    console = prose(as_json)
    print_results(console, {described.algorithm["name"]: result})
    console.print(f"\nWritten to {directory}; each site's own files are below {directory}/sites", soft_wrap=True)
    leave_report(console, load_all([directory]), directory)
    if as_json:
        write_summaries({described.algorithm["name"]: result}, directory)


@app.command()
def audit(
    logs: Annotated[list[Path], typer.Argument(help="The sites' run/log.jsonl files.")],
    membership: Annotated[list[Path], typer.Option(help="The list they played by. Repeatable: one per epoch.")],
    replay: Annotated[
        list[Path] | None,
        typer.Option(help="A site's directory, with its data: play its last rounds again. Repeatable."),
    ] = None,
    messages: Annotated[
        list[Path] | None, typer.Option(help="A copy of a site's run/outgoing, to play again with. Repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the logs of a run: was every message used the one its sender published, and meant for who used it?
    With --replay, also: does mixing what was used give the states that were recorded? Exit code 1 if something does not
    fit."""
    need_extra()
    from dataclasses import asdict

    from facade.cli.display_sites import print_audit
    from facade.peers.after.audit import Again, audit

    result = audit(logs, membership, Again(replay or [], messages or []))
    print_audit(prose(as_json), result)
    if as_json:
        write_json(asdict(result))
    if result.findings:
        raise typer.Exit(1)


app.command("report")(report_sites)
