"""The lists that a node follows: those it has kept, and the one that its operator puts beside node.toml."""

from __future__ import annotations

from facade.errors import ExperimentError
from facade.files import store
from facade.peers.node.journal import Journal
from facade.peers.node.site_epoch import SiteEpoch
from facade.peers.trust import identity
from facade.peers.trust.membership import Epochs, load, read, verified
from facade.peers.trust.site import Site, check_playable


class FollowedLists:
    """The epochs that a site knows, and what each of them makes of it."""

    def __init__(self, site: Site) -> None:
        self.epochs = Epochs()
        self._site = site
        self._path = site.home / "membership.json"
        self._kept = site.run / "epochs"
        with store.writing(self._kept):
            self._kept.mkdir(parents=True, exist_ok=True)
        for earlier in sorted(self._kept.glob("*.json"), key=lambda path: int(path.stem)):
            self.epochs.add(load(earlier, site.settings.admins))
        self._scenes: dict[int, SiteEpoch] = {}
        self._seen: int | None = None
        """When the list was written that was taken last."""
        self._refused: bytes | None = None
        """The content that could not be used last."""
        self._said = ""
        if not self.epochs.known:  # without any list nothing starts; a later one that cannot be used changes nothing
            self._take(read(self._path))

    def look(self, journal: Journal) -> None:
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
                self._seen, self._refused, self._said = written, None, ""
        except ExperimentError as error:
            self._refused = content
            if str(error) != self._said:
                journal.write("list-refused", says=str(error))
            self._said = str(error)

    def _take(self, content: bytes) -> None:
        """Keep a list that can be played by; what is kept is what was checked."""
        found = verified(content, self._path, self._site.settings.admins)
        if not self.epochs.known:  # later on, a list may well be one in which this site is no member any more
            self._site.find_in(found)
        if not self.epochs.follows(found):
            return
        if found.has(self._site.settings.id):
            check_playable(self._site, found)
        self.epochs.add(found)
        store.replace(self._kept / f"{found.epoch}.json", content)

    def _written(self) -> int:
        """When the list was written; 0 if there is none."""
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0

    def scene(self, round: int) -> SiteEpoch:
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
        if membership.epoch not in self._scenes:
            self._scenes[membership.epoch] = SiteEpoch.of(self._site, membership)
        return self._scenes[membership.epoch]

    def recall(self, rounds: range) -> None:
        """Know, after a restart, who may have the messages of the rounds before it."""
        for round in rounds:
            membership = self.epochs.governing(round)
            if membership.has(self._site.settings.id) and membership.epoch not in self._scenes:
                self._scenes[membership.epoch] = SiteEpoch.of(self._site, membership)

    def forget(self, before: int) -> None:
        """Drop what only rounds before a given one need: their messages are no longer kept."""
        oldest = self.epochs.governing(before).epoch
        self._scenes = {epoch: scene for epoch, scene in self._scenes.items() if epoch >= oldest}

    def entitled(self, round: int, caller: int) -> bool:
        """Whether a member may have this site's message of a round."""
        scene = self._scenes.get(self.epochs.governing(round).epoch)
        return scene is not None and scene.entitled(round, caller)
