"""FACADE among nodes that look alike, node by node, in plain loops: the survey, heads of groups, and their trial."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from oracle import class_loops
from oracle.loops import Model, Moments, Node, World, average, core_of, head_of

SURE, CLEAR, ALONE, FEW, LEFT, WORTH = 2.5, 1.0, 1.25, 3.5, 0.25, 0.07


@dataclass
class Surveyed:
    """FACADE's fields, and which rules were applied."""

    heads: int
    auto: bool
    warmup: int = 0
    seen: set[str] = field(default_factory=set)


@dataclass
class Looks:
    """Of one node: what the untrained model sees of its rows, and how much they spread within classes."""

    z: Tensor
    y: list[int]
    weight: Tensor
    own: dict[int, tuple[float, Tensor]]
    """Per class that it has, how many rows, and their sum."""


Sums = dict[int, tuple[float, Tensor]]


def facade(world: World, fields: Surveyed) -> Moments:
    spread = math.ceil(math.log2(world.n)) + 2
    looks = [_looks(world, i) for i in range(world.n)]
    fresh = [world.fresh_model(0, i) for i in range(world.n)]
    nodes = [
        {"core": core_of(m), "heads": [head_of(m)] * fields.heads, "choice": 0, "over": None, "event": 0, "tried": 0,
         "by classes": False}
        for m in fresh
    ]  # fmt: skip
    moments = [nodes]
    for t in range(world.rounds):
        before = nodes
        sent = [_worked(world, fields, spread, t, i, node, looks[i]) for i, node in enumerate(nodes)]
        nodes = [
            _heard(world, fields, spread, t, i, sent, world.arrived(t, i, world.neighbours(t, i)))
            if world.online(t, i)
            else before[i]
            for i in range(world.n)
        ]
        moments.append(nodes)
    moments.append([_heard(world, fields, spread, world.rounds, i, nodes, _all_but(world, i)) for i in range(world.n)])
    for moment in moments:
        for node in moment:
            node["model"] = node["core"] | node["heads"][node["choice"]]
    return moments


def _all_but(world: World, i: int) -> list[int]:
    return [j for j in range(world.n) if j != i]


def _looks(world: World, i: int) -> Looks:
    x, labels = world.everything(i)
    init, world.init = world.init, "common"
    z, y = world.features(core_of(world.fresh_model(0, i)), x), labels.tolist()
    world.init = init
    classes = sorted(set(y))
    rows = {c: z[[k for k, label in enumerate(y) if label == c]] for c in classes}
    within = sum(((rows[c] - rows[c].mean(0)) ** 2).sum(0) for c in classes) / max(len(y) - len(classes), 1)
    own = {c: (float(len(rows[c])), rows[c].sum(0)) for c in classes}
    return Looks(z, y, 1 / (within / 2 + within.mean() / 2), own)


# What a round does


def _worked(world: World, fields: Surveyed, spread: int, t: int, i: int, node: Node, looks: Looks) -> Node:
    node = _advanced(world, fields, spread, t, i, dict(node), looks)
    node = _tried(world, fields, spread, t, i, node)
    several = node["over"] is not None and len(node["shares"]) > 1
    choosing = node["over"] is not None and t >= fields.warmup
    if choosing:
        node["choice"] = node["head"]
        if not node["clear"] and node["tried"] == 2 and several:
            losses = [world.mean_loss(node["core"] | node["heads"][j], "choose", t, i) for j in range(fields.heads)]
            node["choice"] = min((j for j in node["shares"]), key=lambda j: losses[j])
            fields.seen.add("chosen by loss")
    keeps_back = node["tried"] < 1 and (node["over"] is None or _on_trial(node))
    rows = world.federation.training.rows[i]
    world.federation.training.rows[i] = _divided(rows)[0] if keeps_back else rows
    shares = world.log_shares(i)
    whole = world.trained(node["core"] | node["heads"][node["choice"]], "train", t, i, world.steps)
    assert torch.equal(shares, world.log_shares(i))
    world.federation.training.rows[i] = rows
    head = head_of(whole)
    places = [j for j in range(fields.heads) if not choosing or j == node["choice"]]
    heads = [head if j in places else node["heads"][j] for j in range(fields.heads)]
    return {**node, "core": core_of(whole), "heads": heads}


def _divided(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on, and every fifth, which is kept back."""
    back = np.array([place % 5 == 4 for place in range(len(rows))])
    return rows[~back], rows[back]


def _heard(world: World, fields: Surveyed, spread: int, t: int, i: int, sent: list[Node], heard: list[int]) -> Node:
    own, members = sent[i], sorted([i, *heard])
    node = {**own, "core": average([sent[j]["core"] for j in members])}
    if own["over"] is not None:
        with_heads = [sent[j] for j in members if sent[j]["over"] is not None]
        if t < fields.warmup:
            node["heads"] = [average([m["heads"][m["choice"]] for m in with_heads])] * fields.heads
        else:
            node["heads"] = [
                average(chose) if (chose := [m["heads"][h] for m in with_heads if m["choice"] == h]) else old
                for h, old in enumerate(own["heads"])
            ]
        if own["tried"] < 2:
            node["heard"] = _steady([sent[j]["heard"] for j in members if sent[j]["over"] is not None], own["heard"],
                                    world.degree(t, i) + 1 if t < world.rounds else world.n)  # fmt: skip
        return node
    surveying = [sent[j] for j in members if sent[j]["over"] is None]
    wanted = world.degree(t, i) + 1
    if _seeks(spread, t):
        node["bid"] = max((m["bid"] for m in surveying), key=lambda bid: (bid[0], -bid[1]))
    else:
        node["average"] = _steady_sums([m["average"] for m in surveying], own["average"], wanted)
        node["heard"] = _steady([m["heard"] for m in surveying], own["heard"], wanted)
        if t == 0:
            node["heard"] = class_loops.overlap(set(own["average"]), [set(sent[j]["average"]) for j in heard])
    if len(members) - len(surveying) > len(surveying):
        fields.seen.add("late")
        node |= {"over": t, "head": node["choice"], "shares": {}, "clear": False}
    return node


def _steady(heard: list[list[float]], own: list[float], wanted: int) -> list[float]:
    return [(sum(h[k] for h in heard) + (wanted - len(heard)) * own[k]) / wanted for k in range(4)]


def _steady_sums(heard: list[Sums], own: Sums, wanted: int) -> Sums:
    return _scaled(_added([*heard, *[own] * (wanted - len(heard))]), 1 / wanted)


def _added(several: list[Sums]) -> Sums:
    total: Sums = {}
    for sums in several:
        for c, (count, z) in sums.items():
            before = total.get(c, (0.0, torch.zeros_like(z)))
            total[c] = (before[0] + count, before[1] + z)
    return total


def _scaled(sums: Sums, factor: float) -> Sums:
    return {c: (factor * count, factor * z) for c, (count, z) in sums.items()}


def _less(sums: Sums, other: Sums) -> Sums:
    return _added([sums, _scaled(other, -1.0)])


# The survey


def _seeks(spread: int, t: int) -> bool:
    return t >= spread and (t // spread) % 3 == 1


def _due(spread: int, t: int) -> int:
    """The count is the first event; each division has four."""
    if t < spread:
        return 1
    division, place = divmod(t - spread, 3 * spread)
    return 2 + 4 * division + [place >= spread, place >= 2 * spread, place >= 2 * spread + spread // 2].count(True)


def _advanced(world: World, fields: Surveyed, spread: int, t: int, i: int, node: Node, looks: Looks) -> Node:
    if node["over"] is None and node["event"] < _due(spread, t) - 1:
        fields.seen.add("lost")
        return node | {"over": t, "head": node["choice"], "shares": {}, "clear": False, "heard": [0.0] * 4}
    if node["over"] is None and node["event"] < _due(spread, t):
        event = node["event"]
        node["event"] += 1
        if event == 0:
            node |= {"average": looks.own, "heard": [0.0] * 4, "group": 0, "joined": False, "alone": set()}
        elif (event - 1) % 4 == 0:
            if event == 1:
                node["centres"] = [node["average"]]
                node["apart"] = class_loops.may_tell_apart(node["heard"], world.n)
            else:
                _conclude(world, fields, t, (event - 1) // 4, node, looks)
            score = _strange(looks, _others(world, node, looks, node["group"]))
            if node["apart"] and class_loops.bids(set(looks.own), _counts(node["centres"][node["group"]])):
                score += class_loops.BEFORE_LOOKS
            node["bid"] = (score, i, looks.own, node["group"])
        else:
            _join(world, i, node, looks) if (event - 1) % 4 == 1 else _refine(world, fields, i, node, looks)
    return node


def _others(world: World, node: Node, looks: Looks, group: int) -> Sums:
    whole = _scaled(node["centres"][group], world.n)
    return _less(whole, looks.own) if node["group"] == group and group not in node["alone"] else whole


def _join(world: World, i: int, node: Node, looks: Looks) -> None:
    _, origin, candidate, parent = node["bid"]
    asked = node["group"] == parent
    if _by_classes(node):
        nearer = bool(set(looks.own) & set(candidate))
    else:
        nearer = origin == i or _preference(looks, candidate, _others(world, node, looks, parent))[0] > 0
    node["joined"] = asked and nearer
    node["says"] = [float(node["joined"]), 0.0, float(asked and not nearer), 0.0]
    node["average"] = looks.own if node["joined"] else {}
    node["heard"] = node["says"]


def _refine(world: World, fields: Surveyed, i: int, node: Node, looks: Looks) -> None:
    _, origin, candidate, parent = node["bid"]
    joined, says = False, [0.0] * 4
    if node["group"] == parent:
        new, old = node["average"], _less(node["centres"][parent], node["average"])
        new, old = _scaled(new, world.n), _scaled(old, world.n)
        members = node["heard"][0 if node["joined"] else 2] * world.n
        left_out = (_less(new, looks.own), old) if node["joined"] else (new, _less(old, looks.own))
        if _by_classes(node):
            more = sure = class_loops.nearer(*map(_counts, (looks.own, new, old))) * SURE / class_loops.DISJOINT
        elif members >= FEW:
            more, sure = _preference(looks, *left_out)
        elif node["joined"] and origin != i:
            fields.seen.add("few")
            more, sure = _preference(looks, candidate, left_out[1])
        else:
            fields.seen.add("bidder of few" if node["joined"] else "few left")
            sure = max(_strange(looks, left_out[1] if node["joined"] else left_out[0]), 0.0)
            more = sure = sure if node["joined"] else -sure
        joined = more > 0
        says = [1.0, abs(sure), 0.0, 0.0] if joined else [0.0, 0.0, 1.0, abs(sure)]
    if joined != node["joined"]:
        fields.seen.add("changed its mind")
        node["average"] = _added([node["average"], looks.own]) if joined else _less(node["average"], looks.own)
    node["heard"] = [h + new - old for h, new, old in zip(node["heard"], says, node["says"], strict=True)]
    node["says"], node["joined"] = says, joined


def _conclude(world: World, fields: Surveyed, t: int, divisions: int, node: Node, looks: Looks) -> None:
    (new, sure_new, old, sure_old), parent = node["heard"], node["bid"][3]
    kept = min(new, old) * world.n > 0.5 and sure_new > SURE * new and sure_old > SURE * old
    fields.seen.add("divided" if kept else "not divided")
    if kept and _by_classes(node):
        fields.seen.add("divided by classes")
        node["by classes"] = True
    if kept:
        centres = list(node["centres"])
        centres[parent] = _less(centres[parent], node["average"])
        alone = set(node["alone"])
        alone |= ({len(centres)} if new * world.n < ALONE else set()) | ({parent} if old * world.n < ALONE else set())
        if node["joined"]:
            node["group"] = len(centres)
        node |= {"centres": [*centres, node["average"]], "alone": alone}
    groups = len(node["centres"])
    most = min(fields.heads - 1 if fields.auto else fields.heads, world.n - 1)
    enough = groups == fields.heads + 1 or groups - len(node["alone"]) >= fields.heads
    if not kept or enough or divisions >= most:
        _end(world, fields, t, node, looks)


def _end(world: World, fields: Surveyed, t: int, node: Node, looks: Looks) -> None:
    groups = sorted(range(len(node["centres"])), key=lambda group: (group in node["alone"], group))[: fields.heads]
    centres = [_others(world, node, looks, group) for group in groups]
    nearest = 0
    for head, centre in enumerate(centres):
        if _preference(looks, centre, centres[nearest])[0] > 0:
            nearest = head
    against = [_preference(looks, centres[nearest], other)[1] for other in centres]
    rows = [max(sum(count for count, _ in node["centres"][group].values()), 0.0) for group in groups]
    largest = rows.index(max(rows))
    node["clear"] = all(errors > CLEAR for head, errors in enumerate(against) if head != nearest)
    node["head"] = nearest if nearest != largest and against[largest] > CLEAR else largest
    others = sum(_counts(_others(world, node, looks, node["group"])).values())
    emptied = others < LEFT * sum(_counts(looks.own).values())
    if node["group"] in groups and (node["by classes"] or emptied):
        fields.seen.add("by classes" if node["by classes"] else "emptied")
        node |= {"head": groups.index(node["group"]), "clear": node["by classes"]}
    node |= {"over": t, "shares": {h: r / sum(rows) for h, r in enumerate(rows)}, "heard": [0.0] * 4, "mean": sum(
        sum(count for count, _ in centre.values()) for centre in node["centres"]
    )}  # fmt: skip


def _by_classes(node: Node) -> bool:
    return bool(node["bid"][0] >= class_loops.BEFORE_LOOKS / 2)


def _counts(sums: Sums) -> dict[int, float]:
    return {c: count for c, (count, _) in sums.items()}


# How samples look


def _mean(sums: Sums, c: int) -> tuple[float, Tensor] | None:
    count, z = sums.get(c, (0.0, torch.zeros(1)))
    return (count, z / count) if count > 0.5 else None


def _errors(terms: list[float]) -> float:
    squares = sum(term * term for term in terms)
    return sum(terms) / math.sqrt(squares) if squares > 0 else 0.0


def _preference(looks: Looks, here: Sums, there: Sums) -> tuple[float, float]:
    """How much nearer rows are to the means here, in sum and in standard errors."""
    terms = []
    for z, c in zip(looks.z, looks.y, strict=True):
        known = [_mean(sums, c) for sums in (here, there)]
        if None not in known:
            near, far = (float(((z - m) ** 2 * looks.weight).sum()) - len(z) / n for n, m in known)
            terms.append(far - near)
    return sum(terms), _errors(terms)


def _strange(looks: Looks, group: Sums) -> float:
    """Whether what is different in one half of the rows is different in the other."""
    half = {row: place % 2 for place, row in enumerate(sorted(range(len(looks.y)), key=lambda r: (looks.y[r], r)))}
    terms = []
    for one in (0, 1):
        for row in (row for row in half if half[row] == one):
            c = looks.y[row]
            others = [other for other in half if half[other] != one and looks.y[other] == c]
            if (known := _mean(group, c)) and others:
                count, mean = known
                shift = looks.z[others].mean(0) - mean
                terms.append(float(((looks.z[row] - mean) * shift * looks.weight).sum()) - len(mean) / count)
    return _errors(terms)


# The trial of heads


def _tried(world: World, fields: Surveyed, spread: int, t: int, i: int, node: Node) -> Node:
    if node["over"] is None:
        return node
    begun = max(node["over"], fields.warmup)
    several = _on_trial(node)
    if node["tried"] < 1 and t >= begun + 2 * spread:
        node["tried"] = 1
        if several:
            node["heard"] = [node["heard"][0] + _worth(world, i, node), *node["heard"][1:]]
    if node["tried"] < 2 and t >= begun + 3 * spread:
        node["tried"] = 2
        if several and node["heard"][0] < WORTH:
            fields.seen.add("given up")
            node |= {"heads": [_mean_head(node)] * fields.heads, "head": 0, "shares": {0: 1.0}}
        elif several:
            fields.seen.add("worth it")
    return node


def _on_trial(node: Node) -> bool:
    return len(node["shares"]) > 1 and not node["by classes"]


def _mean_head(node: Node) -> Model:
    heads = node["heads"]
    return {name: sum(share * heads[j][name] for j, share in node["shares"].items()) for name in heads[0]}


def _worth(world: World, i: int, node: Node) -> float:
    rows = world.federation.training.rows[i]
    x, y = world._rows(_divided(rows)[1])
    labels = world.federation.training.samples.y[torch.from_numpy(rows)].tolist()
    counts = torch.tensor([labels.count(c) + 0.5 for c in range(len(world.federation.classes))], dtype=torch.float64)
    loss = []
    for head in (node["heads"][node["head"]], _mean_head(node)):
        outputs = functional_call(world._module, node["core"] | head, (x,)) + (counts / counts.max()).log()
        loss.append(float(functional.cross_entropy(outputs, y)))
    weight = len(rows) / node["mean"] / node["shares"][node["head"]] / len(node["shares"])
    return (loss[1] - loss[0]) * weight
