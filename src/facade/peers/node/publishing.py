"""From a post to a message that others can pull: the round's start and then its message are made durable. Only what is
on disk is served, and a message is on disk only if the state that it was made from is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from facade.core import tree
from facade.core.messages import Post
from facade.core.types import Row
from facade.errors import FacadeError
from facade.files import seals, store
from facade.peers.node.records import Records
from facade.peers.node.shortages import Shortages
from facade.peers.node.site_epoch import SiteEpoch
from facade.peers.node.site_files import SiteFiles
from facade.peers.node.verdicts import Verdict, last_exchange, note, used_sha256, verdicts
from facade.peers.protocol.gate import Gate
from facade.peers.protocol.wire import Origin, not_finite, parts
from facade.peers.trust import identity
from facade.peers.trust.site import Site
from facade.runs.saved_states import ROWS

Watch = Callable[[list[Row]], None]
"""Told the rows of every round as they are committed."""


class Publisher:
    """Commits the rounds of one site."""

    def __init__(
        self, site: Site, files: SiteFiles, gate: Gate, records: Records, shortages: Shortages, watch: Watch
    ) -> None:
        self._site = site
        self._files = files
        self._gate = gate
        self._records = records
        self._shortages = shortages
        self._watch = watch
        self._told: tuple[int, int] | None = None
        """The epoch and the round that the log says were committed last."""
        self._committed = time.monotonic()
        """When the last round was."""

    def publish(self, epoch: SiteEpoch, post: Post) -> None:
        """Make a round's start and then its message durable, and serve it; what is done by halves is done again when
        there is room."""
        self._shortages.outlast(lambda: self._commit(epoch, post))
        self._count(epoch, post.round)
        self.write_status(epoch, post.round)

    def _commit(self, epoch: SiteEpoch, post: Post) -> None:
        if broken := not_finite(post.outbox):
            raise FacadeError(
                f"this site's own message of round {post.round} holds values that are not finite ({broken[0]}), which"
                " nobody would use; the algorithm, or the data, must not make such"
            )
        files, membership = self._files, epoch.membership
        message = parts(Origin(membership.digest, epoch.number, post.round), post.outbox)
        files.outgoing.check(post.round, message)  # before a state that diverges takes the place of a good one
        files.checkpoints.save(post.round, membership.epoch, post.state, self._records.ledger.plain())
        # What was mixed must be known if this round is ever to be played again.
        files.recovery.commit(post.round - 2 * membership.limits.window)
        self._records.journal.sync()  # others' logs may tell of this message: an audit compares them
        self._gate.round = post.round  # before the message is there: nobody is told of a gone round from an older one
        published = files.outgoing.commit(post.round, message)
        if self._told != (membership.epoch, post.round):  # one that is played again for want of memory is published
            facts = {"sha256": published.digest.hex(), "bytes": published.total}
            self._records.journal.write("committed", round=post.round, epoch=membership.epoch, **facts)
            self._told = membership.epoch, post.round

    def withdraw(self, round: int) -> None:
        """Take back a round's message: the round is played by another list."""
        self._files.outgoing.withdraw(round)

    def _count(self, epoch: SiteEpoch, round: int) -> None:
        now, metrics = time.monotonic(), self._records.metrics
        metrics.seconds.observe(now - self._committed)
        self._records.progress.begin(epoch, round)
        metrics.certificate_days.set(identity.days_left(self._site.certificate))
        self._committed = now

    def write_rows(self, epoch: SiteEpoch, rows: list[Row], state: Any) -> None:
        """Append rows, made under a list, to the run's file; note what they say, and the state [1, ...] that they end
        with; tell them to whoever watches."""
        self._shortages.outlast(lambda: self._files.directory.append(ROWS, rows))
        self._records.progress.note_rows(rows)
        exchanged = last_exchange(rows)
        if exchanged is not None:
            self._note_exchange(epoch, exchanged, rows, state)
        self._watch(rows)

    def _note_exchange(self, epoch: SiteEpoch, round: int, rows: list[Row], state: Any) -> None:
        """Write down what the guard decided in an exchange, what was used, and the state that came of it."""
        membership, recovery = epoch.membership, self._files.recovery
        mixed = recovery.mixed(membership.digest, round) or []
        messages = {
            membership.members[sender].id: recovery.digest(Origin(membership.digest, sender, round)) or ""
            for sender in mixed
        }
        verdict = next(verdicts(rows, epoch), Verdict(round, False, {}, False))
        if verdict.dropped or verdict.gate_closed:
            note(verdict, membership.epoch, messages, self._records)
        used = used_sha256(messages, verdict.dropped, verdict.gate_closed)
        facts = {"sha256": used, "state_sha256": tree.digests(state, 1)[0]}
        self._records.journal.write("used", round=round, epoch=membership.epoch, **facts)

    def write_status(self, epoch: SiteEpoch, round: int, paused: dict[str, Any] | None = None) -> None:
        """What `facade node status` shows; `paused`: how many members are there, and who is not."""
        facts = {
            "id": self._site.settings.id,
            "round": round,
            "rounds": epoch.plan.rounds,
            "epoch": epoch.membership.epoch,
            "policy": epoch.membership.policy,
            "paused": paused,
            "ledger": self._records.ledger.plain(),
            "refusals": dict(self._records.journal.refusals),
        } | self._records.progress.facts()
        sealed = seals.sealed_json(facts)
        self._shortages.outlast(lambda: store.replace(self._site.run / "status.json", sealed, store.PRIVATE))
