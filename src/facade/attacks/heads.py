"""Attacks on what FACADE adds: a head under a false number, a lie while nodes find out who is alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from facade.attacks.attack import Attack, Scene, norm, scaled
from facade.core import tree

HIGHEST = 1e6
"""A bid that no honest node makes."""


@dataclass(frozen=True)
class FalseHead(Attack):
    """Send one's head with its signs flipped under the number of another one; the core is honest."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        if "choice" not in scene.messages:
            return scene.messages
        other = (scene.messages["choice"] + 1) % scene.algorithm.heads_compared
        return scene.messages | {"head": scaled(scene.messages["head"], -1.0), "choice": other}


@dataclass(frozen=True)
class LyingBid(Attack):
    """While nodes agree on where heads start, make the highest bid, with random numbers for a head, and say random
    things of what is averaged with it; then be honest."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        bid = scene.messages.get("bid")
        if bid is None:
            return scene.messages
        drawn = scene.noise({"head": scene.messages["head"], "bid": bid})
        lie = {"score": torch.full_like(bid["score"], HIGHEST), "origin": torch.from_numpy(scene.turn.shard.nodes)}
        if "heard" in bid:
            lie["heard"] = 10 * drawn["bid"]["heard"]
        head = scaled(drawn["head"], norm(scene.messages["head"]) / norm(drawn["head"]).clamp(min=1e-30))
        seeking = heads_are_sought(scene)
        return scene.messages | {
            "head": tree.where(seeking, head, scene.messages["head"]),
            "bid": tree.where(seeking, bid | lie, bid),
        }


@dataclass(frozen=True)
class FalseSums(Attack):
    """While nodes find out who is alike, say of what they average what an honest node might say: nothing at all; then
    be honest. No guard can tell."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        nothing = tree.map(torch.zeros_like, scene.messages["head"])
        return scene.messages | {"head": tree.where(heads_are_sought(scene), nothing, scene.messages["head"])}


def heads_are_sought(scene: Scene) -> Tensor:
    """[S] nodes that do not choose among heads yet, but agree on where these start."""
    bid = scene.messages.get("bid")
    return torch.zeros_like(scene.bad) if bid is None else bid["origin"] >= -1
