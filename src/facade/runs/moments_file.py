"""The file that keeps the moments of a finished run, so that whoever looks at the run need not read its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from facade.core.tree import Params
from facade.core.types import Row
from facade.runs import state_files
from facade.runs.moments import Incomplete, Moments, Tested, small
from facade.runs.survey_facts import SurveyFacts

FILE = "moments.safetensors"
_FORMAT = 1
"""Is counted up when readers need more than the files written before hold."""


def parts(moments: Moments, rows_sha256: str) -> Iterator[bytes | memoryview]:
    """The parts of the file, in order; `rows_sha256` is that of the rows which say the same."""
    losses = [np.nan if loss is None else loss for loss in moments.train_loss]
    arrays: dict[str, NDArray[Any]] = {
        "rounds": np.array(moments.rounds, np.int64),
        "heard": np.array(moments.heard, np.float64),
        "train_loss": np.array(losses, np.float64),
    }
    if moments.choice:
        arrays["choice"] = small(moments.choice)
    tested = [*moments.evaluations, *([] if moments.final is None else [moments.final])]
    arrays |= {f"{i}.{name}": values for i, each in enumerate(tested) for name, values in each.values.items()}
    facts = {
        "format": _FORMAT,
        "rows": rows_sha256,
        "nodes": moments.n,
        "tested": [each.round for each in tested],
        "heard_finally": None if moments.final is None else moments.heard_finally,
        "survey": None if moments.survey is None else dataclasses.asdict(moments.survey),
        "incomplete": moments.incomplete,
    }
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return state_files.file_parts(state_files.in_one_piece(tensors), facts)


def read(content: bytes, rows_sha256: str) -> Moments | None:
    """The moments that a file holds; None where they are of other rows, or another version wrote them."""
    tensors, facts = state_files.read_file(memoryview(bytearray(content)))
    if (facts["format"], facts["rows"]) != (_FORMAT, rows_sha256):
        return None
    moments = Moments(facts["nodes"])
    moments.rounds = tensors["rounds"].tolist()
    moments.heard = tensors["heard"].tolist()
    moments.train_loss = [None if np.isnan(loss) else loss for loss in tensors["train_loss"].tolist()]
    moments.choice = list(tensors["choice"].numpy()) if "choice" in tensors else []
    moments.evaluations = _tested(tensors, facts)
    if facts["heard_finally"] is not None:
        moments.final, moments.heard_finally = moments.evaluations.pop(), facts["heard_finally"]
    moments.survey = None if facts["survey"] is None else SurveyFacts(**facts["survey"])
    moments.incomplete = [Incomplete(*each) for each in facts["incomplete"]]
    return moments


def _tested(tensors: Params, facts: Row) -> list[Tested]:
    values: list[dict[str, NDArray[Any]]] = [{} for _ in facts["tested"]]
    for path, tensor in tensors.items():
        number, _, name = path.partition(".")
        if name:
            values[int(number)][name] = tensor.numpy()
    return [Tested(round, each) for round, each in zip(facts["tested"], values, strict=True)]
