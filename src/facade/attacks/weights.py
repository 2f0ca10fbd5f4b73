"""Attacks on weights, by nodes that know nothing but their own: flipped, scaled, random, old, or none at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from facade.attacks.attack import Attack, Scene, norm, scaled

BELOW_THE_LIMIT = 9.0
"""Peers refuse weights of more than 10 times the norm of their own."""


@dataclass(frozen=True)
class SignFlip(Attack):
    """Send the weights with their signs flipped."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        return scene.messages | {name: scaled(part, -1.0) for name, part in scene.weights.items()}


@dataclass(frozen=True)
class Scale(Attack):
    """Send the weights many times too large, within what peers accept."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        return scene.messages | {name: scaled(part, BELOW_THE_LIMIT) for name, part in scene.weights.items()}


@dataclass(frozen=True)
class Noise(Attack):
    """Send random numbers, within what peers accept."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        noisy = {}
        for name, part in scene.weights.items():
            drawn = scene.noise({name: part})[name]
            noisy[name] = scaled(drawn, BELOW_THE_LIMIT * norm(part) / norm(drawn).clamp(min=1e-30))
        return scene.messages | noisy


@dataclass(frozen=True)
class FinalOnly(Attack):
    """Be honest in all rounds, and ruin the final exchange."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        if not scene.final:
            return scene.messages
        return scene.messages | {name: scaled(part, -BELOW_THE_LIMIT) for name, part in scene.weights.items()}


@dataclass(frozen=True)
class Stale(Attack):
    """Send what one had when the attack began, again and again."""

    def begin(self, state: Any) -> Any:
        return state

    def remember(self, scene: Scene, memory: Any) -> Any:
        return scene.state

    def sent(self, scene: Scene, memory: Any) -> Any:
        return scene.algorithm.message(scene.turn, memory)


@dataclass(frozen=True)
class Silent(Attack):
    """Hear everything and send nothing."""

    silent = True
