"""The lists that a node follows: those it has kept, and the one that its operator puts in their place."""

from __future__ import annotations

from facade.errors import ExperimentError, FacadeError, StorageError
from facade.files import store
from facade.peers.node.ignored_members import IgnoredMembers
from facade.peers.node.journal import Journal
from facade.peers.node.site_epoch import SiteEpoch
from facade.peers.trust import identity
from facade.peers.trust.membership import Epochs, Member, Membership, load, read, verified
from facade.peers.trust.site import Site, check_playable
from facade.peers.trust.studies import EPOCHS, refuse_same_subject


class NextEpochError(Exception):
    """A round is governed by another list than the one it was begun under."""


class GoBackError(Exception):
    """A list has come that goes back to an earlier round than the one being played."""


class FollowedLists:
    """Who this site is: the lists that it knows, what each of them makes of it, and which one is in force."""

    def __init__(self, site: Site, journal: Journal) -> None:
        self.epochs = Epochs()
        self._site = site
        self._journal = journal
        self.ignored = IgnoredMembers(site, journal)
        self._path = site.study.list_path
        self._kept = site.run / EPOCHS
        with store.writing(self._kept):
            store.make_directory(self._kept)
        for earlier in site.study.kept_lists:
            self.epochs.add(load(earlier, site.settings.admins, site.settings.required))
        self._site_epochs: dict[int, SiteEpoch] = {}
        self._in_force: SiteEpoch | None = None
        self._seen: int | None = None
        """When the list was written that was taken last."""
        self._refused: bytes | None = None
        """The content that could not be used last."""
        self._complaint = ""
        """Why it could not."""
        if not self.epochs.known:  # without any list nothing starts; a later one that cannot be used changes nothing
            self._take(read(self._path))

    @property
    def in_force(self) -> SiteEpoch:
        """The epoch that this site is playing."""
        assert self._in_force is not None, "a round is entered first"
        return self._in_force

    @property
    def membership(self) -> Membership:
        """The list in force."""
        return self.in_force.membership

    def look(self) -> None:
        """Take the list that the operator has put there since. One that cannot be used is named in
        the log and looked at again when it is another: it may be half copied."""
        written = self._written()
        if written == self._seen:
            return
        content = None
        try:
            content = read(self._path)
            if content != self._refused:
                self._take(content)
                self._seen, self._refused, self._complaint = written, None, ""
        except (ExperimentError, StorageError) as error:
            self._refused = None if isinstance(error, StorageError) else content  # that may be mended without a change
            if str(error) != self._complaint:
                self._journal.write("list-refused", says=str(error))
            self._complaint = str(error)

    def _take(self, content: bytes) -> None:
        """Keep a list that can be played by; what is kept is what was checked."""
        settings = self._site.settings
        # That fewer must sign from now on, as many must have signed as before.
        needed = max([settings.required, *(known.required for known in self.epochs.known[-1:])])
        membership = verified(content, self._path, settings.admins, needed)
        if not self.epochs.known:  # later on, a list may well be one in which this site is no member any more
            self._site.find_in(membership)
        if not self.epochs.follows(membership):
            return
        membership.refuse_expired()
        refuse_same_subject(self._site.home, self._site.study, membership)
        if membership.has(settings.id):
            check_playable(self._site, membership)
        store.replace(self._kept / f"{membership.epoch}.json", content, store.PRIVATE)
        self.epochs.add(membership)

    def _written(self) -> int:
        """When the list was written; 0 if there is none."""
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0

    def enter(self, round: int) -> SiteEpoch:
        """Put the list in force that governs a round."""
        self._in_force = self.site_epoch(round)
        return self._in_force

    def check_in_force(self, round: int) -> None:
        """Before a round is published: as `check_governing` and `refuse_expired`."""
        self.check_governing(round)
        self.refuse_expired(round)

    def refuse_expired(self, round: int) -> None:
        """ExperimentError if the list that governs a round has expired."""
        membership = self.epochs.governing(round)
        try:
            membership.refuse_expired()
        except ExperimentError as error:
            self._journal.write("expired", epoch=membership.epoch, says=str(error))
            raise

    def check_governing(self, round: int) -> None:
        """Look for a new list; NextEpochError if this round is to be played by another than the one in force, and
        GoBackError if an earlier one is to be played first."""
        self.look()
        governing = self.epochs.governing(round)
        if governing is self.membership:
            return
        if self.no_further_than(round) < round and governing.has(self._site.settings.id):
            raise GoBackError
        raise NextEpochError

    def no_further_than(self, round: int) -> int:
        """This round, or the earlier one that a list later than the one in force goes back to."""
        return min([round, *(later.first_round for later in self.epochs.going_back(self.membership.epoch))])

    @property
    def beginning(self) -> int:
        """The round in which a site begins that has played none."""
        return self.epochs.governing(self.epochs.known[0].first_round).first_round

    def site_epoch(self, round: int) -> SiteEpoch:
        """What the list that governs a round makes of this site; RemovedError if it is no member then,
        ExperimentError if the others will not accept its certificate."""
        membership = self.epochs.governing(round)
        own = identity.fingerprint(self._site.certificate)
        good = self.epochs.certificates(self._site.settings.id, round)
        if good and own not in map(identity.fingerprint, good):
            raise ExperimentError(
                f"the list of epoch {membership.epoch}, in force from round {membership.first_round} on, does not have"
                f" the certificate of this site ({own[:16]}); run: facade node rotate --finish, and start again"
            )
        if membership.epoch not in self._site_epochs:
            if membership.has(self._site.settings.id):
                self._site.check_signing_key(membership)
            self._site_epochs[membership.epoch] = SiteEpoch.of(self._site, membership)
        return self._site_epochs[membership.epoch]

    def of_epoch(self, epoch: int) -> Membership:
        """The list of an epoch that this site has played."""
        for membership in self.epochs.known:
            if membership.epoch == epoch:
                return membership
        raise FacadeError(
            f"the checkpoint was made under the list of epoch {epoch}, which is not in {self._kept};"
            f" put that list there as {epoch}.json, and start again"
        )

    def recall(self, rounds: range) -> None:
        """Know, after a restart, who may have the messages of the rounds before it."""
        for round in rounds:
            membership = self.epochs.governing(round)
            if membership.has(self._site.settings.id) and membership.epoch not in self._site_epochs:
                self._site_epochs[membership.epoch] = SiteEpoch.of(self._site, membership)

    def forget(self, before: int) -> None:
        """Drop what only rounds before a given one need: their messages are no longer kept."""
        oldest = self.epochs.governing(before).epoch
        self._site_epochs = {epoch: held for epoch, held in self._site_epochs.items() if epoch >= oldest}

    def entitled(self, round: int, caller: int) -> bool:
        """Whether a member may have this site's message of a round."""
        site_epoch = self._site_epochs.get(self.epochs.governing(round).epoch)
        return site_epoch is not None and site_epoch.entitled(round, caller)

    def callers(self, round: int) -> list[Member]:
        """The members that may call this site while it is in a round."""
        return [member for membership in self.epochs.current(round) for member in membership.members]
