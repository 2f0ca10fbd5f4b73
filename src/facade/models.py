"""Models by name: each is a function of (input shape, number of classes) giving a torch module
whose head is the child named "head"."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from math import prod

from torch import nn

from facade.errors import ExperimentError
from facade.names import foreign, is_foreign, look_up

Shape = tuple[int, ...]
Factory = Callable[[], nn.Module]


def mlp(shape: Shape, classes: int) -> nn.Module:
    """One hidden layer of 64 units; head = the output layer."""
    core = nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 64), nn.ReLU())
    return nn.Sequential(OrderedDict(core=core, head=nn.Linear(64, classes)))


def cnn(shape: Shape, classes: int) -> nn.Module:
    """Two 3x3 convolutions (8 and 16 channels) with pooling; head = the output layer."""
    channels, height, width = shape
    core = nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    )  # fmt: skip
    return nn.Sequential(OrderedDict(core=core, head=nn.Linear(16 * (height // 4) * (width // 4), classes)))


MODELS: dict[str, Callable[[Shape, int], nn.Module]] = {"mlp": mlp, "cnn": cnn}


def factory(name: str, shape: Shape, classes: int) -> Factory:
    """A function that makes a fresh module of the named model."""
    if not is_foreign(name):
        make = look_up("model", name, MODELS)
        return lambda: make(shape, classes)
    made = foreign("model", name)
    if not (isinstance(made, type) and issubclass(made, nn.Module)):
        raise ExperimentError(f"model '{name}' is not a subclass of torch.nn.Module")
    wants = inspect.signature(made).parameters
    arguments = {k: v for k, v in {"shape": shape, "classes": classes}.items() if k in wants}
    return lambda: made(**arguments)
