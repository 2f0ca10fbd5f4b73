"""Whose messages the others did not use: by what each site says of each member, in its signed file or in its log."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST = 0.1
"""Of what a member sent, the share from which on it is worth a look."""
ABOVE = 3.0
"""How many times that of the median member it must be."""


@dataclass(frozen=True)
class Word:
    """What one site says of what one member sent it."""

    site: str
    member: str
    came: int
    """Messages that came."""
    unused: int
    """Those of them that were turned away, or of which the site's guard dropped something."""
    at_end: bool
    """Whether that of the final exchange was."""

    @property
    def share(self) -> float:
        """Of those that came, how many were not used."""
        return min(self.unused, self.came) / self.came


@dataclass(frozen=True)
class Suspect:
    """A member of whose messages the others used clearly less than of most members'."""

    id: str
    share: float
    """Of its messages, what was not used: on average over the sites that heard it, but for the one that used least;
    over all rounds or in the final exchange, whichever is more."""
    sites: int
    """Sites that did not use something of it."""
    at_end: bool
    """Whether the share is that of the final exchange."""


def unused_share(words: Iterable[Word]) -> float:
    """Of the messages that the words are about, the share that was not used; every word counts alike, for a site may
    claim any number."""
    shares = [word.share for word in words if word.came]
    return statistics.fmean(shares) if shares else 0.0


def suspects(words: Sequence[Word]) -> list[Suspect]:
    """Members whom several sites have reason to suspect, the worst first. What a single site says, be it true or
    false, makes nobody a suspect."""
    by_member: dict[str, list[Word]] = {}
    for word in words:
        if word.came:
            by_member.setdefault(word.member, []).append(word)
    members = [_judged(id, of_one) for id, of_one in by_member.items()]
    if not members:
        return []
    usual = statistics.median_low(member.share for member in members)
    above = [member for member in members if member.share >= max(LEAST, ABOVE * usual)]
    return sorted(above, key=lambda member: (-member.share, -member.sites, member.id))


def _judged(id: str, words: list[Word]) -> Suspect:
    over_all = _mean_but_the_highest(word.share for word in words)
    at_end = _mean_but_the_highest(float(word.at_end) for word in words)
    return Suspect(id, max(over_all, at_end), sum(word.unused > 0 for word in words), at_end > over_all)


def _mean_but_the_highest(values: Iterable[float]) -> float:
    *others, _ = sorted(values)
    return statistics.fmean(others) if others else 0.0
