"""How far the studies of a site are, as their files say. Nothing is written, and no key is needed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from facade.analysis import metrics
from facade.errors import ExperimentError, FacadeError
from facade.files import seals
from facade.peers.node.recovery import has_left
from facade.peers.node.shortages import read_notice
from facade.peers.trust.membership import Membership, load, read, signed_list
from facade.peers.trust.site import Settings
from facade.peers.trust.studies import Study, archived_studies, chosen_studies, stray_list, studies_of
from facade.runs.run_directory import RunDirectory

State = Literal["waiting", "running", "paused", "stopped", "finished", "archived", "broken"]
"""waiting: not begun; running, paused: a node plays it; stopped: begun, and no node plays it now; broken: it cannot be
played."""


@dataclass(frozen=True)
class StudyFacts:
    """One study, for whoever runs the site."""

    study: str
    state: State
    directory: str
    federation: str | None = None
    epoch: int | None = None
    round: int | None = None
    """That it is in; counted from 0, so many are done."""
    rounds: int | None = None
    accuracy: float | None = None
    """On the site's own test data, at the last evaluation."""
    says: str = ""
    """Why it pauses, or cannot be played."""


def all_studies(home: Path) -> list[StudyFacts]:
    """All studies of a site, those put away included."""
    settings, archived = Settings.load(home), archived_studies(home)
    studies = [study for study in studies_of(home) if study.is_there or not archived]
    facts = [study_facts(study, settings.of_study(study.name)) for study in studies]
    return facts + [_archived(study) for study in archived]


def study_facts(study: Study, settings: Settings) -> StudyFacts:
    """How far a study is."""
    where = str(study.directory)
    if not study.is_there:
        return StudyFacts(study.name, "waiting", where, says=f"its list is yet to be put there, as {study.list_path}")
    try:
        lists = _followed(study, settings)
        status, finished = _status(study.run), study.is_finished
        facts = _facts(study, lists, status)
    except FacadeError as error:
        return StudyFacts(study.name, "broken", where, says=str(error))
    if finished and study.is_stray:
        return StudyFacts(study.name, "broken", where, **facts, says=stray_list(study))
    if finished:
        return StudyFacts(study.name, "finished", where, **facts)
    if not RunDirectory(study.run).is_claimed:
        return StudyFacts(study.name, "stopped" if status else "waiting", where, **facts)
    why = _why_paused(study.run, status)
    return StudyFacts(study.name, "paused" if why else "running", where, **facts, says=why)


def is_over(study: Study) -> bool:
    """Whether there is nothing to do for a study any more: it is finished, no other site needs it, and the list that
    lies there is not a new one."""
    if not study.is_finished or not (study.run / "site.json").exists() or not has_left(study.run / "recovery.jsonl"):
        return False
    kept = {path.read_bytes() for path in study.kept_lists}
    return not study.list_path.exists() or study.list_path.read_bytes() in kept


def to_play(home: Path, names: Sequence[str], also_finished: bool = False) -> list[Study]:
    """The studies of these names, or all that are not over; the only one in any case, for it may be wanted to train
    alone, or for others once more. `also_finished`: all, for others may still need those that are over."""
    studies = chosen_studies(home, names)
    everything = names or len(studies) == 1 or also_finished
    return studies if everything else [study for study in studies if not is_over(study)]


def _followed(study: Study, settings: Settings) -> list[Membership]:
    """The lists that a study is played by: those of its run, or the one that it is going to begin with."""
    paths = study.kept_lists or [study.list_path]
    lists = [load(path, settings.admins, settings.required) for path in paths]
    if not lists[-1].has(settings.id):
        raise ExperimentError(
            f"'{settings.id}' is no member from round {lists[-1].first_round} on (epoch {lists[-1].epoch})"
        )
    return lists


def _archived(study: Study) -> StudyFacts:
    """What is known of a study that was put away, whichever admins the site knows today."""
    where = str(study.directory)
    try:
        lists = [signed_list(read(path), path).membership for path in study.kept_lists or [study.list_path]]
        return StudyFacts(study.name, "archived", where, **_facts(study, lists, _status(study.run)))
    except FacadeError as error:
        return StudyFacts(study.name, "archived", where, says=str(error))


def _status(run: Path) -> dict[str, Any]:
    """What the node wrote last; nothing if none has run."""
    path = run / "status.json"
    return seals.read_json(path).content if path.exists() else {}


def _facts(study: Study, lists: list[Membership], status: dict[str, Any]) -> dict[str, Any]:
    newest = max(lists, key=lambda listed: listed.epoch)
    return {
        "federation": newest.federation,
        "epoch": status.get("epoch", newest.epoch),
        "round": status.get("round", newest.first_round),
        "rounds": newest.experiment["training"]["rounds"],
        "accuracy": _accuracy(study.run),
    }


def _accuracy(run: Path) -> float | None:
    """On the site's own test data, at the last evaluation; None before the first."""
    rows, last = RunDirectory(run).rows, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a node may be writing the last row
        for row in rows if rows.path.exists() else []:
            last = row if row["kind"] != "round" else last
    return None if last is None else float(metrics.accuracy(np.array(last["confusion"])))


def _why_paused(run: Path, status: dict[str, Any]) -> str:
    """Why a node that runs pauses; nothing if it does not."""
    if lacks := read_notice(run):
        return f"too little of {lacks['lacks']}"
    if paused := status.get("paused"):
        return f"too few members are there (absent: {', '.join(paused['absent'])})"
    return ""
