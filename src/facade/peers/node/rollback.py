"""Back to an earlier round, where a list says so: what was played from that round on does not count any more.

One site alone cannot go back: it would publish other messages for rounds in which others have used the first ones. A
list that goes back gives those rounds another epoch, for all members at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from facade.errors import ExperimentError, FacadeError
from facade.files import seals, store
from facade.peers.node.checkpoints import SiteCheckpoint, SiteCheckpoints
from facade.peers.node.followed_lists import FollowedLists
from facade.peers.node.journal import Journal
from facade.peers.node.outgoing import Outgoing
from facade.peers.node.recovery import Recovery
from facade.peers.trust.membership import Epochs, Membership
from facade.peers.trust.site import Site
from facade.peers.trust.studies import MAIN
from facade.runs.run_directory import BusyError, RunDirectory
from facade.runs.saved_states import ROWS

RESULTS = ("outcome.json", "site.json", "model.safetensors")
"""What a finished run has written, that of the outcome first: without it the run is not over."""


class NoWayBackError(FacadeError):
    """A site keeps no state that it could go back to."""


@dataclass(frozen=True)
class WayBack:
    """How a site goes back."""

    round: int
    """The one that it begins again."""
    epoch: int
    """Of the list that says so."""
    state: int | None
    """The round whose state it goes on from; None: it begins anew."""
    before: int
    """The round that it was in."""


def roll_back(home: Path, to_round: int, study: str = MAIN) -> WayBack | None:
    """Take a stopped site back to a round of a study, as the newest list of that says; None if it is not beyond it."""
    site = Site.load(home, study=study)
    try:
        with RunDirectory(site.run).claimed():
            return _roll_back(site, to_round)
    except BusyError:
        raise ExperimentError(f"the node of {home} is running; stop it with SIGTERM, and go back then") from None


def _roll_back(site: Site, to_round: int) -> WayBack | None:
    newest = site.membership()
    if not newest.goes_back or newest.first_round != to_round:
        goes = "back to" if newest.goes_back else "on from"
        raise ExperimentError(
            f"the list of this site (epoch {newest.epoch}) goes {goes} round {newest.first_round}, not back to round"
            f" {to_round}, and nobody goes back alone; ask the federation's admin for a list made with: facade network"
            f" update --back-to-round {to_round}"
        )
    journal = Journal(site.run / "log.jsonl")
    try:
        lists = FollowedLists(site, journal)
        lists.look()
        return go_back(site, lists.epochs, journal)
    finally:
        journal.close()


def go_back(site: Site, epochs: Epochs, journal: Journal) -> WayBack | None:
    """Take a site's files back to the round that a list goes back to, if it has not gone yet; None if it need not. An
    attempt that was interrupted is made again: the checkpoints, by which that is seen, are changed last."""
    if not epochs.going_back(0):
        return None
    directory, checkpoints = RunDirectory(site.run), SiteCheckpoints(RunDirectory(site.run))
    saved = checkpoints.newest()
    target = None if saved is None else _target(epochs, saved, (site.run / RESULTS[0]).exists())
    if saved is None or target is None or not target.has(site.settings.id):
        return None
    round = target.first_round
    earlier = checkpoints.newest_up_to(round)
    if earlier is None and not _begins_anew(epochs, target, site.settings.id):
        kept = ", ".join(map(str, checkpoints.rounds))
        raise NoWayBackError(
            f"the list of epoch {target.epoch} goes back to round {round}, but this site keeps no state of that round"
            f" or an earlier one, only of {kept}; restore {site.run / 'checkpoints'} from a copy, or ask the"
            " federation's admin for a list that goes back to one of those, or to round 0"
        )
    way = WayBack(round, target.epoch, earlier.round if earlier else None, saved.round)
    journal.write("went-back", round=round, epoch=way.epoch, state=way.state, before=way.before)
    journal.sync()
    _set_aside(site.run, target.epoch)
    outgoing = Outgoing(site.run / "outgoing", target.limits.window)
    for published in outgoing.rounds:
        if published >= round:
            outgoing.withdraw(published)
    Recovery(site.run / "recovery.jsonl").go_back(begun=earlier is not None)
    if earlier is None:
        checkpoints.remove()
    else:
        checkpoints.put_back(round, earlier)
    directory.cut(ROWS, earlier.rows if earlier else 0)
    _correct_status(site.run / "status.json", way, earlier)
    return way


def _target(epochs: Epochs, saved: SiteCheckpoint, finished: bool) -> Membership | None:
    """The list that a site with this newest checkpoint must go back by; None if there is none."""
    lists = epochs.going_back(saved.epoch)
    if not lists:
        return None
    earliest = min(lists, key=lambda membership: (membership.first_round, -membership.epoch))
    beyond = saved.round >= earliest.first_round if finished else saved.round > earliest.first_round
    return earliest if beyond else None


def _begins_anew(epochs: Epochs, target: Membership, id: str) -> bool:
    """Whether a site has no state of the round because nobody had, or because it was no member by then."""
    earlier = [membership for membership in epochs.known if membership.epoch < target.epoch and membership.has(id)]
    return target.first_round == 0 or all(membership.first_round > target.first_round for membership in earlier)


def _set_aside(run: Path, epoch: int) -> None:
    """Results that do not count any more are kept where nobody takes them for those that do."""
    aside = run / "given-up" / str(epoch)
    with store.writing(aside):
        for name in RESULTS:
            if (run / name).exists():
                aside.mkdir(parents=True, exist_ok=True)
                (run / name).replace(aside / name)


def _correct_status(path: Path, way: WayBack, saved: SiteCheckpoint | None) -> None:
    """Have `facade node status` say where the site is now."""
    if path.exists():
        now = {"round": way.round, "epoch": way.epoch, "ledger": saved.ledger if saved else {}}
        store.replace(path, seals.sealed_json(seals.read_json(path).content | now), store.PRIVATE)
