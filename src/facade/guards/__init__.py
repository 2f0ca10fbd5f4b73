"""Rules by which nodes use what they heard, by name. To add one: a file beside this one and a row in GUARDS."""

from __future__ import annotations

from facade.guards.balance import Balance
from facade.guards.clip import Clip
from facade.guards.fair import Fair
from facade.guards.guard import Guard
from facade.guards.krum import Krum
from facade.guards.median import Median
from facade.guards.nearest import Nearest
from facade.guards.own_data import OwnData
from facade.guards.trimmed import Trimmed

GUARDS: dict[str, type[Guard]] = {
    "fair": Fair,
    "balance": Balance,
    "own-data": OwnData,
    "clip": Clip,
    "median": Median,
    "trimmed": Trimmed,
    "krum": Krum,
    "nearest": Nearest,
}
