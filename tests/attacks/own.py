"""Attacks as a user would bring them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from facade import Attack
from facade.attacks.attack import Scene, scaled


@dataclass(frozen=True)
class Enormous(Attack):
    """Send weights that are finite and as large as numbers can be."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        return scene.messages | {name: scaled(part, 1e37) for name, part in scene.weights.items()}


@dataclass(frozen=True)
class Contrary(Attack):
    """Send every weight with its sign flipped, and half as large."""

    by: float = 0.5

    def sent(self, scene: Scene, memory: Any) -> Any:
        return scene.messages | {name: scaled(part, -self.by) for name, part in scene.weights.items()}
