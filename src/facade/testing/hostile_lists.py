"""Membership lists that an admin might sign to do harm, made of a good one: every one of them must be refused in a
sentence, with nothing opened and nothing large made in memory."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Sign = Callable[[bytes], dict[str, str]]
"""The signature of a pinned admin under the content of a list, as membership.json has it."""
Place = tuple[str | int, ...]
"""Keys and places that lead to a value of a list."""
Changes = dict[Place, Any]

PATHS = ("/dev/zero", "/etc/passwd", "../../x", "~/x", "C:\\x")
"""Places that a list might have a site open, besides those that a caller adds."""


class HostileList(NamedTuple):
    """What a membership.json holds, and what is wrong with it."""

    wrong: str
    content: bytes


def hostile_lists(valid: Mapping[str, Any], sign: Sign, places: Sequence[str] = ()) -> Iterator[HostileList]:
    """Hostile variants of a good list (the table `membership` of its file), well signed. `places` are further paths
    to name, such as a pipe that nobody writes to."""
    for wrong, changes in [
        *_named_paths([*PATHS, *places]),
        *_absurd_numbers(valid),
        *_absurd_texts(),
        *_wrong_kinds(valid),
    ]:
        yield HostileList(wrong, _signed(_changed(valid, changes), sign))
    for wrong, table in _wrong_members(valid):
        yield HostileList(wrong, _signed(table, sign))
    yield from _broken_files(valid, sign)


def excessive_lists(valid: Mapping[str, Any], sign: Sign) -> Iterator[tuple[str, HostileList]]:
    """(ceiling, list) of lists that are plain data, and yet demand more than a site's default ceilings."""
    wide: Changes = {("experiment", "model", "name"): "mlp", ("schema", "mean"): [0.5], ("schema", "std"): [0.5]}
    adam: Changes = {("experiment", "training", "optimiser"): "adam", ("experiment", "training", "momentum"): 0.0}
    waits: list[tuple[str, Changes]] = [
        ("seconds", {("limits", name): 86_401.0}) for name in ("deadline", "floor", "grace", "linger")
    ]
    demands: list[tuple[str, Changes]] = [
        ("rounds", {("experiment", "training", "rounds"): 10_001}),
        *waits,
        ("samples", {("experiment", "training", "steps"): 100_001, ("experiment", "training", "batch"): 10}),
        ("message_mb", wide | {("schema", "shape"): [1, 4096, 4096]}),
        ("memory_mb", wide | adam | {("schema", "shape"): [3_000_000]}),
        ("disk_mb", wide | {("schema", "shape"): [400_000], ("limits", "window"): 1_000}),
    ]
    for ceiling, changes in demands:
        yield ceiling, HostileList(ceiling, _signed(_changed(valid, changes), sign))


def _named_paths(paths: Sequence[str]) -> Iterator[tuple[str, Changes]]:
    for key, name in (("root", "elsewhere"), ("path", "ward.npz")):
        yield f"data.{key} = {name}", {("experiment", "data", key): name}
    edges: Changes = {("experiment", "topology", "name"): "file", ("experiment", "topology", "file"): "edges.txt"}
    yield "edges from a file", edges
    yield "edges from no file", {("experiment", "topology", "name"): "file"}
    names = [
        ("data", "source"), ("data", "skew"), ("data", "partition"), ("model", "name"), ("model", "head"),
        ("algorithm", "name"), ("topology", "name"), ("topology", "edges"), ("guard", "rule"), ("attack", "kind"),
        ("runtime", "device"), ("data", "clusters"),
    ]  # fmt: skip
    for path in paths:
        topology: Changes = {("experiment", "topology", "name"): "file", ("experiment", "topology", "file"): path}
        yield f"edges from {path}", topology
        yield f"an unused file {path}", {("experiment", "topology", "file"): path}
        for source, key in (("npz", "path"), ("folder", "path"), ("cifar10", "root"), ("digits", "root")):
            yield f"{source} from {path}", {("experiment", "data", "source"): source, ("experiment", "data", key): path}
        for section, key in names:
            yield f"{section}.{key} = {path}", {("experiment", section, key): path}


def _absurd_numbers(valid: Mapping[str, Any]) -> Iterator[tuple[str, Changes]]:
    for path, number in _leaves(valid):
        if isinstance(number, int | float) and not isinstance(number, bool):
            where = ".".join(map(str, path))
            for absurd in (1e300, float("nan"), float("-inf"), 2**64, "1000000000"):
                yield f"{where} = {absurd!r}", {path: absurd}
    for path, large in (
        (("experiment", "training", "rounds"), 10**9),
        (("experiment", "training", "steps"), 10**9),
        (("experiment", "training", "batch"), 10**9),
        (("experiment", "algorithm", "heads"), 10**6),
        (("experiment", "topology", "degree"), 10**9),
        (("limits", "window"), 10**9),
        (("schema", "shape"), [10**6, 10**6, 10**6]),
        (("schema", "shape"), [4096, 4096, 4096]),
        (("founding_size",), 10**9),
        (("first_round",), 10**12),
    ):
        yield f"{'.'.join(path)} = {large}", {path: large}


def _absurd_texts() -> Iterator[tuple[str, Changes]]:
    ids = [
        "zz/../../x",
        "../a",
        "..",
        "a\x00",
        "a\nb",
        "\x1b[2J",
        "A",
        "",
        "a b",
        "a" * 33,
        "a" * 300_000,
        "\u202ea",
        "é",
    ]
    addresses = ["/etc/passwd:1", "unix:/tmp/x", "h:0", "h:99999", "h\n:1", "h" * 300 + ":1", "", "h", "http://h:1"]
    for id in ids:
        yield f"the id {id[:20]!r}", {("members", 0, "id"): id}
    for address in addresses:
        yield f"the address {address[:20]!r}", {("members", 0, "address"): address}
    for key in ("federation", "policy"):
        yield f"a huge {key}", {(key,): "x" * 3_000_000}
        yield f"a {key} that clears the screen", {(key,): "\x1b[2J"}
    yield "a lone surrogate", {("federation",): "\ud800"}
    for clusters in ("9" * 5_000, ":".join(["1"] * 5_000), "3:", "-1", "1e9", ""):
        yield f"clusters {clusters[:20]}", {("experiment", "data", "clusters"): clusters}
    for edges in ("0-" + "9" * 5_000, "0-1 " * 100_000, "0-1\n1-2", "٠-١"):
        yield f"edges {edges[:20]!r}", {("experiment", "topology", "edges"): edges}
    for certificate in ("", "x" * 9_000, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "\x00"):
        yield f"the certificate {certificate[:20]!r}", {("members", 0, "certificate"): certificate}
    for date in ("tomorrow", "2027-13-45", "9999999-01-01", "2027-03-31\n"):
        yield f"expires = {date!r}", {("expires",): date}
    yield "an override", {("experiment", "override"): {"facade": {"training": {"rounds": "1000000000"}}}}
    yield "code of its own", {("experiment", "model", "name"): "os:system"}


def _wrong_kinds(valid: Mapping[str, Any]) -> Iterator[tuple[str, Changes]]:
    tables: list[tuple[str, ...]] = [(key,) for key in valid] + [("experiment", key) for key in valid["experiment"]]
    wrongs: list[Any] = [None, [], {"x": {"y": "z"}}, True]
    for path in tables:
        for wrong in wrongs:
            yield f"{'.'.join(path)} = {wrong}", {path: wrong}
    for place, value in _leaves(valid["experiment"]):
        if isinstance(value, str):
            yield f"experiment.{'.'.join(map(str, place))} = [0.5]", {("experiment", *place): [0.5]}
    for required in (0, 2**31, 65, -1, "2"):
        yield f"required = {required!r}", {("required",): required}
    yield "an unknown key", {("extra",): 1}
    yield "an unknown key of the experiment", {("experiment", "training", "extra"): 1}
    yield "a key that does not show", {("experiment", "training", "a\x07"): 1}
    yield "a huge key", {("experiment", "training", "k" * 100_000): 1}
    yield "very many keys", {("experiment", "training"): {f"k{i}": i for i in range(50_000)}}
    yield "very many attackers", {("experiment", "attack"): {"kind": "none", "nodes": [1] * 100_000, "start": 0}}
    yield "very many classes", {("schema", "classes"): [str(i) for i in range(100_000)]}


def _wrong_members(valid: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    members, admins = valid["members"], valid["admins"]
    yield "nobody", {**valid, "members": []}
    yield "one member", {**valid, "members": members[:1]}
    yield "a member twice", {**valid, "members": [members[0], *members]}
    yield "members in another order", {**valid, "members": members[::-1]}
    yield "very many members", {**valid, "members": [{**members[0], "certificate": ""}] * 5_000}
    stolen = {**members[0], "certificate": members[1]["certificate"]}
    yield "another's certificate", {**valid, "members": [stolen, *members[1:]]}
    yield (
        "two certificates in one",
        {
            **valid,
            "members": [{**members[0], "certificate": 2 * members[0]["certificate"]}, *members[1:]],
        },
    )
    yield "an admin twice", {**valid, "admins": admins * 2}
    yield "very many admins", {**valid, "admins": admins + [f"{i:064x}" for i in range(1_000)]}
    yield "no admin", {**valid, "admins": []}
    yield "a short admin", {**valid, "admins": [*admins, "5f"]}
    nested: Any = "x"
    for _ in range(200):
        nested = [nested]
    yield "lists inside each other", {**valid, "experiment": {**valid["experiment"], "data": {"groups": nested}}}


def _broken_files(valid: Mapping[str, Any], sign: Sign) -> Iterator[HostileList]:
    good = _signed(valid, sign)
    written = json.loads(good)
    yield HostileList("nothing", b"")
    yield HostileList("half a list", good[: len(good) // 2])
    yield HostileList("a byte that is no text", good[:40] + b"\xff" + good[40:])
    yield HostileList("UTF-16", good.decode().encode("utf-16"))
    others: list[Any] = [None, [], 0, "x", {}, {"membership": valid}, {**written, "more": 1}]
    for other in others:
        yield HostileList(f"not a list: {str(other)[:20]}", json.dumps(other).encode())
    many = written["signatures"] * 9_999
    unsigned: list[Any] = [None, {}, "x", [None], ["x"], [{}], [{"admin": 1, "signature": 2}], many]
    for signatures in unsigned:
        yield HostileList(
            f"signatures {str(signatures)[:20]}", json.dumps({**written, "signatures": signatures}).encode()
        )
    yield HostileList("deep lists", b"[" * 1_000_000)
    yield HostileList("deep tables", b'{"membership":' * 100_000)
    epoch = f'"epoch": {valid["epoch"]}'.encode()
    yield HostileList("a key twice", good.replace(epoch, epoch + b", " + epoch, 1))
    yield HostileList("a very long number", good.replace(epoch, b'"epoch": ' + b"9" * 100_000, 1))
    yield HostileList("a number that is none", good.replace(epoch, b'"epoch": 1e999', 1))
    yield HostileList("a huge file", good + b" " * (5 << 20))


def _leaves(value: Any, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """(path, value) of all that is no table and no list."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*path, place))
    else:
        yield path, value


def _changed(valid: Mapping[str, Any], changes: Mapping[Place, Any]) -> dict[str, Any]:
    """The list with other values at some places."""
    table: dict[str, Any] = copy.deepcopy(dict(valid))
    for path, value in changes.items():
        part: Any = table
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value
    return table


def _signed(table: Mapping[str, Any], sign: Sign) -> bytes:
    """The content of a membership.json, signed as it stands."""
    content = json.dumps(table, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({"membership": table, "signatures": [sign(content)]}).encode()
