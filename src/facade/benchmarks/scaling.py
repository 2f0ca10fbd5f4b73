"""Many small nodes: node-rounds per second, memory, and the two executors against bare loops."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from facade.benchmarks.bare import BareLoop, batched_products
from facade.benchmarks.rounds import Rounds, in_a_fresh_process, memory, pairwise, seconds
from facade.core import tree
from facade.experiment.config import Experiment
from facade.experiment.setup import set_up
from facade.learning.machine import cores

SIZES = (32, 100, 1_000, 10_000, 100_000)


def scale(nodes: int) -> dict[str, Any]:
    """EL and FACADE over many digits nodes, each in a fresh process."""
    return {name: in_a_fresh_process(f"scaling.print_scale({nodes}, {name!r})") for name in ("el", "facade")}


def print_scale(nodes: int, algorithm: str) -> None:
    """What `scale` reports of an algorithm, measured on this process."""
    import sklearn.datasets  # noqa: F401

    imported, begun = memory("VmRSS"), time.perf_counter()
    setup = set_up(digits(nodes, algorithm))
    ready = time.perf_counter() - begun
    game = Rounds(setup)
    game.advance(1)
    rounds = max(2, 20_000 // nodes)
    setup.learner.stopwatch.lap()
    spent = seconds(lambda: game.advance(rounds))
    phases = setup.learner.stopwatch.lap()
    held = sum(leaf.numel() * leaf.element_size() for leaf in tree.flatten(game.state).values())
    held += setup.federation.training.samples.x.nbytes
    numbers = {
        "set_up_seconds": round(ready, 2),
        "node_rounds_per_second": round(nodes * rounds / spent),
        "microseconds_per_node_round": round(1e6 * spent / nodes / rounds, 1),
        "message_bytes": tree.row_bytes(game.outbox),
        "phases": {phase: round(s / spent, 4) for phase, s in phases.items()},
        "peak_over_states_and_data": round((memory("VmHWM") - imported) / held, 2),
        "rss_over_states_and_data": round((memory("VmRSS") - imported) / held, 2),
        "states_and_data_mb": round(held / 1e6, 1),
    }
    print(json.dumps(numbers))


def digits(nodes: int, algorithm: str) -> Experiment:
    """Small nodes: digits, four images per class and node."""
    return Experiment.of(
        {
            "data": {"source": "digits", "clusters": f"{nodes - 2}:2", "partition": "sampled", "per_class": 4},
            "algorithm": {"name": algorithm, "warmup": 0, "seeding": "none"},
            "training": {"rounds": 10**6},
            "evaluation": {"every": 10**6},
        }
    )


def executors(nodes: int = 1_000) -> dict[str, Any]:
    """The training phase alone of stacked and looped execution against two bare loops."""
    return {f"hidden_{width}": _executors(width, nodes) for width in (16, 64, 256)}


def perceptron(width: int) -> nn.Module:
    """A perceptron for digits with one hidden layer."""
    core = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU())
    return nn.Sequential(OrderedDict(core=core, head=nn.Linear(width, 10)))


class Narrow(nn.Sequential):
    """16 hidden units."""

    def __init__(self) -> None:
        super().__init__(OrderedDict(perceptron(16).named_children()))


class Wide(nn.Sequential):
    """256 hidden units."""

    def __init__(self) -> None:
        super().__init__(OrderedDict(perceptron(256).named_children()))


def _executors(width: int, nodes: int) -> dict[str, Any]:
    model = {16: f"{__name__}:Narrow", 64: "mlp", 256: f"{__name__}:Wide"}[width]
    experiment = digits(nodes, "el").with_(f"model.name={model}")
    setups = {name: set_up(experiment.with_(f"runtime.executor={name}")) for name in ("stacked", "looped")}
    block = setups["stacked"].learner.executor.block
    x, y = torch.rand(40, 8, 1, 8, 8), torch.randint(0, 10, (40, 8))
    loop = BareLoop(perceptron(width), cores())
    stacks = [[p.detach().unsqueeze(0).repeat(block, *[1] * p.dim()) for p in perceptron(width).parameters()]]
    stacks += [[p.clone() for p in stacks[0]] for _ in range(cores() - 1)]
    bx, by = torch.rand(block, 10, 8, 64), torch.randint(0, 10, (block, 10, 8))

    def bare_products() -> None:
        share = -(-nodes // block // cores())

        def work(weights: list[torch.Tensor]) -> None:
            for _ in range(share):
                batched_products(weights, bx, by, 0.01)

        list(loop.pool.map(work, stacks))

    fits = {name: _fit(setup) for name, setup in setups.items()}
    for work in (*fits.values(), bare_products):
        work()
    to_loop, stacked, bare = pairwise(fits["stacked"], lambda: loop.train(x, y, nodes, 10), 3)
    to_products, _, products = pairwise(fits["stacked"], bare_products, 5)
    looped = seconds(fits["looped"])
    times = {"stacked": stacked, "looped": looped, "bare_loop": bare, "bare_batched_products": products}
    return {
        "microseconds_per_node_round": {name: round(1e6 * s / nodes, 1) for name, s in times.items()},
        "stacked_over_bare_loop": to_loop["median"],
        "stacked_over_bare_products": to_products["median"],
        "block": block,
    }


def _fit(setup: Any) -> Any:
    from facade.data.samples import Samples

    (shard,) = setup.shards()
    state = setup.algorithm.init(shard)
    samples = Samples(shard.data, shard.seed, "train", 0, shard.learner.training.samples)
    return lambda: shard.learner.fit(state.model, state.memory, samples)


def run(quick: bool) -> dict[str, Any]:
    """Everything about small nodes."""
    sizes = SIZES[:3] if quick else SIZES
    scaled = {str(n): scale(n) for n in sizes}
    return {"scaling": scaled, "executors": executors(100 if quick else 1_000)}
