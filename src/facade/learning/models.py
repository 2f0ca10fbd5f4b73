"""Models by name: each is a function of (input shape, number of classes) giving a torch module
whose head is the child named "head". All are chains core -> head, so that the core's features are
computed once for all heads; all weights come from PyTorch's default initialisers."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from math import prod

from torch import Tensor, nn

from facade.core.names import foreign, is_foreign, look_up
from facade.errors import ExperimentError

Shape = tuple[int, ...]
Factory = Callable[[], nn.Module]
Norm = Callable[[int], nn.Module]


def _chain(core: nn.Module, head: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(core=core, head=head))


def _image(model: str, shape: Shape, least: int) -> Shape:
    """Channels, height and width, after refusing inputs that the model cannot take."""
    if len(shape) != 3:
        given = f"rows of {prod(shape)} values" if len(shape) == 1 else f"of shape {list(shape)}"
        raise ExperimentError(f"model '{model}' needs images but the data are {given}; use 'mlp' or 'softmax'")
    if min(shape[1:]) < least:
        raise ExperimentError(
            f"model '{model}' needs images of at least {least}x{least} pixels but these have {shape[1]}x{shape[2]};"
            " use 'mlp' or larger images"
        )
    return shape


def softmax(shape: Shape, classes: int) -> nn.Module:
    """Softmax regression: one linear layer, which is the head; the core is empty."""
    return _chain(nn.Flatten(), nn.Linear(prod(shape), classes))


def mlp(shape: Shape, classes: int) -> nn.Module:
    """One hidden layer of 64 units; head = the output layer."""
    core = nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 64), nn.ReLU())
    return _chain(core, nn.Linear(64, classes))


def cnn(shape: Shape, classes: int) -> nn.Module:
    """Two 3x3 convolutions (8 and 16 channels) with pooling; head = the output layer."""
    channels, height, width = _image("cnn", shape, 4)
    core = nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    )  # fmt: skip
    return _chain(core, nn.Linear(16 * (height // 4) * (width // 4), classes))


def cnn_bn(shape: Shape, classes: int) -> nn.Module:
    """`cnn` with batch normalisation after both convolutions."""
    channels, height, width = _image("cnn-bn", shape, 4)
    core = nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    )  # fmt: skip
    return _chain(core, nn.Linear(16 * (height // 4) * (width // 4), classes))


def gn_lenet(shape: Shape, classes: int) -> nn.Module:
    """LeNet with group normalisation: three 5x5 convolutions; head = the output layer."""
    channels, height, width = _image("gn-lenet", shape, 8)
    layers: list[nn.Module] = []
    for inputs, outputs in [(channels, 32), (32, 32), (32, 64)]:
        layers += [nn.Conv2d(inputs, outputs, 5, padding="same"), _groups(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return _chain(nn.Sequential(*layers, nn.Flatten()), nn.Linear(64 * (height // 8) * (width // 8), classes))


def resnet8(shape: Shape, classes: int) -> nn.Module:
    """ResNet of three basic blocks (32, 64, 128 channels); head = the last two and the output layer."""
    return _resnet8("resnet8", nn.BatchNorm2d, shape, classes)


def resnet8_gn(shape: Shape, classes: int) -> nn.Module:
    """resnet8 with group instead of batch normalisation: no running statistics to average."""
    return _resnet8("resnet8-gn", _groups, shape, classes)


def _resnet8(name: str, norm: Norm, shape: Shape, classes: int) -> nn.Module:
    channels, _, _ = _image(name, shape, 4)
    core = nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1, bias=False), norm(32), nn.ReLU(), BasicBlock(32, 32, 1, norm)
    )
    head = nn.Sequential(
        BasicBlock(32, 64, 2, norm), BasicBlock(64, 128, 2, norm),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes),
    )  # fmt: skip
    return _chain(core, head)


def _groups(channels: int) -> nn.Module:
    return nn.GroupNorm(2, channels)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), norm(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), norm(outputs),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] -> [N, outputs, H / stride, W / stride]."""
        return (self.body(x) + self.shortcut(x)).relu()  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "softmax": softmax,
    "mlp": mlp,
    "cnn": cnn,
    "cnn-bn": cnn_bn,
    "gn-lenet": gn_lenet,
    "resnet8": resnet8,
    "resnet8-gn": resnet8_gn,
}
WITHOUT_RUNNING_STATISTICS = frozenset(MODELS) - {"cnn-bn", "resnet8"}
"""Models in which no layer keeps running statistics."""


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def factory(name: str, shape: Shape, classes: int) -> Factory:
    """A function that makes a fresh module of the named model."""
    if not is_foreign(name):
        make = look_up("model", name, MODELS)
        return lambda: make(shape, classes)
    model_class = foreign("model", name)
    if not (isinstance(model_class, type) and issubclass(model_class, nn.Module)):
        raise ExperimentError(f"model '{name}' is not a subclass of torch.nn.Module")
    wants = inspect.signature(model_class).parameters
    arguments = {k: v for k, v in {"shape": shape, "classes": classes}.items() if k in wants}
    missing = [k for k, p in wants.items() if p.default is p.empty and p.kind in _NAMED and k not in arguments]
    if missing:
        raise ExperimentError(
            f"model '{name}' wants the argument{'s' if len(missing) > 1 else ''} {', '.join(missing)}; it is made with"
            " shape and classes only: give the others defaults"
        )
    return lambda: model_class(**arguments)
