"""What a list may hold: plain data in bounded amounts, and nothing that could be opened. This is looked at before
anything of a list is used, whoever signed it and whenever it is to count."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

LARGEST_FILE = 4 << 20
"""Bytes of a membership.json."""
MOST_MEMBERS = 1024
MOST_ADMINS = 64
MOST_ITEMS = 128
"""Entries of any other list or table, and signatures."""
DEEPEST = 6
"""Tables and lists inside each other."""
LONGEST_TEXT = 256
"""Characters of a text, if it is none of LONGEST."""
_DAY = 86_400.0

LARGEST: dict[str, float] = {
    "epoch": 1_000_000,
    "first_round": 1_000_000,
    "founding_size": MOST_MEMBERS,
    "protocol": 1_000,
    "required": MOST_ADMINS,
    "limits.deadline": 7 * _DAY,
    "limits.floor": 7 * _DAY,
    "limits.grace": 7 * _DAY,
    "limits.linger": 7 * _DAY,
    "limits.chunk": 1 << 22,
    "limits.window": 1_000,
    "limits.quorum": 1,
    "schema.shape": 1 << 24,
    "schema.mean": 10**12,
    "schema.std": 10**12,
    "experiment.seed": 2**63 - 1,
    "experiment.data.per_class": 1_000_000,
    "experiment.data.alpha": 1_000_000,
    "experiment.data.shards_per_node": 10_000,
    "experiment.data.few_nodes": MOST_MEMBERS,
    "experiment.data.few_rows": 1_000_000,
    "experiment.data.groups": 1_000,
    "experiment.data.severity": 1_000,
    "experiment.data.validation": 1,
    "experiment.data.test_fraction": 1,
    "experiment.data.size": 4_096,
    "experiment.data.channels": 3,
    "experiment.topology.degree": MOST_MEMBERS,
    "experiment.network.loss": 1,
    "experiment.network.offline": 1,
    "experiment.attack.nodes": MOST_MEMBERS,
    "experiment.attack.start": 1_000_000,
    "experiment.training.rounds": 1_000_000,
    "experiment.training.steps": 1_000_000,
    "experiment.training.batch": 65_536,
    "experiment.training.lr": 1_000,
    "experiment.training.momentum": 1,
    "experiment.training.weight_decay": 1_000,
    "experiment.training.schedule_every": 1_000_000,
    "experiment.training.schedule_factor": 1_000,
    "experiment.evaluation.every": 1_000_000,
    "experiment.evaluation.images": 100_000_000,
    "experiment.runtime.threads": 1_024,
    "experiment.runtime.shards": MOST_MEMBERS,
    "experiment.algorithm.heads": 64,
    "experiment.algorithm.max_heads": 64,
    "experiment.algorithm.warmup": 1_000_000,
    "experiment.algorithm.core_steps": 1_000_000,
    "experiment.algorithm.a": 1_000_000,
    "experiment.algorithm.b": 1_000_000,
}
"""The largest value, signs apart, of every number that a list may say, by where it stands."""
LARGEST_OTHER = 1_000_000
"""That of a number at any other place, such as a field of an algorithm of the sites' own."""

LONGEST = {"members.certificate": 8_192, "members.next_certificate": 8_192, "experiment.topology.edges": 1 << 18}
"""Characters of texts that may be long."""
MOST_COLUMNS = 10_000
_LENGTHS = {
    "members": MOST_MEMBERS,
    "admins": MOST_ADMINS,
    "schema.classes": 1_000,
    "schema.mean": MOST_COLUMNS,
    "schema.std": MOST_COLUMNS,
    "schema.columns": MOST_COLUMNS,
    "schema.columns.categories": 1_000,
    "experiment.data.columns": MOST_COLUMNS,
    "experiment.data.columns.categories": 1_000,
}
_TABLES = ("data", "model", "algorithm", "topology", "training", "evaluation", "runtime")
ROOT = "data"
"""What a list says of where data lie: the default, which names no place. Sites know their own."""
_FORMS = {
    "experiment.data.clusters": (r"[0-9]{1,4}(:[0-9]{1,4})*", "nodes per cluster, such as '30:2'"),
    "experiment.topology.edges": (r"([0-9]{1,4}-[0-9]{1,4}( [0-9]{1,4}-[0-9]{1,4})*)?", "edges, such as '0-1 1-2'"),
    "experiment.runtime.device": (r"[a-z]{1,16}(:[0-9]{1,3})?", "a device, such as 'cpu' or 'cuda:0'"),
    "admins": (r"[0-9a-f]{64}", "a public key of 64 hexadecimal digits"),
    "members.signing_key": (r"[0-9a-f]{64}", "a public key of 64 hexadecimal digits"),
    "expires": (r"([0-9]{4}-[0-9]{2}-[0-9]{2})?", "a date, such as '2027-03-31'"),
}
"""Texts that have one form, where they stand: the form, and what it is in words."""


def plain_json(content: bytes) -> Any:
    """What a JSON text says; ValueError for one that is too long, says a key twice or has numbers that are none."""
    if len(content) > LARGEST_FILE:
        raise ValueError(f"it has {len(content):,} bytes or more; expected at most {LARGEST_FILE:,}")
    return json.loads(
        content.decode(), object_pairs_hook=_each_once, parse_int=_integer, parse_float=_number, parse_constant=_number
    )


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shown(twice)} stands there twice")
    return table


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"a number of {len(text)} digits is more than a list may say")
    return int(text)


def _number(text: str) -> float:
    number = float(text.replace("Infinity", "inf"))
    if not math.isfinite(number):
        raise ValueError(f"{shown(text)} is no finite number")
    return number


def check_list(written: Any) -> None:
    """ValueError, in one sentence, for a list that is more than plain, bounded data."""
    if not isinstance(written, dict):
        raise ValueError(f"a table is expected, not {shown(written)}")
    for path, value in _values(written, "", 0):
        if isinstance(value, str):
            _check_text(path, value)
        elif isinstance(value, int | float):  # true and false count as 1 and 0
            _check_number(path, value)
    _check_experiment(written.get("experiment"))


def _values(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """(path, value) of everything that is no table and no list; what stands in a list has the path of the list."""
    if depth > DEEPEST:
        raise ValueError(f"{path}: tables and lists lie deeper inside each other than {DEEPEST}")
    if isinstance(value, Mapping):
        if len(value) > MOST_ITEMS:
            raise ValueError(f"{path or 'the list'} has {len(value)} keys; expected at most {MOST_ITEMS}")
        for key, inner in value.items():
            if len(key) > 64 or not key.isprintable():
                raise ValueError(f"the key {shown(key)} is not possible; expected at most 64 characters that show")
            yield from _values(inner, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, list | tuple):
        if len(value) > (most := _LENGTHS.get(path, MOST_ITEMS)):
            raise ValueError(f"{path} has {len(value)} entries; expected at most {most}")
        for inner in value:
            yield from _values(inner, path, depth + 1)
    else:
        yield path, value


def _check_number(path: str, value: float) -> None:
    largest = LARGEST.get(path, LARGEST_OTHER)
    if path in _FORMS:
        raise ValueError(f"{path} = {value} is not possible; expected {_FORMS[path][1]}")
    if isinstance(value, bool):
        if path in LARGEST:
            raise ValueError(f"{path} = {str(value).lower()} is not possible; expected a number")
    elif not math.isfinite(value) or abs(value) > largest:
        raise ValueError(f"{path} = {value:g} is not possible in a list; expected at most {largest:,.15g}")


def _check_text(path: str, text: str) -> None:
    longest = LONGEST.get(path, LONGEST_TEXT)
    if len(text) > longest:
        raise ValueError(f"{path} has {len(text):,} characters; expected at most {longest:,}")
    pem = path in ("members.certificate", "members.next_certificate")
    if not (text.isascii() if pem else text.isprintable()):
        raise ValueError(f"{path} = {shown(text)} holds characters that do not show; write it without them")
    own_field = path.startswith("experiment.algorithm.") and path != "experiment.algorithm.name"
    if (path in LARGEST and text != "auto") or (own_field and _is_number(text)):
        raise ValueError(f"{path} = {shown(text)} is a text; expected a number")
    form, words = _FORMS.get(path, ("", ""))
    if form and not re.fullmatch(form, text):
        raise ValueError(f"{path} = {shown(text)} is not possible; expected {words}")
    in_experiment = path.startswith("experiment.") and path != "experiment.name"
    if in_experiment and (re.search(r"[/\\~]", text) or text.strip(".") == "" != text):
        raise ValueError(
            f"{path} = {shown(text)} looks like a path, and lists hold none; ask the federation's admin for one without"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_experiment(experiment: Any) -> None:
    """An experiment as a list carries it: resolved, so that nothing is left to read."""
    if not isinstance(experiment, Mapping):
        raise ValueError(f"experiment is {shown(experiment)}; expected a table")
    if "override" in experiment:
        raise ValueError("experiment.override is for experiment files; facade network build writes what comes of it")
    for name in dict.fromkeys([*_TABLES, *experiment.keys() - {"name", "seed"}]):
        if not isinstance(experiment.get(name), Mapping):
            raise ValueError(f"experiment.{name} is {shown(experiment.get(name))}; expected a table")
    data, topology, training = (experiment[name] for name in ("data", "topology", "training"))
    if topology.get("name") == "file" or topology.get("file"):
        raise ValueError(
            f"experiment.topology.file = {shown(topology.get('file'))} is a file to read, and lists hold none; facade"
            " network build puts its edges into the list"
        )
    for key, plain in (("root", ROOT), ("path", "")):
        if data.get(key, plain) != plain:
            raise ValueError(
                f"experiment.data.{key} = {shown(data[key])} is a path, and lists hold none; sites say in node.toml"
                " where their data are"
            )
    for path, value, kind in (
        ("data.source", data.get("source"), str),
        ("data.clusters", data.get("clusters"), str),
        ("training.rounds", training.get("rounds"), int),
    ):
        if not isinstance(value, kind):
            raise ValueError(f"experiment.{path} is {shown(value)}; expected a {'text' if kind is str else 'number'}")


def shown(value: Any) -> str:
    """A value as a sentence shows it: in one line, and not all of it where it is long. Of tables and lists, how many
    entries they have."""
    if isinstance(value, Mapping | list | tuple):
        return f"{'a table' if isinstance(value, Mapping) else 'a list'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}... ({len(text)} characters)"
