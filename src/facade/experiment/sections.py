"""The tables of an experiment's TOML file: every field, what it means, and what it is by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from facade.core.section import Finite, Fraction, Positive, Section
from facade.core.topology import TOPOLOGIES
from facade.data.section import DataSection
from facade.experiment.edges_file import edges_in
from facade.learning.parts import RUNNING_STATISTICS


class ModelSection(Section):
    """The architecture."""

    name: str = "mlp"
    """`facade list models`, or package.module:Class."""
    head: str | Annotated[list[str], Field(min_length=1)] = "head"
    """Name of the submodule (or of several) that is the head; "*": the whole model."""

    local: list[str] = Field(default=[RUNNING_STATISTICS])
    """Submodules or tensors that stay at their node, never sent or averaged; "running-statistics": those of all batch
    normalisation; []: nothing."""

    @field_validator("head")
    @classmethod
    def _one_is_no_list(cls, head: str | list[str]) -> str | list[str]:
        """A list of one name is that name, also for the hash."""
        return head[0] if isinstance(head, list) and len(head) == 1 else head


class TopologySection(Section):
    """Who hears whom."""

    name: str = "regular"
    """`facade list topologies`, or package.module:Class."""
    degree: int = 4
    """Peers a node hears in a round, for topologies that have one."""
    fresh: Literal["auto"] | bool = "auto"
    """Whether there is a new graph every round; "auto": as the algorithm is described."""
    file: str = ""
    """A text file of edges, for name "file"; read once, it becomes the name "edges" and the edges."""
    edges: str = ""
    """Pairs of nodes that hear each other, such as "0-1 1-2", for name "edges"."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        """Put a file's content in its place, so that hash, signature and every machine have the same graph."""
        if not isinstance(written, Mapping) or not isinstance(written.get("name", ""), str):
            return written
        name, given = written.get("name", "regular"), [key for key in ("file", "edges") if written.get(key)]
        if name != "file" and "file" in given:
            raise ValueError(f"file is for name = 'file', and the name is '{name}'; set it, or leave file out")
        if "edges" in given and "name" not in written:
            raise ValueError("edges are for name = 'edges', and no name is given; set it, or leave edges out")
        if name != "file":
            return {**written, "edges": ""} if name in TOPOLOGIES and name != "edges" else written
        return {**written, "name": "edges", "edges": edges_in(str(written.get("file", ""))), "file": ""}


class NetworkSection(Section):
    """Simulated trouble."""

    loss: Fraction = 0.0
    """Share of messages that do not arrive."""
    offline: Fraction = 0.0
    """Share of nodes that miss a round."""


class GuardSection(Section):
    """How nodes protect themselves from what they hear."""

    rule: str = "none"
    """`facade list guards`, or package.module:Class; "none": everything is used as it comes."""


class AttackSection(Section):
    """Simulated attackers, for experiments."""

    kind: str = "none"
    """`facade list attacks`, or package.module:Class; "none": all nodes are honest."""
    nodes: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list)
    """The attackers."""
    start: Annotated[int, Field(ge=0)] = 0
    """The round from which on they send something else; what they train on is false from the first."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if (self.kind == "none") != (not self.nodes):
            raise ValueError(
                f"kind = '{self.kind}' and nodes = {self.nodes} do not go together; give both, such as kind ="
                " 'sign-flip' and nodes = [3], or leave both out"
            )
        return self


class TrainingSection(Section):
    """How nodes train."""

    rounds: Positive = 200
    """How often nodes train and exchange."""
    steps: Positive = 10
    """Batches a node trains on in a round."""
    batch: Positive = 8
    """Samples in a batch."""
    lr: Finite = 0.05
    """Learning rate."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    """What turns gradients into steps; what it remembers stays with the node."""
    momentum: Fraction = 0.0
    """Of optimiser "sgd"."""
    nesterov: bool = False
    """Whether momentum looks ahead."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Added to gradients, times the weights."""
    schedule: Literal["constant", "cosine", "step"] = "constant"
    """How the learning rate changes over rounds."""
    schedule_every: Positive = 100
    """Rounds between two drops of the learning rate, for schedule "step"."""
    schedule_factor: Finite = 0.1
    """What a drop multiplies the learning rate by."""
    init: Literal["common", "per-node"] = "common"
    """Whether all nodes begin with the same weights."""
    loss: Literal["plain", "balanced"] = "plain"
    """Cross-entropy, or that without what a node's label shares alone explain (balanced softmax)."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov = true needs momentum; set training.momentum, such as 0.9")
        if self.optimiser == "adam" and self.momentum:
            raise ValueError("momentum belongs to optimiser 'sgd'; drop it or drop optimiser = 'adam'")
        return self


class EvaluationSection(Section):
    """When nodes are tested, and with which head."""

    every: Positive = 20
    """Rounds between two tests."""
    head: Literal["chosen", "oracle"] = "chosen"
    """The head a node is tested with: the one it chose, or the one best on the test data (never honest)."""
    images: Annotated[int, Field(ge=0)] = 0
    """Of every test set, that many images, evenly spaced; 0: all of them."""
    prior: Literal["auto", "flat", "own"] = "auto"
    """Which predictions count with training.loss "balanced": for equally frequent classes, or with a node's own label
    shares added; "auto": own where nodes are tested on labels as they hold them, else flat."""
    measure: Literal["accuracy", "balanced-accuracy", "auc", "log-loss", "calibration-error"] = "accuracy"
    """What tables, reports and fairness gates judge the run by; all of them are recorded in any case."""


class RuntimeSection(Section):
    """Where and how the run is computed."""

    name: Literal["local", "ray"] = "local"
    """On this machine, or on a Ray cluster."""
    threads: Annotated[int, Field(ge=0)] = 0
    """Threads that compute; 0: as many as there are cores."""
    shards: Annotated[int, Field(ge=0)] = 0
    """Parts that the nodes are divided into; 0: one, on Ray one per machine."""
    executor: Literal["auto", "stacked", "looped"] = "auto"
    """How nodes are computed: many small models at once, or one by one; "auto": by the model's size."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of weights."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: layers compute in bfloat16, weights and averages stay as dtype says."""
    device: str = "cpu"
    """Where layers are computed, as torch names it; nodes' states stay in main memory."""


SECTIONS: dict[str, type[Section]] = {
    "data": DataSection,
    "model": ModelSection,
    "topology": TopologySection,
    "network": NetworkSection,
    "guard": GuardSection,
    "attack": AttackSection,
    "training": TrainingSection,
    "evaluation": EvaluationSection,
    "runtime": RuntimeSection,
}
