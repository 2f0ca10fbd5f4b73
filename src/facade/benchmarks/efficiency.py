"""How close a round on CIFAR-10 shapes comes to its bare arithmetic, and what a full run takes."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from facade.benchmarks.bare import BareLoop
from facade.benchmarks.evaluation import evaluation
from facade.benchmarks.rounds import CIFAR, Rounds, alternate, federation, images, prepared, quartiles, seconds
from facade.learning import models
from facade.learning.executor import in_chunks
from facade.learning.machine import cores

NODES, STEPS, BATCH = 32, 10, 8
RUN_ROUNDS, RUN_EVALUATIONS, RUN_TESTS = 1200, 15, 10_000
ARTEFACT_MINUTES, ARTEFACT_BARE = 246, 1430
"""The published artefact's time for the same run on two cores whose bare loops gave so many
training samples a second."""


def _batches() -> tuple[torch.Tensor, torch.Tensor]:
    drawn = images(CIFAR, 40 * BATCH)
    return drawn.x.float().div_(255).view(40, BATCH, *CIFAR), drawn.y.view(40, BATCH)


def _module() -> torch.nn.Module:
    return models.gn_lenet(CIFAR, 10)


def bare_rate(threads: int, layout: torch.memory_format, nodes: int = NODES) -> float:
    """Training samples per second of the bare loop."""
    loop, (x, y) = BareLoop(_module(), threads, layout), _batches()
    loop.train(x, y, threads, 1)
    return nodes * STEPS * BATCH / seconds(lambda: loop.train(x, y, nodes, STEPS))


def _process(queue: Any, start: Any) -> None:
    loop, (x, y) = BareLoop(_module(), 1), _batches()
    loop.train(x, y, 1, 1)
    start.wait()
    queue.put(16 * STEPS * BATCH / seconds(lambda: loop.train(x, y, 16, STEPS)))


def process_rate() -> float:
    """The same with one process per core."""
    context = multiprocessing.get_context("spawn")
    queue, start = context.Queue(), context.Barrier(cores())
    workers = [context.Process(target=_process, args=(queue, start)) for _ in range(cores())]
    for worker in workers:
        worker.start()
    rate = sum(queue.get() for _ in workers)
    for worker in workers:
        worker.join()
    return float(rate)


def bare_loops() -> dict[str, Any]:
    """The bare loop against its alternatives: it must itself be near the best of them."""
    variants: dict[str, Callable[[], float]] = {
        "channels_last": lambda: bare_rate(cores(), torch.channels_last),
        "default_layout": lambda: bare_rate(cores(), torch.contiguous_format),
        "process_per_core": process_rate,
    }
    turns = [{name: rate() for name, rate in variants.items()} for _ in range(4)]
    rates = {name: float(np.median([turn[name] for turn in turns])) for name in variants}
    return {
        "samples_per_second": {name: round(rate) for name, rate in rates.items()},
        "bare_loop_over_best": round(rates["channels_last"] / max(rates.values()), 3),
    }


def efficiency(pairs: int = 12, precision: str = "fp32") -> dict[str, Any]:
    """Bare time / our time of EL and FACADE rounds, in alternating slices of at least 3 seconds."""
    data = federation(CIFAR, NODES, 400)
    loop, (x, y) = BareLoop(_module(), cores()), _batches()
    scored = list(in_chunks(images(CIFAR, STEPS * BATCH).x.float().div_(255)))
    results: dict[str, Any] = {}
    algorithms: dict[str, dict[str, Any]] = {"el": {"name": "el"}, "facade": {"name": "facade", "heads": 2}}
    for name, algorithm in algorithms.items():
        game = Rounds(prepared(data, "gn-lenet", algorithm, f"runtime.precision={precision}"))

        def bare(scores: bool = name == "facade") -> None:
            loop.train(x, y, NODES, STEPS)
            if scores:
                loop.forward(scored, NODES, heads=2)

        results[name] = alternate(game, bare, pairs)
    return results


def _whole_evaluation(measured: dict[str, Any]) -> dict[str, Any]:
    """The same ratios, with the seconds of an evaluation of all nodes on the whole test set."""
    images_of_run = NODES * RUN_TESTS
    seconds_of_run = {
        "evaluation_seconds": round(images_of_run * measured["milliseconds_per_sample"] / 1e3, 1),
        "bare_seconds": round(images_of_run * measured["bare_milliseconds_per_sample"] / 1e3, 1),
    }
    return {name: measured[name] for name in ("median", "q1", "q3")} | seconds_of_run


def full_run(rounds: dict[str, Any], evaluated: dict[str, Any], rate: float) -> dict[str, Any]:
    """The paper's CIFAR-10 run, from measured round and evaluation times."""
    mine = RUN_ROUNDS * rounds["facade"]["round_seconds"] + RUN_EVALUATIONS * evaluated["evaluation_seconds"]
    bare = RUN_ROUNDS * rounds["facade"]["bare_seconds"] + RUN_EVALUATIONS * evaluated["bare_seconds"]
    scaled = mine / 60 * rate / ARTEFACT_BARE
    return {
        "minutes": round(mine / 60, 1),
        "bare_minutes": round(bare / 60, 1),
        "bare_over_ours": round(bare / mine, 3),
        "minutes_at_1430_bare_samples_per_second": round(scaled, 1),
        "times_faster_than_the_artefact": round(ARTEFACT_MINUTES / scaled, 2),
    }


def memory() -> dict[str, Any]:
    """Peak memory of the 32-node CIFAR-10 run and the time to its first round, in a fresh process."""
    code = (
        "import time; start = time.perf_counter()\n"
        "from facade.benchmarks import efficiency; efficiency.print_memory(start)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def print_memory(started: float) -> None:
    """What `memory` reports, measured on this process."""
    import resource
    import time

    data = federation(CIFAR, NODES, 1560, RUN_TESTS)
    game = Rounds(prepared(data, "gn-lenet", {"name": "facade", "heads": 2}))
    first = time.perf_counter() - started
    game.advance(2)
    learner, state = game.setup.learner, game.state
    learner.examine(game.setup.algorithm.model(state), [data.tests[0][:1024]], np.zeros(NODES, np.int64))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak_rss_mb": round(peak / 1e6), "seconds_to_the_end_of_training_round_1": round(first, 1)}))


def run(quick: bool) -> dict[str, Any]:
    """Everything about CIFAR-10 shapes."""
    loops = bare_loops()
    rounds = efficiency(2 if quick else 12)
    evaluated = _whole_evaluation(evaluation("gn-lenet", 2 if quick else 6))
    rate = loops["samples_per_second"]["process_per_core"]
    return {
        "bare_loops": loops,
        "efficiency": rounds,
        "evaluation": evaluated,
        "full_run": full_run(rounds, evaluated, rate),
        "memory": memory(),
        "bf16_over_fp32": _bf16(),
    }


def _bf16() -> dict[str, float] | str:
    from facade.learning.machine import has_bf16_instructions

    if not has_bf16_instructions():
        return "not measured: this CPU has no bfloat16 instructions"
    data = federation(CIFAR, NODES, 400)
    games = [Rounds(prepared(data, "gn-lenet", {"name": "el"}, f"runtime.precision={p}")) for p in ("fp32", "bf16")]
    return quartiles([seconds(lambda: games[0].advance(2)) / seconds(lambda: games[1].advance(2)) for _ in range(6)])
