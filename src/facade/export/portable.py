"""A trained module in forms that do not need this library: plain PyTorch source, torch.export, ONNX."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import logging
import math
import textwrap
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from string import Template

import torch
from torch import Tensor, nn

from facade.core.names import foreign, is_foreign
from facade.errors import ExperimentError
from facade.learning.inputs import Inputs
from facade.learning.torch_modules import copy_weights, named_tensors


class Deployed(nn.Module):
    """A network with its normalisation in front: stored samples [N, *shape] in, logits [N, classes]
    out. The text of model.py says the same without this library."""

    def __init__(
        self, network: nn.Module, inputs: Inputs, dtype: torch.dtype, stored: torch.dtype, advice: str = ""
    ) -> None:
        """`advice`: what whoever predicts with it must know, in every form in which it is shipped."""
        super().__init__()
        self.network, self.inputs, self.dtype, self.stored, self.advice = network, inputs, dtype, stored, advice
        per_channel = (-1,) + (1,) * (len(inputs.shape) - 1)
        mean, std = (torch.tensor(v, dtype=dtype).view(per_channel) for v in (inputs.mean, inputs.std))
        self.register_buffer("scale", 1 / (inputs.unit * std), persistent=False)
        self.register_buffer("shift", mean / std, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Values are normalised as in training; tokens, and rows of floats of scale "auto", are taken as they are."""
        x = x if self.takes_tokens else x.to(self.dtype)
        return self.network(x * self.scale - self.shift if self.normalises else x)  # type: ignore[no-any-return, operator]

    @property
    def takes_tokens(self) -> bool:
        """Whether inputs are numbers to look up."""
        return self.inputs.scale == "tokens"

    @property
    def normalises(self) -> bool:
        """Whether stored values are normalised."""
        return self.inputs.normalises(self.stored)

    def example(self) -> Tensor:
        """Two samples of the right shape and type, for those who trace and those who compare."""
        if self.takes_tokens:  # how many a model knows, nobody says
            return self.inputs.blank(2, self.dtype)
        values = torch.arange(2 * math.prod(self.inputs.shape)) * 37 % 256
        return values.view(2, *self.inputs.shape).to(self.stored)

    def answers_as(self, logits: Tensor) -> bool:
        """Whether these are its logits of the example, but for operators that add in another order."""
        with torch.no_grad():
            return torch.allclose(logits, self(self.example()), 1e-3, 1e-4)


@dataclass(frozen=True)
class WrittenForm:
    """One way to ship a model: its bytes, or why there are none."""

    content: bytes | None
    reason: str = ""


def program(model: Deployed) -> WrittenForm:
    """A torch.export program that takes any number of samples per call."""
    try:
        with _quietly():
            shapes = ({0: torch.export.Dim("samples")},)
            traced = torch.export.export(model, (model.example(),), dynamic_shapes=shapes)
            file = io.BytesIO()
            torch.export.save(traced, file, extra_files={"advice.txt": model.advice} if model.advice else None)
    except Exception as error:  # whatever the tracer stumbles over is a property of the model
        return WrittenForm(None, f"torch.export cannot trace this model ({_first_line(error)})")
    return WrittenForm(file.getvalue())


def onnx(model: Deployed) -> WrittenForm:
    """An ONNX model, where its exporter is installed; none that answers otherwise than the model."""
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript")):
        return WrittenForm(None, "ONNX needs an extra: pip install 'facade-dl[onnx]'")
    try:
        with _quietly():
            exported = torch.onnx.export(
                model,
                (model.example(),),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("samples")},),
                input_names=["samples"],
                output_names=["logits"],
                verbose=False,
            )
            proto = exported.model_proto  # type: ignore[union-attr]
            proto.doc_string = model.advice or proto.doc_string
            content: bytes = proto.SerializeToString()
    except Exception as error:
        return WrittenForm(None, f"the ONNX exporter cannot convert this model ({_first_line(error)})")
    try:
        with _quietly():
            same = model.answers_as(_answered(content, model.example()))
    except Exception as error:  # an operator that the reference implementation lacks, say
        return WrittenForm(None, f"the ONNX model could not be tried ({_first_line(error)})")
    return (
        WrittenForm(content)
        if same
        else WrittenForm(None, "the ONNX model does not compute what the run's model computes")
    )


def _answered(content: bytes, samples: Tensor) -> Tensor:
    """The logits of an ONNX model, by the reference implementation that comes with its format."""
    from onnx import load_model_from_string
    from onnx.reference import ReferenceEvaluator

    logits, *_ = ReferenceEvaluator(load_model_from_string(content)).run(None, {"samples": samples.numpy()})
    return torch.from_numpy(logits)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Exporters print, warn and log about their own affairs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


# model.py


def source(model: Deployed, name: str, classes: list[str], traced: bool) -> str:
    """The text of model.py: the architecture written out; else the program model.pt2, if it could be
    `traced`; else a user's own class `name`, which must then be importable."""
    example = model.example()
    wave = torch.linspace(-1, 1, example.numel(), dtype=model.dtype).view_as(example)
    network = written_out(model.network, example if model.takes_tokens else wave)
    if network is None and not traced:
        network = _own_class(name, {"shape": model.inputs.shape, "classes": len(classes)})
    imports = {"OrderedDict(": "from collections import OrderedDict", "importlib.": "import importlib"}
    facts = {
        "advice": f"\n{textwrap.fill(model.advice, 110)}\n" if model.advice else "",
        "what": samples_in_words(model.inputs, model.stored),
        "imports": "".join(f"{line}\n" for word, line in imports.items() if network and word in network),
        "classes": repr(classes),
        "shape": repr(tuple(model.inputs.shape)),
        "mean": repr(model.inputs.mean),
        "std": repr(model.inputs.std),
        "dtype": str(model.dtype),
        "taken": "torch.int64" if model.takes_tokens else str(model.dtype),
        "unit": str(model.inputs.unit),
        "network": network or "",
        "input": "x * self.scale - self.shift" if model.normalises else "x",
    }
    return Template(_HEAD + (_MODULE if network is not None else _PROGRAM)).substitute(facts)


def samples_in_words(inputs: Inputs, stored: torch.dtype) -> str:
    """What the samples are that a model takes."""
    if inputs.scale == "tokens":
        return "rows of tokens"
    kind = {1: "rows", 3: "images", 4: "volumes"}.get(len(inputs.shape), "arrays")
    return f"uint8 {kind}" if stored == torch.uint8 else f"{kind} of numbers"


def written_out(module: nn.Module, x: Tensor) -> str | None:
    """Python source that builds the architecture from torch.nn alone; None where that cannot be said,
    because a module has a forward of its own, or does not print all that it does with inputs such as x."""
    text = _expression(module, "        ")
    if text is None:
        return None
    try:
        rebuilt = eval(text, {"nn": nn, "OrderedDict": OrderedDict})
    except (SyntaxError, NameError, TypeError, ValueError):  # a layer that prints itself in another way
        return None
    return text if repr(rebuilt) == repr(module) and _computes_the_same(rebuilt, module, x) else None


def _computes_the_same(rebuilt: nn.Module, module: nn.Module, x: Tensor) -> bool:
    """Whether a module, given another one's weights, answers as that one does."""
    weights, own = named_tensors(module), named_tensors(rebuilt)
    if {name: leaf.shape for name, leaf in weights.items()} != {name: leaf.shape for name, leaf in own.items()}:
        return False
    dtype = next((leaf.dtype for leaf in weights.values()), x.dtype)
    copy_weights(named_tensors(rebuilt.to(dtype)), weights)
    with torch.no_grad():
        return torch.equal(rebuilt.eval()(x), module.eval()(x))


def _expression(module: nn.Module, indent: str) -> str | None:
    """torch.nn layers print themselves as they are made; a Sequential lists them."""
    if type(module) is nn.Sequential:
        inner = indent + "    "
        parts = [(name, _expression(child, inner)) for name, child in module.named_children()]
        if any(part is None for _, part in parts):
            return None
        lines = "".join(f'{inner}("{name}", {part}),\n' for name, part in parts)
        return f"nn.Sequential(OrderedDict([\n{lines}{indent}]))"
    kind = type(module)
    if getattr(nn, kind.__name__, None) is not kind or any(True for _ in module.children()):
        return None
    return f"nn.{module!r}".replace("padding=same", "padding='same'").replace("padding=valid", "padding='valid'")


def _own_class(name: str, arguments_offered: dict[str, object]) -> str:
    if not is_foreign(name):
        raise ExperimentError(f"model '{name}' can neither be written out nor traced, so it cannot be exported")
    module, _, attribute = name.partition(":")
    wants = inspect.signature(foreign("model", name)).parameters
    arguments = ", ".join(f"{key}={value!r}" for key, value in arguments_offered.items() if key in wants)
    return f'importlib.import_module("{module}").{attribute}({arguments})'


_HEAD = '''\
"""A trained classifier; see README.md beside this file for what it can and cannot do.

    from model import CLASSES, load
    logits = load()(samples)                      # $what [N, *SHAPE] -> [N, len(CLASSES)]
    names = [CLASSES[i] for i in logits.argmax(1)]
$advice\
"""

${imports}\
from pathlib import Path

import torch
from torch import nn

CLASSES = $classes
SHAPE = $shape
HERE = Path(__file__).parent
'''

_MODULE = '''\
MEAN, STD = $mean, $std


class Model(nn.Module):
    """The network with its normalisation in front."""

    def __init__(self):
        super().__init__()
        self.network = $network
        mean, std = (torch.tensor(v, dtype=$dtype).view(-1, *[1] * (len(SHAPE) - 1)) for v in (MEAN, STD))
        self.register_buffer("scale", 1 / ($unit * std), persistent=False)
        self.register_buffer("shift", mean / std, persistent=False)

    def forward(self, x):
        x = x.to($taken)
        return self.network($input)


def load():
    """The trained model, ready to predict."""
    from safetensors.torch import load_file

    model = Model().to($dtype)
    weights = load_file(HERE / "weights.safetensors")
    own = {**dict(model.network.named_parameters()), **dict(model.network.named_buffers())}
    unknown = sorted(weights.keys() - own.keys())
    if unknown:
        raise ValueError(f"weights.safetensors does not fit this architecture: {unknown}")
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value)
    return model.eval()
'''

_PROGRAM = '''\


def load():
    """The trained model, ready to predict: a torch.export program with the normalisation built in."""
    return torch.export.load(HERE / "model.pt2").module()
'''
