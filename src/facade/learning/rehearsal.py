"""A model is made and called once before a run, so that what is wrong with a user's own is one sentence."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from facade.core import seeds
from facade.errors import ExperimentError, FacadeError
from facade.learning.dropout import AddressedDropout


def new_model(factory: Callable[[], nn.Module], dtype: torch.dtype, device: str) -> nn.Module:
    """A model as the factory makes them."""
    try:
        with seeds.global_torch(0, "template"):
            model = factory()
            lazy = [name for name, p in model.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
            if lazy:
                raise ExperimentError(f"the model's '{lazy[0]}' has no size yet; give lazy layers their sizes")
            return copy.deepcopy(model).to(device=device, dtype=dtype)  # every thread trains a copy
    except FacadeError:
        raise
    except Exception as error:  # of a user's own class
        raise ExperimentError(f"the model cannot be made: {_first_line(error)}") from error


def outputs(module: nn.Module, x: Tensor, batch: int) -> int:
    """How many classes the model tells apart, after a pass in training with so many of x [2, ...] and one in evaluation
    that show what a run could not repeat: numbers drawn from torch's own generator, averages that depend on a count
    kept outside the weights, inputs that are changed in place."""
    module = copy.deepcopy(module)
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats and part.momentum is None:
            raise ExperimentError(
                f"model layer '{name}' is a batch normalisation with momentum=None, whose averages depend on a"
                " count that nodes do not share; give it a momentum, such as 0.1"
            )
    counters = {name: buffer.clone() for name, buffer in _counters(module)}
    with seeds.global_torch(0, "template"), torch.no_grad():
        before = _generators()
        try:
            with AddressedDropout(0, 0, 0, 0):
                _check_logits(module.train()(x[:batch]), len(x[:batch]))
            logits = module.eval()(x)
        except FacadeError:
            raise
        except Exception as error:  # of a user's own class
            raise ExperimentError(
                f"the model cannot take {'batches of one' if batch == 1 else 'inputs'} of shape {tuple(x.shape[1:])}:"
                f" {_first_line(error)}"
            ) from error
        if before != _generators():
            raise ExperimentError(
                "the model draws random numbers that a run could not repeat; only dropout, dropout1d, dropout2d and"
                " dropout3d in training mode are drawn repeatably: replace the rest"
            )
    if x._version:  # it rises with changes in place
        raise ExperimentError(
            "the model changes its input in place, which is the data that others are computed from; write x = x - 1"
            " instead of x -= 1, and no inplace=True in a first layer"
        )
    for name, buffer in _counters(module):
        if not torch.equal(buffer, counters[name]):
            raise ExperimentError(
                f"the model changes its buffer '{name}', which holds {buffer.dtype} and so is not shared: a run could"
                " not repeat it; make it a float buffer, or leave it out"
            )
    return _check_logits(logits, 2)


def _generators() -> tuple[object, ...]:
    """Where the random generators stand that a model might draw from."""
    of_numpy = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - that is the one
    place = of_numpy["key"].tobytes(), of_numpy["pos"]
    return torch.random.get_rng_state().numpy().tobytes(), random.getstate(), *place


def _counters(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Buffers that are not shared among nodes, but for those of batch normalisation, which nothing depends on."""
    named = module.named_buffers()
    return [(n, b) for n, b in named if not b.is_floating_point() and not n.endswith("num_batches_tracked")]


def _check_logits(logits: object, samples: int) -> int:
    """How many classes are told apart."""
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        kind = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"type {type(logits).__name__}"
        raise ExperimentError(
            f"the model gives an output of {kind} for {samples} sample{'s' if samples > 1 else ''}; expected"
            f" [{samples}, classes]"
        )
    return logits.shape[1]


def _first_line(error: Exception) -> str:
    """What an error says; with its kind, where that tells more."""
    telling = isinstance(error, RuntimeError | TypeError | ValueError) and str(error)
    return (str(error) if telling else f"{type(error).__name__}: {error}").splitlines()[0]
