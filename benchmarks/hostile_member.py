"""What one hostile member of eight can do to the other sites, and whether it is named afterwards.

    python benchmarks/hostile_member.py --seeds 5 --out benchmarks/results/hostile-member.json

Eight sites, each a process of its own, talk over mutual TLS on this machine: digits, six upright and two upside down,
FACADE that finds its groups itself, guard "fair", policy brisk, 60 rounds. Member n2, one of the six, attacks from the
first round on. Every attack is compared with the same run without one, and with training alone. The file is rewritten
after every run, and finished runs are skipped on the next call; a run takes about 20 seconds on two cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from facade import Experiment, run
from facade.attacks.attack import Attack, Scene
from facade.core import tree
from facade.errors import FacadeError

HOSTILE = 2
MINORITY = (6, 7)
PLAIN = ("none", "sign-flip", "final-only", "noise", "false-head", "lying-bid")
NEGATIVE = "hostile_member:NegativeVariances"
AVERAGED = ("model.name=cnn-bn", "model.local=[]")
"""A model with batch normalisation whose running statistics are averaged: a negative one would ruin everybody's."""
CASES: list[tuple[str, str, tuple[str, ...]]] = [
    *((kind, kind, ()) for kind in PLAIN),
    ("none, averaged variances", "none", AVERAGED),
    ("negative variances", NEGATIVE, AVERAGED),
]
"""Name, kind of attack, further settings."""
CLEAN = {name: CASES[6][0] if settings else "none" for name, _, settings in CASES}
"""The run without an attack that each is compared with."""
COSTS = {"majority": 0.02, "minority": 0.04, "alone": 0.01}
"""What an attack may take from the mean of each cluster, and any site from what it has alone."""


@dataclass(frozen=True)
class NegativeVariances(Attack):
    """Send the model with its running variances negated: finite, and of the usual norm."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        names = scene.turn.learner.variances
        flat = tree.flatten(scene.messages)
        changed = {path: -leaf if path.rpartition("/")[2] in names else leaf for path, leaf in flat.items()}
        return tree.unflatten(changed, scene.messages)


def experiment(seed: int, kind: str, settings: tuple[str, ...], rounds: int = 60) -> Experiment:
    """The run of eight sites."""
    attack = [] if kind == "none" else [f'attack.kind="{kind}"', f"attack.nodes=[{HOSTILE}]"]
    return Experiment.of(
        {
            "name": "hostile-member",
            "seed": seed,
            "data": {"source": "digits", "clusters": "6:2"},
            "algorithm": {"name": "facade", "seeding": "class-means", "heads": "auto"},
            "guard": {"rule": "fair"},
            "training": {"rounds": rounds, "lr": 0.1},
            "evaluation": {"every": rounds},
            "runtime": {"threads": 1},
        },
        [*attack, *settings],
    )


def told(homes: list[Path]) -> dict[str, Any]:
    """What sites' files and logs say when a run is over: accuracies of honest sites, whom they suspect, and whether
    their logs fit together."""
    from facade.peers.after.audit import audit
    from facade.peers.after.report import compare_sites

    report = compare_sites([home / "run" / "site.json" for home in homes], homes[0] / "membership.json")
    audited = audit([home / "run" / "log.jsonl" for home in homes], [homes[0] / "membership.json"])
    sites = report["sites"]
    return {
        "accuracy": {site["id"]: site["accuracy"] for site in sites},
        "gate_closed": sum(site["gate_closed"] for site in sites),
        "unused": {site["id"]: site["unused_by_others"] for site in sites},
        "heads": [site["choice"] for site in sites],
        "suspects": [suspect["id"] for suspect in report["suspects"]],
        "audit_suspects": [suspect.id for suspect in audited.suspects],
        "findings": len(audited.findings),
    }


def alone(seed: int, settings: tuple[str, ...], rounds: int = 60) -> dict[str, float]:
    """The accuracy of every site that trains without the others."""
    import numpy as np

    from facade.analysis import metrics

    described = experiment(seed, "none", settings, rounds).model_dump() | {"algorithm": {"name": "local"}}
    described["guard"] = {"rule": "none"}
    rows = [row for row in run(Experiment.of(described)).rows if row["kind"] == "final"]
    accuracy = metrics.accuracy(np.array([row["confusion"] for row in rows]))
    return {f"n{row['node']}": float(a) for row, a in zip(rows, accuracy, strict=True)}


def one(name: str, kind: str, settings: tuple[str, ...], seed: int) -> dict[str, Any]:
    """One run over TLS."""
    from facade.peers import local_network
    from facade.peers.trust.membership import Limits

    facts: dict[str, Any] = {"attack": name, "seed": seed}
    with tempfile.TemporaryDirectory() as path:
        try:
            local_network.run(
                experiment(seed, kind, settings), Path(path) / "run", policy="brisk", limits=Limits(linger=10)
            )
        except FacadeError as error:
            return facts | {"ended": str(error)}
        homes = sorted((Path(path) / "run" / "sites").glob("n*"))
        return facts | {"ended": "", "alone": alone(seed, settings)} | told(homes)


def means(run: dict[str, Any]) -> tuple[float, float]:
    """Mean accuracy of honest sites of the majority, and of those of the minority."""
    of = [run["accuracy"][f"n{i}"] for i in range(8) if i != HOSTILE and i not in MINORITY]
    few = [run["accuracy"][f"n{i}"] for i in MINORITY]
    return sum(of) / len(of), sum(few) / len(few)


def worst_gain(run: dict[str, Any]) -> float:
    """What the honest site that gains least has over training alone."""
    return min(run["accuracy"][id] - own for id, own in run["alone"].items() if id != f"n{HOSTILE}")


def judged(run: dict[str, Any], clean: dict[str, Any]) -> dict[str, Any]:
    """How a run with an attack compares with the same one without."""
    if run["ended"]:
        return {"all_ended": False}
    lost = [was - now for was, now in zip(means(clean), means(run), strict=True)]
    hostile = f"n{HOSTILE}"
    return {
        "all_ended": True,
        "majority_lost": lost[0],
        "minority_lost": lost[1],
        "worst_gain": worst_gain(run),
        "within": lost[0] <= COSTS["majority"] and lost[1] <= COSTS["minority"] and worst_gain(run) >= -COSTS["alone"],
        "first_in_report": run["suspects"][:1] == [hostile],
        "first_in_audit": run["audit_suspects"][:1] == [hostile],
        "innocent_first": any(list(run[key][:1]) not in ([], [hostile]) for key in ("suspects", "audit_suspects")),
    }


def main() -> None:
    """Run what is missing and print a line per run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/hostile-member.json"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    done = json.loads(given.out.read_text())["runs"] if given.out.exists() else []
    known = {(run["attack"], run["seed"]): run for run in done}
    for name, kind, settings in CASES:
        for seed in range(1, given.seeds + 1):
            if (name, seed) not in known:
                known[name, seed] = one(name, kind, settings, seed)
                given.out.write_text(json.dumps({"runs": list(known.values())}, indent=1) + "\n")
            print_run(known[name, seed], known[CLEAN[name], seed])


def print_run(run: dict[str, Any], clean: dict[str, Any]) -> None:
    """One line."""
    where = f"{run['attack']:>24} seed {run['seed']}"
    if run["ended"]:
        print(f"{where}: {run['ended']}", flush=True)
        return
    majority, minority = (100 * mean for mean in means(run))
    line = f"{where}: {majority:5.1f} / {minority:5.1f}, worst gain over alone {100 * worst_gain(run):+5.1f}"
    named = f"suspects {run['suspects']}, by the audit {run['audit_suspects']}"
    verdict = "" if run is clean else " ok" if judged(run, clean)["within"] else " NOT WITHIN"
    print(f"{line}; {named}{verdict}", flush=True)


if __name__ == "__main__":
    main()
