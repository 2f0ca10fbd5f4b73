"""Attacks that know the guard: every round attackers try how far they can go and still be used, and go that far."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from facade.attacks.attack import Attack, Scene, scaled
from facade.attacks.heads import heads_are_sought
from facade.attacks.weights import BELOW_THE_LIMIT
from facade.core import tree
from facade.core.messages import Deliveries, Inbox
from facade.core.turn import listed
from facade.guards.guarded import Guarded

HALVINGS = 5
"""How often the way between what is used and what is dropped is halved."""
FARTHEST = 1.0 + BELOW_THE_LIMIT
"""At 1 nothing of the weights is left, at 2 their signs are flipped."""


@dataclass(frozen=True)
class AdaptiveCore(Attack):
    """Turn the core, or the whole model, round as far as those who hear it still use it."""

    omniscient = True

    def sent(self, scene: Scene, memory: Any) -> Any:
        name = "core" if "core" in scene.messages else "model"
        honest = scene.messages[name]

        def crafted(far: Tensor) -> Any:
            return scene.messages | {name: scaled(honest, 1 - far)}

        return crafted(_farthest(scene, crafted, victims=None))


@dataclass(frozen=True)
class AdaptiveHead(Attack):
    """As soon as there are heads, send that of the smallest group, turned round as far as its users still take it."""

    omniscient = True

    def sent(self, scene: Scene, memory: Any) -> Any:
        choice = scene.messages.get("choice")
        if choice is None or heads_are_sought(scene).all():
            return scene.messages
        counts = torch.bincount(choice[~scene.bad])
        smallest = int(counts.masked_fill(counts == 0, len(choice) + 1).argmin())
        victims = torch.nonzero(~scene.bad & (choice == smallest)).flatten()
        theirs = tree.map(lambda leaf: leaf[victims[0]].expand_as(leaf), scene.messages["head"])

        def crafted(far: Tensor) -> Any:
            false = torch.full_like(choice, smallest)
            lie = scene.messages | {"head": scaled(theirs, 1 - far), "choice": false}
            return tree.where(heads_are_sought(scene), scene.messages, lie)

        return crafted(_farthest(scene, crafted, victims))


def _farthest(scene: Scene, crafted: Any, victims: Tensor | None) -> Tensor:
    """[S] how far each attacker can go: to the end where nobody is on guard. `victims`: rows of nodes that are to use
    it, whether they hear it this round or not; None: those that hear it."""
    near, far = (torch.full(scene.bad.shape, value) for value in (0.0, FARTHEST))
    if not isinstance(scene.algorithm, Guarded):
        return far
    inbox = _heard(scene, victims)
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        messages = tree.where(scene.bad, crafted(middle), scene.messages)
        dropped = scene.algorithm.dropped(scene.turn, scene.state, dataclasses.replace(inbox, pool=messages))
        used = ~dropped
        near, far = torch.where(used, middle, near), torch.where(used, far, middle)
    return near


def _heard(scene: Scene, victims: Tensor | None) -> Inbox:
    """What would be heard this round; of victims, by them alone, and from every attacker."""
    n, everyone = scene.turn.shard.n, torch.arange(scene.turn.shard.n)
    receiver, sender = listed(scene.turn.shard, scene.algorithm.wanted(scene.turn, scene.state))
    if victims is not None:
        theirs, bad = torch.isin(receiver, victims), torch.nonzero(scene.bad).flatten()
        receiver = torch.cat([receiver[theirs], victims.repeat_interleave(len(bad))])
        sender = torch.cat([sender[theirs], bad.repeat(len(victims))])
    keys = torch.unique(receiver * n + sender)
    return Inbox(scene.messages, everyone, everyone, Deliveries(keys // n, keys % n))
