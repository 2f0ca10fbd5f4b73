"""All attacks from outside and inside that a network of sites must withstand, one after the other, as one command.

    python benchmarks/attack_campaign.py --out benchmarks/results/attack-campaign.json
    python benchmarks/attack_campaign.py --draw

Kills, floods, silent members, parted networks, strangers, malformed messages, hostile lists and damaged files, against
real processes over mutual TLS on this machine. Every trial ends with what was tried, whether it held, and a figure; the
file is rewritten after each, and those that it has are skipped on the next call. Half an hour on two cores; leave the
machine alone meanwhile. The page docs/attacks.md is drawn from the file alone (--draw).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "attack-campaign.json"
PAGE = ROOT / "docs" / "attacks.md"
PLACES = 125
"""Bits that are changed in each of four directories."""
KILLED_RUNS = 20


@dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    tried: str
    held: bool
    figure: str


@dataclass(frozen=True)
class Trial:
    """One kind of attack."""

    name: str
    run: Callable[[], Outcome]


def kills() -> Outcome:
    """A peer of eight is killed ten times in each run."""
    passed, failed = _tests("tests/peers/test_faults.py", "-k", "killed_ten_times", "--kill-runs", str(KILLED_RUNS))
    tried = f"{KILLED_RUNS * 10} × kill -9 at random lines, {KILLED_RUNS} runs of 8 sites, patient"
    return Outcome(tried, not failed and passed == KILLED_RUNS, f"{passed} of {KILLED_RUNS} runs end bit-identical")


def simulator_kills() -> Outcome:
    """A simulated run is killed, and continued."""
    passed, failed = _tests("tests/results/test_resume.py", "-k", "killed_at_any_moment or killed_again")
    tried = "28 × kill -9 of a simulated run at random lines, half of them where files are written, and five in a row"
    return Outcome(tried, not failed and passed == 5, f"{passed} of {passed + failed} tests end bit-identical")


def strangers(hard: int | None) -> Outcome:
    """Silent connections, and a member that starts again meanwhile."""
    limit = () if hard is None else ("--hard", str(hard))
    found = _measured("flood.py", "strangers", "--seconds", "20", *limit)
    soft = "1,024 descriptors" + (", and no more to be had" if hard else ", raised where allowed")
    heard = found["heard_again"]
    held = found["exits"] == 0 and found["ratio"] < 2 and heard is not None and heard < 30
    figure = (
        f"{found['exits']} exits; 95 % of rounds within {found['ratio']:.2f} × those of a control; the restarted"
        f" member heard after {'-' if heard is None else f'{heard:.1f}'} s"
    )
    return Outcome(f"10,000 silent connections from another address to one of three sites with {soft}", held, figure)


def flooding_member(*options: str) -> Outcome:
    """A member calls as fast as it can."""
    found = _measured("flood.py", "member", "--seconds", "20", *options)
    held = found["exits"] == 0 and found["ratio"] < 2
    how = "for large replies over 4 connections" if options else "over 32 connections"
    return Outcome(
        f"a member calls another as fast as it can, 32 threads, {how}",
        held,
        f"{found['exits']} exits; 95 % of rounds within {found['ratio']:.2f} × those of a control",
    )


def dead_site(training: float, rounds: int = 40, after: int = 30) -> Outcome:
    """One of six is killed and started again later."""
    length = "--rounds-dead", str(rounds), "--rounds-after", str(after)
    found = _measured("silent_members.py", "dead-site", "--training", str(training), *length)
    others = found["others"].values()
    share = max(site["median_wait"] / site["median_round"] for site in others)
    misses = max(site["misses_until_heard"] for site in others)
    return Outcome(
        f"one of six sites is dead for {rounds} rounds of {training:g} s training",
        share <= 0.05 and misses <= 2,
        f"median extra wait after ten misses {share:.4f} × a round; missed {misses} times after its return",
    )


def faulty_links(kind: str, how: str, failing: float = 0.75, rounds: int = 30) -> Outcome:
    """Connections fail."""
    found = _measured("faulty_links.py", "--kind", kind, "--failing", str(failing), "--rounds", str(rounds))
    ended = sum(code == 0 for code in found["ends"].values())
    return Outcome(
        f"of the connections of eight sites, {failing:.0%} {how} after a while, {rounds} rounds, patient",
        ended == len(found["ends"]) and found["equal"],
        f"{found['faults']} faults; {ended} of 8 sites end, {'' if found['equal'] else 'not '}bit-identical",
    )


def three_down(*options: str) -> Outcome:
    """Half of the sites are down."""
    found = _measured("silent_members.py", "down", "--seconds", "60", "--degree", "2", *options)
    alone, played = sum(found["alone"].values()), max(found["rounds_meanwhile"].values())
    how = "stopped" if options else "killed"
    return Outcome(
        f"three of six sites are {how} for 60 s and come back",
        alone == 0 and set(found["ends"].values()) == {0},
        f"{alone} rounds played alone, at most {played} before the pause; all six end",
    )


def parted(sides: tuple[int, int]) -> Outcome:
    """Two parts that do not reach each other."""
    found = _measured("silent_members.py", "parted", "--sides", *map(str, sides), "--seconds", "30")
    played = list(found["rounds_meanwhile"].values())
    larger, smaller = played[: sides[0]], played[sides[0] :]
    most_paused = max([*smaller, *(larger if sides[0] == sides[1] else [])])
    goes_on = sides[0] == sides[1] or min(larger) > 10 * max(1, most_paused)
    return Outcome(
        f"six sites are parted into {sides[0]} and {sides[1]} for 30 s",
        goes_on and most_paused <= 3 and not sum(found["alone"].values()),
        f"rounds meanwhile: {min(larger)} to {max(larger)} and {min(smaller)} to {max(smaller)}; none alone",
    )


def tests_of(tried: str, *files: str) -> Outcome:
    """Attacks that the suite has as tests."""
    passed, failed = _tests(*files)
    return Outcome(tried, not failed and passed > 0, f"{passed} of {passed + failed} cases held")


def flips() -> Outcome:
    """One changed bit at a time."""
    sys.path.insert(0, str(ROOT / "tests"))
    from facade import run
    from facade.testing.flips import places, try_flips, use_finished_run, use_stopped_run
    from peers.flipped_sites import use_finished_site, use_site
    from peers.test_flips import stopped_and_finished_sites
    from results.conftest import tiny
    from runs import stopped

    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as base:
        stopped_site, finished_site = stopped_and_finished_sites(Path(base) / "sites")
        finished_run, stopped_run = Path(base) / "finished", Path(base) / "stopped"
        run(tiny(), finished_run)
        stopped(tiny(), stopped_run, 5)
        uses = [
            (finished_run, use_finished_run),
            (stopped_run, use_stopped_run),
            (stopped_site, use_site),
            (finished_site, use_finished_site),
        ]
        for seed, (directory, use) in enumerate(uses):
            for each in try_flips(directory, use, places(directory, PLACES, seed)):
                counts[each.outcome] = counts.get(each.outcome, 0) + 1
    wrong = counts.get("unnoticed", 0) + counts.get("crashed", 0)
    figure = f"{counts.get('noticed', 0)} noticed before use, {counts.get('harmless', 0)} change nothing that is read"
    return Outcome(
        f"{4 * PLACES} single bits changed in the files of a finished and a stopped run and site",
        wrong == 0,
        f"{figure}, {wrong} neither",
    )


TRIALS = [
    Trial("kills", kills),
    Trial("kills of a simulated run", simulator_kills),
    Trial("strangers", lambda: strangers(None)),
    Trial("strangers, hard limit", lambda: strangers(1024)),
    Trial("flooding member", flooding_member),
    Trial("flooding member, few connections", lambda: flooding_member("--links", "4", "--asks", "measure")),
    Trial("links reset", lambda: faulty_links("reset", "are reset")),
    Trial("links closed", lambda: faulty_links("closed", "are closed in the middle")),
    Trial("links corrupt", lambda: faulty_links("corrupt", "have a bit changed")),
    Trial("links silent", lambda: faulty_links("silent", "pass nothing on any more and stay open", 0.1, 6)),
    Trial("dead site", lambda: dead_site(0.1)),
    Trial("dead site, slow training", lambda: dead_site(3.0)),
    Trial("dead site, very slow training", lambda: dead_site(12.0, 18, 8)),
    Trial("three killed", three_down),
    Trial("three stopped", lambda: three_down("--stopped")),
    Trial("parted 4 and 2", lambda: parted((4, 2))),
    Trial("parted 3 and 3", lambda: parted((3, 3))),
    Trial(
        "identities",
        lambda: tests_of("strangers, other keys, expired and foreign certificates", "tests/peers/test_identity.py"),
    ),
    Trial(
        "messages",
        lambda: tests_of("malformed, mutated and contradictory messages of a member", "tests/peers/test_malformed.py"),
    ),
    Trial(
        "lists",
        lambda: tests_of(
            "more than 500 signed hostile lists, and one above each ceiling", "tests/peers/test_hostile_lists.py"
        ),
    ),
    Trial("files", flips),
]


def _tests(*arguments: str) -> tuple[int, int]:
    """How many tests of a selection passed and failed."""
    with tempfile.TemporaryDirectory() as base:
        report = Path(base) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments]
        subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        from xml.etree import ElementTree

        (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    return count["tests"] - failed - count["skipped"], failed


def _measured(script: str, *arguments: str) -> Any:
    """What another script of this directory prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)


def drawn(outcomes: dict[str, Any]) -> str:
    """The page."""
    failed = [name for name, outcome in outcomes.items() if not outcome["held"]]
    first = f"**Did not hold: {', '.join(failed)}.**" if failed else "All of them held."
    ordered = sorted(outcomes.items(), key=lambda item: item[1]["held"])
    rows = [f"| {o['tried']} | {'yes' if o['held'] else '**no**'} | {o['figure']} |" for _, o in ordered]
    return "\n".join([_HEAD.format(first=first, count=len(outcomes)), *rows, ""])


_HEAD = """# Attacks on a network, tried

`make attack` tries {count} kinds of attacks and faults on real sites, each a process of its own, over mutual TLS on one
machine of two cores, one run each. {first} What members can do to each other's models is another page:
[robustness.md](robustness.md).

| tried | held | figure |
| --- | --- | --- |"""


def main() -> None:
    """Run what has not been run, or draw the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="*", help="Names of trials; they are run again.")
    parser.add_argument("--draw", action="store_true", help="Run nothing.")
    given = parser.parse_args()
    outcomes = json.loads(given.out.read_text()) if given.out.exists() else {}
    for trial in [] if given.draw else _wanted(given.only, outcomes):
        print(trial.name, end=": ", flush=True)
        outcome = trial.run()
        print(f"{'held' if outcome.held else 'DID NOT HOLD'}; {outcome.figure}", flush=True)
        outcomes[trial.name] = asdict(outcome)
        named = {each.name: outcomes[each.name] for each in TRIALS if each.name in outcomes}
        given.out.write_text(json.dumps(named, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(drawn(json.loads(given.out.read_text())))


def _wanted(only: Iterable[str] | None, outcomes: dict[str, Any]) -> list[Trial]:
    return [trial for trial in TRIALS if (trial.name in only if only else trial.name not in outcomes)]


if __name__ == "__main__":
    main()
