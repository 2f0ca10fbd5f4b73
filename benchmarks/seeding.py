"""How often FACADE settles, plain and with farthest-first seeding, over many seeds on digits.

    python benchmarks/seeding.py --seeds 100 --out benchmarks/results/seeding.json

Each case is 32 digits nodes, the MLP, 120 rounds, warm-up 10. Runs go to one process per core; the
file is rewritten after every case, and finished cases are skipped on the next call.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

Case = tuple[str, int, tuple[str, ...]]
"""Clusters, heads, further settings."""

SETTLING: list[Case] = [("30:2", 2, ()), ("24:8", 2, ()), ("16:16", 2, ()), ("20:10:2", 3, ()), ("8:8:8:8", 4, ())]
TROUBLE: list[Case] = [(c, 2, ("network.loss=0.1", "network.offline=0.1")) for c in ("30:2", "16:16")]
TOO_MANY: list[Case] = [("30:2", 4, ()), ("16:16", 4, ()), ("20:10:2", 5, ())]
ALIKE: Case = ("32", 2, ())
BOTH = ("none", "farthest")


def cases() -> list[tuple[str, Case]]:
    """(seeding, or "el" for Epidemic Learning; clusters, heads, further settings)."""
    plain_and_seeded = [(seeding, case) for case in SETTLING + TROUBLE + TOO_MANY for seeding in BOTH]
    return [*plain_and_seeded, ("farthest", ALIKE), ("el", ALIKE)]


def one(job: tuple[str, Case, int]) -> dict[str, Any]:
    """One run: what its heads came to, and the accuracy of every cluster."""
    from facade import Experiment, run

    seeding, (clusters, heads, settings), seed = job
    algorithm = {"name": "facade", "heads": heads, "warmup": 10, "seeding": seeding}
    if seeding == "el":
        algorithm = {"name": "el"}
    experiment = Experiment.of(
        {
            "seed": seed,
            "data": {"source": "digits", "clusters": clusters},
            "algorithm": algorithm,
            "training": {"rounds": 120},
            "evaluation": {"every": 120},
            "runtime": {"threads": 1},
        },
        settings,
    )
    summary = run(experiment).summary
    kept = ("clusters", "settled", "separated", "fair_accuracy", "bytes_per_node")
    used = len(set(summary["choice"] or ()))
    return {"seed": seed, "heads_used": used} | {key: summary[key] for key in kept}


def main() -> None:
    """Run what is missing and print a line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    measured = json.loads(options.out.read_text()) if options.out.exists() else []
    complete = {
        (d["seeding"], d["clusters"], d["heads"], tuple(d["settings"]))
        for d in measured
        if len(d["runs"]) >= options.seeds
    }
    from facade.learning.machine import cores

    with ProcessPoolExecutor(cores()) as pool:
        for seeding, case in cases():
            if (seeding, *case) in complete:
                continue
            started = time.perf_counter()
            runs = list(pool.map(one, [(seeding, case, seed) for seed in range(1, options.seeds + 1)]))
            clusters, heads, settings = case
            measured.append(
                {"clusters": clusters, "heads": heads, "settings": settings, "seeding": seeding, "runs": runs}
            )
            options.out.write_text(json.dumps(measured) + "\n")
            settled, apart = (sum(bool(r[key]) for r in runs) for key in ("settled", "separated"))
            means = [100 * sum(r["clusters"][c] for r in runs) / len(runs) for c in range(len(runs[0]["clusters"]))]
            print(
                f"{clusters:>8} k={heads} {' '.join(settings) or '-':<38} {seeding:<9} settled {settled:>3}"
                f"  separated {apart:>3} of {len(runs)}  accuracy {' / '.join(f'{m:.1f}' for m in means)}"
                f"  ({time.perf_counter() - started:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
