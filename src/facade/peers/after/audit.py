"""What the sites' logs say of each other after a run: whether every message that was used is the one its sender
published, whether everybody was sent the same, and whether it came along an edge of the round's graph; and whose
messages the others did not use.

Logs are not signed, so this finds what does not fit together, and who is at odds; a site that rewrites its own log
cannot make the others' agree with it.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from facade.errors import ExperimentError
from facade.peers.after.replay import Replay, kept_messages, replay
from facade.peers.after.site_log import Committed, Heard, Judged, Log, Mixed, Started, TurnedAway, Used, WentBack, When
from facade.peers.after.suspects import Suspect, Word, suspects
from facade.peers.node.verdicts import used_sha256
from facade.peers.protocol.access import Access
from facade.peers.protocol.refusals import Reason
from facade.peers.trust.membership import Epochs, Membership, vouched
from facade.peers.trust.site import Site, foreign_names
from facade.peers.trust.studies import MAIN, played_by, studies_of


@dataclass(frozen=True)
class Audit:
    """What was looked at, and what does not fit."""

    sites: list[str]
    """Whose logs were given."""
    missing: list[str]
    """Members whose logs were not."""
    rounds: int
    messages: int
    """Accepted ones, of all sites; those that were heard again after a restart count once."""
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be judged."""
    suspects: list[Suspect] = field(default_factory=list)
    """Members of whose messages the others used clearly less than of most members'."""
    replayed: int = 0
    """Exchanges that were mixed again."""


@dataclass(frozen=True)
class Again:
    """What is to be played again."""

    homes: Sequence[Path] = ()
    """Directories of sites whose logs are given, with their data."""
    messages: Sequence[Path] = ()
    """Directories of messages, beside those that these sites keep."""


def audit(logs: Sequence[Path], lists: Sequence[Path], again: Again | None = None) -> Audit:
    """Compare the logs of a run. `lists` are the membership.json files that it was played by, one per epoch; whoever
    gives them vouches for them."""
    epochs = Epochs()
    for membership in sorted((vouched(path) for path in lists), key=lambda membership: membership.epoch):
        epochs.add(membership)
    by_site: dict[str, Log] = {}
    for log in map(Log.read, logs):
        _check_origin(log, by_site, epochs)
        by_site[log.id] = log
    members = {member.id for membership in epochs.known for member in membership.members}
    heard = [(event, log.id) for log in by_site.values() for event in log.heard]
    _check_epochs([event for event, _ in heard], epochs)
    findings = [sentence for log in by_site.values() for sentence in (*_order(log), *_mixing(log, epochs))]
    strays, unjudged = _strays(heard, epochs)
    astray, ways_back = _ways_back(by_site.values(), epochs)
    disputes, cut = _disputes(heard, by_site)
    replayed = _replayed(by_site, epochs, again or Again())
    last_round = epochs.known[-1].experiment["training"]["rounds"]
    return Audit(
        sorted(by_site),
        sorted(members - set(by_site)),
        len({event.round for event, _ in heard}),
        len({(event.epoch, event.round, event.peer, receiver) for event, receiver in heard}),
        [*findings, *disputes, *strays, *astray, *replayed.findings],
        [*unjudged, *cut, *ways_back, *replayed.notes],
        suspects([word for log in by_site.values() for word in _words(log, last_round)]),
        replayed.rounds,
    )


def _check_origin(log: Log, before: dict[str, Log], epochs: Epochs) -> None:
    federation = epochs.known[0].federation
    if log.federation != federation:
        raise ExperimentError(f"the log of '{log.id}' is of federation {log.federation!r}, the list of {federation!r}")
    if log.id in before:
        raise ExperimentError(f"more than one log is of '{log.id}'; give one for each site")
    if not any(membership.has(log.id) for membership in epochs.known):
        raise ExperimentError(f"'{log.id}', whose log was given, is in no list that was given")


def _check_epochs(heard: list[Heard], epochs: Epochs) -> None:
    unknown = {event.epoch for event in heard} - {membership.epoch for membership in epochs.known}
    if unknown:
        raise ExperimentError(
            f"rounds were played by the list of epoch {min(unknown)}, which was not given; give every list of the run"
            " as `membership`; a site keeps them in run/epochs"
        )


def _order(log: Log) -> list[str]:
    """Rounds rise, unless a site was started again; what it plays again it publishes as before."""
    findings = [
        f"round {at.round}: {log.id} published two different messages, {_short(digests)}"
        for at, digests in log.published.items()
        if len(digests) > 1
    ]
    last: When | None = None
    for event in log.events:
        if isinstance(event, Started):
            last = None
        elif isinstance(event, Committed):
            at = When(event.epoch, event.round)
            if last is not None and at <= last:
                findings.append(
                    f"round {at.round}: {log.id} published it after round {last.round}, without a new start"
                )
            last = at
    return findings


def _mixing(log: Log, epochs: Epochs) -> list[str]:
    """Members whose messages were mixed though none of them had come; and rounds in which a log contradicts its own
    digest of what was used."""
    members = {membership.epoch: [member.id for member in membership.members] for membership in epochs.known}
    heard = {(event.epoch, event.round, event.peer): event.sha256 for event in log.heard}
    mixed: dict[When, dict[str, str]] = {}
    judged: dict[When, Judged] = {}
    findings = []
    for event in log.events:
        if isinstance(event, Mixed):
            ids = members.get(event.epoch, [])
            who = [ids[i] if 0 <= i < len(ids) else f"member number {i}" for i in event.heard]
            at = When(event.epoch, event.round)
            mixed[at] = {id: heard.get((*at, id), "") for id in who}
            judged.pop(at, None)  # by a verdict on what the round was mixed from before
            findings += [
                f"round {event.round}: {log.id} mixed a message of {id} without having heard it"
                for id, digest in mixed[at].items()
                if not digest
            ]
        elif isinstance(event, Judged):
            judged[When(event.epoch, event.round)] = event
        elif isinstance(event, Used):
            at = When(event.epoch, event.round)
            if _contradicts(event, mixed.get(at), judged.get(at)):
                findings.append(f"round {at.round}: {log.id} did not use what its log says was heard and dropped")
    return findings


def _contradicts(used: Used, mixed: dict[str, str] | None, judged: Judged | None) -> bool:
    """Whether a digest is not that of the messages that a log says were mixed, and of the verdict on them."""
    if mixed is None or not all(mixed.values()):
        return False  # a part of the log is missing, or found already
    dropped, gate_closed = (judged.dropped, judged.gate_closed) if judged else ({}, False)
    return used_sha256(mixed, dropped, gate_closed) != used.sha256


def _replayed(logs: dict[str, Log], epochs: Epochs, again: Again) -> Replay:
    """The rounds of sites whose directories are given, played again."""
    sites = [_site(home, epochs) for home in again.homes]
    kept = kept_messages([*(site.run / "outgoing" for site in sites), *again.messages])
    lists, together = {membership.epoch: membership for membership in epochs.known}, Replay()
    for site in sites:
        id = site.settings.id
        if id not in logs:
            raise ExperimentError(f"{site.home} is the directory of '{id}', whose log is not among those given")
        one = replay(site, logs[id], lists, kept)
        together.rounds += one.rounds
        together.findings += one.findings
        together.notes += one.notes
    return together


def _site(home: Path, epochs: Epochs) -> Site:
    """The site of a directory, for the study that is played by these lists."""
    played = {study.name for study in played_by(home, {membership.digest for membership in epochs.known})}
    return Site.load(home, study=next((study.name for study in studies_of(home) if study.name in played), MAIN))


def _disputes(heard: list[tuple[Heard, str]], logs: dict[str, Log]) -> tuple[list[str], list[str]]:
    """Messages that were not the same for everybody, or not those that their senders say they published; and, as
    notes, those that came after the end of their senders' logs."""
    receivers_of: dict[tuple[When, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for event, receiver in heard:
        receivers_of[When(event.epoch, event.round), event.peer][event.sha256].append(receiver)
    published = {id: log.published for id, log in logs.items()}
    findings: list[str] = []
    notes: list[str] = []
    for (at, sender), digests in sorted(receivers_of.items()):
        receivers = sorted({receiver for some in digests.values() for receiver in some})
        if len(digests) > 1:
            each = "; ".join(f"{digest[:16]} to {', '.join(sorted(set(who)))}" for digest, who in digests.items())
            findings.append(f"round {at.round}: {sender} sent different messages: {each}")
        elif sender in published and at not in published[sender]:
            ended = not published[sender] or at > max(published[sender])  # killed between sending and writing, perhaps
            gap = f"round {at.round}: {', '.join(receivers)} heard a message of {sender} that its log does not have"
            (notes if ended else findings).append(gap + (", for it ends before" if ended else ""))
        elif sender in published and not set(digests) <= set(published[sender][at]):
            findings.append(
                f"round {at.round}: {', '.join(receivers)} heard {_short(list(digests))} from {sender}, whose log has"
                f" {_short(published[sender][at])}"
            )
    return findings, notes


def _ways_back(logs: Iterable[Log], epochs: Epochs) -> tuple[list[str], list[str]]:
    """Sites that went back by a list that does not; and, as notes, those that went back as they should. Rounds that
    are played again by another list are other rounds, so that nothing else of an audit depends on it."""
    lists = {membership.epoch: membership for membership in epochs.known}
    findings, notes = [], []
    for log in logs:
        for event in dict.fromkeys(event for event in log.events if isinstance(event, WentBack)):
            where = f"{log.id} went back to round {event.round}"
            listed = lists.get(event.epoch)
            if listed is None or not listed.goes_back or listed.first_round != event.round:
                findings.append(f"{where} by the list of epoch {event.epoch}, which does not go back there")
                continue
            state = "began anew" if event.state is None else f"went on from its state of round {event.state}"
            notes.append(f"{where}, by the list of epoch {event.epoch}, and {state}")
    return findings, notes


def _words(log: Log, last_round: int) -> list[Word]:
    """What a site says of what every member sent it. Rounds that were played again count once."""
    came: dict[str, set[int]] = defaultdict(set)
    unused: dict[str, set[int]] = defaultdict(set)
    silent = {reason.word for reason in Reason if not reason.tells_of_message}
    for event in log.events:
        if isinstance(event, Heard):
            came[event.peer].add(event.round)
        elif isinstance(event, TurnedAway) and event.reason not in silent:
            came[event.peer].add(event.round)
            unused[event.peer].add(event.round)
        elif isinstance(event, Judged):
            for id in event.dropped:
                unused[id].add(event.round)
    return [
        Word(log.id, id, len(rounds), len(unused[id] & rounds), last_round in unused[id])
        for id, rounds in sorted(came.items())
        if id != log.id
    ]


def _short(digests: list[str]) -> str:
    return " and ".join(digest[:16] for digest in digests)


def _strays(heard: list[tuple[Heard, str]], epochs: Epochs) -> tuple[list[str], list[str]]:
    """Messages that came from others than the round's graph, or the algorithm, allows; and, as notes, lists of which
    that cannot be said."""
    by_epoch = {membership.epoch: membership for membership in epochs.known}
    accesses: dict[int, Access | None] = {}
    findings, notes = [], []
    for event, receiver in heard:
        membership = by_epoch[event.epoch]
        if not (membership.has(event.peer) and membership.has(receiver)) or event.peer == receiver:
            findings.append(f"round {event.round}: {receiver} heard {event.peer}, and not both are members")
            continue
        if event.epoch not in accesses:
            accesses[event.epoch], why = _access(membership)
            notes += [why] if why else []
        access = accesses[event.epoch]
        sender, number = membership.number(event.peer), membership.number(receiver)
        if access is not None and not access.has(event.round, sender, number):
            findings.append(f"round {event.round}: {receiver} heard {event.peer}, which is no neighbour in that round")
    return findings, notes


def _access(membership: Membership) -> tuple[Access | None, str]:
    """Who may hear whom under a list, or why that cannot be said: code that it names is not run for an audit."""
    from facade.experiment.config import Experiment
    from facade.experiment.setup import planned

    named = next(foreign_names(membership.experiment), None)
    if named is not None:
        key, name = named
        epoch = f"epoch {membership.epoch}"
        return None, f"{epoch}: who may hear whom was not judged, for {key} = '{name}' is code of the sites' own"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were given when the list was played by
        return Access(*planned(Experiment.of(membership.experiment), membership.founding_size)), ""
