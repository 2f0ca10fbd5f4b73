"""A model to take home: one node's deployed model in a directory that does not need this library."""

from __future__ import annotations

import json
import os
import runpy
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from facade.core import tree
from facade.errors import ExperimentError, FacadeError, RunDirectoryError
from facade.export import portable
from facade.export.model_card import OWN_SHARES, card, is_balanced, local_section
from facade.export.portable import Deployed
from facade.files import store
from facade.learning.torch_modules import named_tensors
from facade.runs import history
from facade.runs.history import History
from facade.runs.result import Result
from facade.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class WrittenPackage:
    """What was written, and what could not be."""

    files: list[Path]
    left_out: dict[str, str]
    """File name and why it is not there."""


WriteCard = Callable[[list[str], dict[str, str]], str]
"""The text of a model card, from the files beside it and those left out."""


def export(run: str | Path, out: str | Path, node: int | None = None, head: int | None = None) -> WrittenPackage:
    """Write the deployed model of a node, or of the nodes that chose a head, to the directory `out`."""
    result, past = Result.load(run), history.load(run)
    refuse_attacked(past)
    digests = tree.digests(result.models, len(past.test_of))
    chosen = pick(past, digests, node, head)
    facts = RunDirectory(Path(run)).read("federation.json")
    stored = getattr(torch, facts["stored"])
    advice = OWN_SHARES if is_balanced(past.experiment) else ""
    model = Deployed(result.model(chosen), result.learner.inputs, result.learner.dtype, stored, advice).eval()
    same = [i for i, digest in enumerate(digests) if digest == digests[chosen]]

    def write_card(files: list[str], left_out: dict[str, str]) -> str:
        own = local_section(result.learner.local_names, result.learner.running_statistics)
        return card(past, facts, chosen, same, files, left_out) + own

    return package(model, result.experiment.model.name, past.classes, Path(out), write_card)


def package(model: Deployed, name: str, classes: list[str], out: Path, write_card: WriteCard) -> WrittenPackage:
    """Write a model, whose architecture has the given name, in all forms that it can have."""
    _refuse_full(out)
    forms = {"model.pt2": portable.program(model), "model.onnx": portable.onnx(model)}
    files = {file: form.content for file, form in forms.items() if form.content is not None}
    weights = {key: leaf.detach().contiguous().clone() for key, leaf in named_tensors(model.network).items()}
    files |= {
        "weights.safetensors": save(weights),
        "classes.json": (json.dumps(classes) + "\n").encode(),
        "model.py": portable.source(model, name, classes, "model.pt2" in files).encode(),
    }
    left_out = {file: form.reason for file, form in forms.items() if form.content is None}
    files["README.md"] = write_card(sorted(files), left_out).encode()
    _write(files, out, model)
    return WrittenPackage([out / file for file in sorted(files)], left_out)


def _refuse_full(out: Path) -> None:
    """RunDirectoryError unless a directory is new or empty."""
    if out.exists() and not (out.is_dir() and all(store.is_temporary(path) for path in out.iterdir())):
        raise RunDirectoryError(f"{out} is not empty; give a directory that is new or empty")


def refuse_attacked(run: History) -> None:
    """ExperimentError for a run some of whose nodes attacked: what it left is for a study."""
    if run.attack is not None:
        raise ExperimentError(
            f"in {run.path} some nodes attacked ({run.experiment['attack']['kind']}), so that its models are for study"
            " and not for use; export those of a run without [attack]"
        )


def pick(run: History, digests: list[str], node: int | None, head: int | None) -> int:
    """The node whose deployed model is meant; `digests` tell equal models from different ones."""
    n = len(run.test_of)
    if (node is None) == (head is None):
        raise ExperimentError("say which model to export: give `node`, or `head` for what the nodes of a head share")
    if node is not None:
        if not 0 <= node < n:
            raise ExperimentError(f"`node` {node} does not exist; nodes are 0 to {n - 1}")
        return node
    choice = run.final.choice
    if choice is None:
        raise ExperimentError(f"`head` {head}: algorithm '{run.algorithm}' has no heads to choose from; use `node`")
    users = np.nonzero(choice == head)[0].tolist()
    if not users:
        used = ", ".join(map(str, sorted(set(choice.tolist()))))
        raise ExperimentError(f"`head` {head} was deployed by nobody at the end of the run; heads in use: {used}")
    if len({digests[user] for user in users}) > 1:
        raise ExperimentError(
            f"the nodes that chose head {head} deploy different models (parts of them stay at their nodes, or the run"
            " has no full final exchange);"
            f" use `node` with one of {', '.join(map(str, users))}"
        )
    return int(users[0])


def _write(files: dict[str, bytes], out: Path, model: Deployed) -> None:
    """Write the files and check them where nobody takes them for a model; then give them their names."""
    new, aside = not out.exists(), out / ".unchecked.tmp"
    try:
        for name, content in files.items():
            store.replace(aside / name, content)
        _check(aside, model)
        with store.writing(out):
            for name in files:
                os.replace(aside / name, out / name)
    except BaseException:
        shutil.rmtree(out if new else aside, ignore_errors=True)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _check(out: Path, model: Deployed) -> None:
    """Load what was written and compare it with what was meant; model.py to the bit."""
    samples = model.example()
    with torch.no_grad():
        # run_path, unlike an import, leaves no compiled copy beside the file
        written = runpy.run_path(str(out / "model.py"))["load"]()
        same = {"model.py": torch.equal(written(samples), model(samples))}
        if (out / "model.pt2").exists():
            same["model.pt2"] = model.answers_as(torch.export.load(out / "model.pt2").module()(samples))
    for name, alike in same.items():
        if not alike:
            raise FacadeError(
                f"the exported {name} does not compute what the run's model computes, so nothing was written;"
                " report the model's architecture"
            )
