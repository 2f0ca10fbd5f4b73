"""Many small nodes: node-rounds per second, memory, and the two executors against bare loops."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from facade.benchmarks.bare import BareLoop, batched_products
from facade.benchmarks.rounds import Rounds, pairwise, seconds
from facade.core import tree
from facade.experiment.config import Experiment
from facade.experiment.setup import set_up
from facade.learning.machine import cores

SIZES = (32, 100, 1_000, 10_000)


def scale(nodes: int) -> dict[str, Any]:
    """EL and FACADE over many digits nodes, each size in a fresh process."""
    code = f"from facade.benchmarks import scaling; scaling.print_scale({nodes})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def print_scale(nodes: int) -> None:
    """What `scale` reports, measured on this process."""
    import sklearn.datasets  # noqa: F401

    imported = _rss()
    results: dict[str, Any] = {}
    for name in ("el", "facade"):
        game = Rounds(set_up(_digits(nodes, name)))
        game.advance(1)
        rounds = max(2, 20_000 // nodes)
        game.setup.learner.stopwatch.lap()
        spent = seconds(lambda game=game, rounds=rounds: game.advance(rounds))  # type: ignore[misc]
        phases = game.setup.learner.stopwatch.lap()
        held = sum(leaf.numel() * leaf.element_size() for leaf in tree.flatten(game.state).values())
        data = game.setup.federation.training.samples.x.nbytes
        results[name] = {
            "node_rounds_per_second": round(nodes * rounds / spent),
            "microseconds_per_node_round": round(1e6 * spent / nodes / rounds, 1),
            "message_bytes": tree.row_bytes(game.outbox),
            "phases": {phase: round(s / spent, 4) for phase, s in phases.items()},
            "rss_over_states_and_data": round((_rss() - imported) / (held + data), 2),
            "states_and_data_mb": round((held + data) / 1e6, 1),
        }
        del game
    print(json.dumps(results))


def _digits(nodes: int, algorithm: str) -> Experiment:
    return Experiment.of(
        {
            "data": {"source": "digits", "clusters": f"{nodes - 2}:2", "partition": "sampled", "per_class": 4},
            "algorithm": {"name": algorithm, "warmup": 0, "seeding": "none"},
            "training": {"rounds": 10**6},
            "evaluation": {"every": 10**6},
        }
    )


def _rss() -> int:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


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
    experiment = _digits(nodes, "el").with_(f"model.name={model}")
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
