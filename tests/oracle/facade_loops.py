"""FACADE, node by node, in plain loops: as published, and with heads that are seeded."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from facade.core import seeds
from oracle.loops import Model, Moments, Node, World, average, core_of, head_of

AVERAGING, STEPS = 3, 80


@dataclass
class Heads:
    """FACADE's fields, and what its rules were applied to."""

    heads: int
    warmup: int
    scoring: str = "shared"
    own_head: str = "if-chosen"
    split: str = "head"
    seeded: bool = False
    kept: int = 0
    """How often a node heard of nobody who chose a head."""
    scored: int = 0
    ties: int = 0


def facade(world: World, fields: Heads) -> Moments:
    nodes = [_first(world, fields, i) for i in range(world.n)]
    moments = [nodes]
    for t in range(world.rounds):
        stage = _stage(world, fields, t)
        if stage is not None and stage < fields.heads:
            nodes = _seeding_round(world, fields, t, nodes, stage)
            moments.append(nodes)
            continue
        warm = t < fields.warmup
        if stage == fields.heads:
            nodes_before, nodes = nodes, [_sown(world, fields, t, i, node, stage) for i, node in enumerate(nodes)]
        else:
            nodes_before = nodes
        trained = []
        for i, node in enumerate(nodes):
            choice = _choice(world, fields, t, i, node)
            whole = world.trained(node["core"] | node["heads"][choice], "train", t, i, world.steps)
            core, head = _cut(fields, whole)
            heads = [copy.copy(head) if warm or j == choice else node["heads"][j] for j in range(fields.heads)]
            trained.append({**node, "core": core, "heads": heads, "choice": choice})
        nodes = [
            _mixed(fields, trained, i, world.arrived(t, i, world.neighbours(t, i)), warm)
            if world.online(t, i)
            else nodes_before[i]
            for i in range(world.n)
        ]
        moments.append(nodes)
    warm = world.rounds - 1 < fields.warmup
    everyone = range(world.n)
    moments.append([_mixed(fields, nodes, i, [j for j in everyone if j != i], warm) for i in everyone])
    for moment in moments:
        for node in moment:
            node["model"] = node["core"] | node["heads"][node["choice"]]
    return moments


def _cut(fields: Heads, model: Model) -> tuple[Model, Model]:
    return (core_of(model), head_of(model)) if fields.split == "head" else ({}, model)


def _first(world: World, fields: Heads, node: int) -> Node:
    """Core and head 0 from draw 0, head j from draw j; equal heads where a warm-up keeps them so."""
    core, _ = _cut(fields, world.fresh_model(0, node))
    heads = [_cut(fields, world.fresh_model(0 if fields.warmup else j, node))[1] for j in range(fields.heads)]
    return {"core": core, "heads": heads, "choice": 0}


def _choice(world: World, fields: Heads, round: int, i: int, node: Node) -> int:
    if round < fields.warmup or fields.heads == 1:
        return 0
    luck = seeds.uniform(world.seed, "choice", round, np.array([i]), 1)[0, 0]
    if round == fields.warmup and fields.warmup > 0 and not fields.seeded:
        return int(luck * fields.heads)
    losses = []
    for j, head in enumerate(node["heads"]):
        purpose = "choose" if fields.scoring == "shared" else f"choose-{j}"
        losses.append(world.mean_loss(node["core"] | head, purpose, round, i))
    best = [j for j, loss in enumerate(losses) if loss == min(losses)]
    fields.scored += 1
    fields.ties += len(best) > 1
    return best[int(luck * len(best))]


def _mixed(fields: Heads, sent: list[Node], i: int, heard: list[int], warm: bool) -> Node:
    members = sorted([i, *heard])
    core = average([sent[j]["core"] for j in members])
    own = sent[i]
    if warm:
        head = average([sent[j]["heads"][sent[j]["choice"]] for j in members])
        return {**own, "core": core, "heads": [head] * fields.heads, "choice": own["choice"]}
    heads = []
    for h in range(fields.heads):
        chose = [sent[j]["heads"][h] for j in members if sent[j]["choice"] == h]
        if fields.own_head == "always" and own["choice"] != h:
            chose.append(own["heads"][h])
        fields.kept += not chose
        heads.append(average(chose) if chose else own["heads"][h])
    return {**own, "core": core, "heads": heads, "choice": own["choice"]}


def _stage(world: World, fields: Heads, round: int) -> int | None:
    """The seed that a round looks for: below 0 while cores are averaged, `heads` when all are found."""
    if not fields.seeded or round < fields.warmup:
        return None
    gossip = (math.ceil(math.log2(world.n)) if world.fresh else _diameter(world)) + 2
    return min((round - fields.warmup - AVERAGING) // gossip, fields.heads)


def _diameter(world: World) -> int:
    """The longest of the shortest ways on a fixed graph."""
    reached, rounds = [{i} for i in range(world.n)], 0
    while any(len(known) < world.n for known in reached):
        reached = [known.union(*(reached[j] for j in world.neighbours(0, i))) for i, known in enumerate(reached)]
        rounds += 1
    return rounds


def _seeding_round(world: World, fields: Heads, t: int, nodes: list[Node], stage: int) -> list[Node]:
    """Average without training, or pass on the best bid."""
    after = []
    ready = nodes if stage < 0 else [_sown(world, fields, t, i, node, stage) for i, node in enumerate(nodes)]
    for i in range(world.n):
        heard = world.arrived(t, i, world.neighbours(t, i))
        if not world.online(t, i):
            after.append(nodes[i])
        elif stage < 0:
            after.append(_mixed(fields, ready, i, heard, warm=True))
        else:
            bids = [ready[j]["bid"] for j in (i, *heard) if ready[j].get("bid") is not None]
            after.append({**ready[i], "bid": max(bids, key=lambda bid: (bid[0], -bid[1]))})
    return after


def _sown(world: World, fields: Heads, t: int, i: int, node: Node, stage: int) -> Node:
    """The node at a stage: it keeps the seed agreed on, then bids for the next; at last, seeds are heads."""
    at = node.get("stage", -1)
    if at >= stage:
        return node
    found, there = list(node.get("seeds", node["heads"])), set(node.get("found", ()))
    if at >= 0:
        found[at:] = [node["bid"][2]] * (fields.heads - at)
        there.add(at)
    node = {**node, "stage": stage, "seeds": found, "found": there}
    if stage == fields.heads:
        return {**node, "heads": [found[j] if j in there else old for j, old in enumerate(node["heads"])]}
    if "private" not in node:
        node["private"] = _private(world, fields, t, i, node)
        node["own"] = _loss_on_everything(world, i, node["core"] | node["private"])
    if stage == 0:
        score = float(seeds.uniform(world.seed, "priority", 0, np.array([i]), 1)[0, 0])
    else:
        score = min(_loss_on_everything(world, i, node["core"] | seed) for seed in found[:stage]) - node["own"]
    return {**node, "bid": (score, i, node["private"])}


def _loss_on_everything(world: World, i: int, model: Model) -> float:
    with torch.no_grad():
        return float(world.loss(model, *world.everything(i), i))


def _private(world: World, fields: Heads, t: int, i: int, node: Node) -> Model:
    """A head fitted to all rows of a node by gradient descent, the core frozen."""
    if fields.split == "all":
        return world.trained(node["heads"][0], "private", t, i, STEPS)
    x, y = world.everything(i)
    return _descended(world.features(node["core"], x), y, node["heads"][0], world.log_shares(i))


def _descended(z: torch.Tensor, y: torch.Tensor, head: Model, shares: torch.Tensor) -> Model:
    step = 2 / z.square().sum(1).mean()
    for _ in range(STEPS):
        weights = {name: w.clone().requires_grad_() for name, w in head.items()}
        logits = functional.linear(z, weights["head.weight"], weights["head.bias"])
        functional.cross_entropy(logits + shares, y).backward()
        head = {name: w.detach() - step * w.grad for name, w in weights.items()}
    return head
