"""Attacks by name, for experiments. To add one: a class in a file beside this one and a row in ATTACKS."""

from __future__ import annotations

from facade.attacks.adaptive import AdaptiveCore, AdaptiveHead
from facade.attacks.attack import Attack
from facade.attacks.heads import FalseHead, FalseSums, LyingBid
from facade.attacks.omniscient import InnerProduct, LittleIsEnough, Mimic
from facade.attacks.poisoned_data import Backdoor, LabelFlip
from facade.attacks.weights import FinalOnly, Noise, Scale, SignFlip, Silent, Stale

ATTACKS: dict[str, type[Attack]] = {
    "sign-flip": SignFlip,
    "scale": Scale,
    "noise": Noise,
    "alie": LittleIsEnough,
    "ipm": InnerProduct,
    "mimic": Mimic,
    "label-flip": LabelFlip,
    "backdoor": Backdoor,
    "false-head": FalseHead,
    "lying-bid": LyingBid,
    "false-sums": FalseSums,
    "final-only": FinalOnly,
    "silent": Silent,
    "stale": Stale,
    "adaptive-core": AdaptiveCore,
    "adaptive-head": AdaptiveHead,
}
