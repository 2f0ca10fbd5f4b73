"""What one hostile member of eight can do to the other sites, and whether it is named afterwards.

    python benchmarks/hostile_member.py --seeds 5 --out benchmarks/results/hostile-member.json
    python benchmarks/hostile_member.py --innocent 30

Eight sites, each a process of its own, talk over mutual TLS on this machine: digits, six upright and two upside down,
FACADE that finds its groups itself, guard "fair", policy brisk, 60 rounds. Member n2, one of the six, attacks from the
first round on. Every attack is compared with the same run without one, and with training alone. In further cases it
begins when groups have been found, nobody is guarded, or the member is one of the two. The file is rewritten after
every case, and finished runs are skipped on the next call; a run takes 10 to 20 seconds on two cores. The second
command counts, in the simulator and without attackers, runs in which sites would suspect somebody.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from facade import Experiment, run
from facade.attacks.attack import Attack, Scene
from facade.core import tree
from facade.errors import FacadeError

MINORITY = (6, 7)
AVERAGED = ("model.name=cnn-bn", "model.local=[]")
"""A model with batch normalisation whose running statistics are averaged: a negative one would ruin everybody's."""
COSTS = {"majority": 0.02, "minority": 0.04, "alone": 0.01}
"""What an attack may take from the mean of each cluster, and any site from what it has alone."""


@dataclass(frozen=True)
class Case:
    """A kind of run."""

    name: str
    kind: str
    """Of the attack."""
    settings: tuple[str, ...] = ()
    hostile: int = 2
    """Which member attacks."""
    reference: str = "none"
    """The case without an attack that it is compared with."""
    bar: bool = True
    """Whether it counts for what eight sites must withstand; others are reported apart."""


CASES = [
    Case("none", "none"),
    *(Case(kind, kind) for kind in ("sign-flip", "final-only", "noise", "false-head", "lying-bid")),
    Case("none, averaged variances", "none", AVERAGED, reference="none, averaged variances"),
    Case(
        "negative variances",
        "hostile_member:NegativeVariances",
        AVERAGED,
        reference="none, averaged variances",
    ),
    *(
        Case(f"{kind} from round 45", kind, ("attack.start=45",), bar=False)
        for kind in ("sign-flip", "noise", "false-head")
    ),
    *(Case(f"{kind}, no guard", kind, ("guard.rule=none",), bar=False) for kind in ("sign-flip", "final-only")),
    *(Case(f"{kind}, in the minority", kind, hostile=6, bar=False) for kind in ("sign-flip", "final-only")),
]


@dataclass(frozen=True)
class NegativeVariances(Attack):
    """Send the model with its running variances negated: finite, and of the usual norm."""

    def sent(self, scene: Scene, memory: Any) -> Any:
        names = scene.turn.learner.variances
        flat = tree.flatten(scene.messages)
        changed = {path: -leaf if path.rpartition("/")[2] in names else leaf for path, leaf in flat.items()}
        return tree.unflatten(changed, scene.messages)


def experiment(case: Case, seed: int, rounds: int = 60) -> Experiment:
    """The run of eight sites."""
    attack = [] if case.kind == "none" else [f'attack.kind="{case.kind}"', f"attack.nodes=[{case.hostile}]"]
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
        [*attack, *case.settings],
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


def simulated(described: Experiment) -> dict[str, float]:
    """The accuracy of every node of a run in the simulator, by the id that its site would have."""
    import numpy as np

    from facade.analysis import metrics

    rows = [row for row in run(described).rows if row["kind"] == "final"]
    accuracy = metrics.accuracy(np.array([row["confusion"] for row in rows]))
    return {f"n{row['node']}": float(a) for row, a in zip(rows, accuracy, strict=True)}


def alone(case: Case, seed: int) -> dict[str, float]:
    """The accuracy of every site that trains without the others."""
    described = experiment(Case("alone", "none", case.settings), seed).model_dump()
    return simulated(Experiment.of(described | {"algorithm": {"name": "local"}, "guard": {"rule": "none"}}))


def one(case: Case, seed: int) -> dict[str, Any]:
    """One run over TLS."""
    from facade.peers import local_network
    from facade.peers.trust.membership import Limits

    facts: dict[str, Any] = {"attack": case.name, "seed": seed}
    with tempfile.TemporaryDirectory() as path:
        directory = Path(path) / "run"
        try:
            local_network.run(experiment(case, seed), directory, policy="brisk", limits=Limits(linger=10))
        except FacadeError as error:
            return facts | {"ended": str(error)}
        homes = sorted((directory / "sites").glob("n*"))
        return facts | {"ended": "", "alone": alone(case, seed)} | told(homes)


def means(accuracy: dict[str, float], hostile: int) -> tuple[float, float]:
    """Mean accuracy of honest sites of the majority, and of those of the minority."""
    honest = {number: accuracy[f"n{number}"] for number in range(8) if number != hostile}
    few = [value for number, value in honest.items() if number in MINORITY]
    many = [value for number, value in honest.items() if number not in MINORITY]
    return sum(many) / len(many), sum(few) / len(few)


def judged(case: Case, run: dict[str, Any], clean: dict[str, float]) -> dict[str, Any]:
    """How a run compares with the accuracies of the same one without an attack, and with training alone."""
    hostile = f"n{case.hostile}"
    now, was = means(run["accuracy"], case.hostile), means(clean, case.hostile)
    gain = min(run["accuracy"][id] - own for id, own in run["alone"].items() if id != hostile)
    first = {key: run[key][0] if run[key] else "" for key in ("suspects", "audit_suspects")}
    return {
        "majority": now[0],
        "minority": now[1],
        "majority_lost": was[0] - now[0],
        "minority_lost": was[1] - now[1],
        "worst_gain": gain,
        "within": was[0] - now[0] <= COSTS["majority"] and was[1] - now[1] <= COSTS["minority"],
        "gains": gain >= -COSTS["alone"],
        "named": all(id == hostile for id in first.values()),
        "innocent_first": any(id not in ("", hostile) for id in first.values()),
    }


def falsely_suspected(seed: int) -> list[str]:
    """Whom sites would suspect in a run without attackers in which every message comes, by what the simulator's rows
    say that guards dropped."""
    from facade.experiment.setup import planned
    from facade.peers.after.suspects import Word, suspects

    described = experiment(Case("none", "none"), seed)
    plan = planned(described)[1]
    came = Counter((site, member) for site in range(8) for member in range(8) if site != member)  # at the end
    for round in range(plan.rounds):
        graph = plan.graph(round)
        came.update(zip(graph.receiver.tolist(), graph.sender.tolist(), strict=True))
    unused: Counter[tuple[int, int]] = Counter()
    at_end = set()
    for row in run(described).rows:
        pairs = {(row["node"], member) for member in row.get("dropped", ()) if member >= 0}
        unused.update(pairs)
        at_end |= pairs if row["kind"] == "final" else set()
    words = [Word(f"n{s}", f"n{m}", count, unused[s, m], (s, m) in at_end) for (s, m), count in came.items()]
    return [suspect.id for suspect in suspects(words)]


def main() -> None:
    """Run what is missing, and print a line per run and one per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/hostile-member.json"))
    parser.add_argument("--innocent", type=int, help="only say how often innocents are suspected, from seed 101 on")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.innocent:
        named = {seed: found for seed in range(101, 101 + given.innocent) if (found := falsely_suspected(seed))}
        print(f"runs without attackers in which somebody is suspected: {len(named)} of {given.innocent}: {named}")
        return
    runs = json.loads(given.out.read_text())["runs"] if given.out.exists() else []
    known = {(run["attack"], run["seed"]): run for run in runs}
    cases = []
    for case in CASES:
        verdicts = []
        for seed in range(1, given.seeds + 1):
            if (case.name, seed) not in known:
                known[case.name, seed] = one(case, seed)
            run = known[case.name, seed]
            if run["ended"]:
                print(f"{case.name:>28} seed {seed}: {run['ended']}", flush=True)
            else:
                verdicts.append(judged(case, run, known[case.reference, seed]["accuracy"]))
                print(f"{case.name:>28} seed {seed}: {line([verdicts[-1]])}", flush=True)
        cases.append({"attack": case.name, "bar": case.bar, "runs": given.seeds, "ended": len(verdicts)})
        cases[-1] |= summary(verdicts)
        given.out.write_text(written(cases, list(known.values())))
        print(f"{case.name:>28} all {len(verdicts)}: {line(verdicts)}", flush=True)


def written(cases: list[dict[str, Any]], runs: list[dict[str, Any]]) -> str:
    """JSON with a line for every case and every run."""
    tables = {"cases": cases, "runs": runs}
    lists = (f'"{name}": [\n' + ",\n".join(map(json.dumps, each)) + "\n]" for name, each in tables.items())
    return "{\n" + ",\n".join(lists) + "\n}\n"


def summary(verdicts: list[dict[str, Any]]) -> dict[str, float]:
    """Of several runs: the means of accuracies, the worst of what was lost or gained, and how many were so."""
    if not verdicts:
        return {}
    means = {key: sum(v[key] for v in verdicts) / len(verdicts) for key in ("majority", "minority")}
    most = {key: max(v[key] for v in verdicts) for key in ("majority_lost", "minority_lost")}
    counts = {key: sum(v[key] for v in verdicts) for key in ("within", "gains", "named", "innocent_first")}
    return means | most | {"worst_gain": min(v["worst_gain"] for v in verdicts)} | counts


def line(verdicts: list[dict[str, Any]]) -> str:
    """Several runs in words."""
    if not verdicts:
        return "no run ended"
    s = {key: 100 * value for key, value in summary(verdicts).items()}
    counts = {key: int(s[key] / 100) for key in ("within", "gains", "named", "innocent_first")}
    return (
        f"{s['majority']:.1f} / {s['minority']:.1f}, lost at most {s['majority_lost']:.1f} / {s['minority_lost']:.1f},"
        f" least gain over alone {s['worst_gain']:+.1f}; within {counts['within']}, gaining {counts['gains']}, named"
        f" {counts['named']}, innocent first {counts['innocent_first']}"
    )


if __name__ == "__main__":
    main()
