"""The model card: what an exported model is, how good it is and for whom, and what nobody tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from facade.analysis import metrics
from facade.analysis.resampling import likely_accuracies
from facade.analysis.statistics import LEVEL, TEST_NOISE, Interval, spread
from facade.analysis.table import PRIORS
from facade.export.card_measures import measures_section
from facade.runs.history import History


def card(
    run: History, facts: dict[str, Any], node: int, same: Sequence[int], files: Sequence[str], left_out: dict[str, str]
) -> str:
    """Markdown for the model of `node`, which the nodes `same` deploy too; `facts` is what
    federation.json says."""
    experiment = run.experiment
    who = _deployers(run, same)
    head = "" if run.final.choice is None else f" (head {int(run.final.choice[node])})"
    images = facts["images"]
    measured = measures_section(run, _groups(run), [] if run.tested_by_oracle else same)
    parts = [
        f"# Model card: {experiment['name']}, {run.algorithm}, deployed by {who}{head}",
        f"A classifier of {len(run.classes)} classes: {', '.join(run.classes)}. Input: {input_words(facts)}."
        f" Trained {_how(run)} for {experiment['training']['rounds']} rounds.",
        *([prediction_section(run.final.prior or "flat")] if is_balanced(experiment) else []),
        "## How good it is, and for whom",
        _accuracies(run, [] if run.tested_by_oracle else same) + (_ORACLE if run.tested_by_oracle else ""),
        *([measured] if measured else []),
        f"Intervals: {LEVEL:.0%}, {TEST_NOISE}. Another seed would give another model; `facade show` over"
        " several seeds says how much that matters.",
        "## Data",
        f"{_division(run)}; {_range(images)} training samples per {_word(run)}.",
        "## What it was not tested on",
        "\n".join(f"* {line}" for line in _untested(run, same, facts)),
        "## Files",
        files_section(files, left_out),
        "## Where it comes from",
        f"Experiment with seed {run.seed}, run directory `{run.path.resolve().name}`; the resolved experiment is in its"
        " `experiment.toml`.",
    ]
    return "\n\n".join(parts) + "\n"


OWN_SHARES = (
    "The model was trained with the balanced loss: it predicts for a site where all classes are equally frequent. At a"
    " site where they are not, add log((count + 0.5) / (largest count + 0.5)) to the output of every class before the"
    " largest output is taken; the counts are those of the classes among the site's own training samples."
)
"""How to predict with a model of the balanced loss."""


def is_balanced(experiment: Mapping[str, Any]) -> bool:
    """Whether a resolved experiment takes label shares out of its loss; those of earlier versions do not say."""
    return bool(experiment["training"].get("loss") == "balanced")


def prediction_section(prior: str) -> str:
    """How to predict with a model of the balanced loss, and which predictions were counted."""
    return f"## How to predict\n\n{OWN_SHARES} Accuracies below are of predictions {PRIORS[prior]}."


_ORACLE = (
    '\n\nThe run was tested with the head that is best on the test data (`evaluation.head = "oracle"`), which no site'
    " can know; how good the head is that this node chose was not measured."
)

_FILES = {
    "model.py": "`from model import load, CLASSES`; needs PyTorch, safetensors and what it imports besides",
    "weights.safetensors": "the weights by name",
    "classes.json": "class names in the order of the outputs",
    "model.pt2": "the same as a torch.export program",
    "model.onnx": "the same as an ONNX model",
}


def files_section(files: Sequence[str], left_out: dict[str, str]) -> str:
    """What lies beside the card, and why something does not."""
    absent = [f"* no `{name}`: {reason}" for name, reason in left_out.items()]
    return "\n".join([*(f"* `{name}`: {_FILES[name]}" for name in files), *absent])


def local_section(local: Set[str], statistics: Set[str]) -> str:
    """What never left the node, and what another site does about it; nothing where there is no such part."""
    if not local:
        return ""
    parts = [
        "\n## What is this node's own",
        f"{', '.join(f'`{name}`' for name in sorted(local))}: these stayed at the node, never sent or averaged, and fit"
        " its data. At another site the model is as good as stated here only if the site has its own:",
        _ESTIMATE if local & statistics else "",
        "Train the others on the site's own data, with the rest kept as it is." if local - statistics else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_ESTIMATE = """\
Running statistics are estimated by one pass over the site's own training samples; labels are not needed:

```python
model = load()
for layer in model.modules():
    if hasattr(layer, "reset_running_stats"):
        layer.reset_running_stats()
        layer.momentum = None
        layer.train()
with torch.no_grad():
    for samples in batches:
        model(samples)
model.eval()
```

Where `load` reads `model.pt2`, statistics are fixed. There, do the same with the run's own module, as
`facade.learning.running_statistics.estimate` does."""


def input_words(facts: dict[str, Any]) -> str:
    """What the model takes; facts: shape, stored, mean, std, and, of later runs, scale and inputs."""
    shape, scale = " x ".join(map(str, facts["shape"])), facts.get("scale", "auto")
    if scale == "tokens":
        return f"rows of {shape} tokens, whole numbers from 0 on"
    if scale != "auto":
        kind = {1: "rows", 3: "images", 4: "volumes"}.get(len(facts["shape"]), "arrays")
        return f"{kind} of {shape} numbers, {_SCALES[scale]}" + ("" if scale == "none" else _normalised(facts))
    if facts["stored"] != "uint8":
        named = f": {', '.join(facts['inputs'])}; " if facts.get("inputs") else ", "
        standardised = facts.get("standardised", bool(facts.get("inputs")))  # earlier versions said it of tables alone
        return f"rows of {shape} numbers{named}{_COLUMNS if standardised else 'as they are'}"
    if len(facts["shape"]) != 3:
        return f"uint8 volumes of {shape}, values 0 to 255; normalisation{_normalised(facts)} of [0, 1] values"
    return (
        f"uint8 images of {shape} (channels, height, width), values 0 to 255; normalisation (mean {facts['mean']},"
        f" std {facts['std']} of [0, 1] values) is built in"
    )


_SCALES = {
    "none": "as they are",
    "bits": "scaled by the range of their integer type",
    "range": "scaled by the least and largest training value of every channel",
    "standard": "scaled by the mean and deviation of the training values of every channel",
}
_COLUMNS = (
    "numbers of a site were standardised, and gaps filled, from that site's own training rows, and so must be new ones"
)


def _normalised(facts: dict[str, Any]) -> str:
    """The numbers, where there are not too many to be read."""
    if len(facts["mean"]) > 16:
        return " (built in)"
    return f" (mean {facts['mean']}, std {facts['std']}; built in)"


def _word(run: History) -> str:
    """What a node is called: a site where it has a name, or where nobody knows which are alike."""
    return "site" if run.named or run.cluster is None else "node"


def _range(images: Sequence[int]) -> str:
    return str(min(images)) if min(images) == max(images) else f"{min(images)} to {max(images)}"


def _deployers(run: History, same: Sequence[int]) -> str:
    """The nodes that deploy a model, by name where they have some."""
    several = "s" if len(same) > 1 else ""
    if run.named:
        return f"site{several} {', '.join(run.sites[i] for i in same)}"
    return f"node{several} {_listed(same)}"


def _division(run: History) -> str:
    """Where the data come from and who got which, in words."""
    data, n = run.experiment["data"], len(run.nodes)
    clusters = "which of them are alike is not known"
    if run.cluster is not None:
        clusters = f"in clusters of {data['clusters']} that differ by `{data['skew']}`"
    if data["source"] == "given":
        kinds = clusters if run.cluster is None else f"in clusters of {data['clusters']}"
        return f"Given in Python, already divided among {n} {_word(run)}s, {kinds}"
    if data["partition"] == "natural":
        return f"Source `{data['source']}`, in which each of {n} {_word(run)}s has samples of its own, {clusters}"
    return f"Source `{data['source']}`, divided by `{data['partition']}` among {n} nodes, {clusters}"


def _accuracies(run: History, same: Sequence[int]) -> str:
    """Per group of nodes that are tested alike: this very model's accuracy there, if it was tested."""
    lines = ["| tested on the data of | accuracy | interval | test samples |", "|---|--:|--:|--:|"]
    for name, members in _groups(run):
        tested = [i for i in members if i in set(same)]
        if tested:
            confusion = run.final.confusion[tested]
            accuracy, interval = _accuracy(confusion, run.test_of[tested])
            low, high = interval.low, interval.high
            each = np.unique(run.test_of[tested], return_index=True)[1]  # nodes may share a test set
            samples = int(confusion[each].sum())
            lines.append(f"| {name} | {accuracy:.1%} | {low:.1%} to {high:.1%} | {samples} |")
        else:
            lines.append(f"| {name} | not tested | | |")
    return "\n".join(lines)


def _accuracy(confusion: metrics.Counts, test_of: metrics.Counts) -> tuple[float, Interval]:
    accuracy = float(metrics.accuracy(confusion).mean())
    return accuracy, spread(accuracy, likely_accuracies(confusion, test_of).mean(1))


def _groups(run: History) -> list[tuple[str, list[int]]]:
    """Clusters where they are known, else sites, and their nodes; sites that share a test set are one group."""
    of, word = (run.test_of, "test set") if run.cluster is None else (run.cluster, "cluster")
    groups = [(int(number), np.nonzero(of == number)[0].tolist()) for number in np.unique(of)]
    if run.cluster is None and len(groups) == len(run.nodes):
        return [(_deployers(run, members), members) for _, members in groups]
    return [(f"{word} {number} ({_deployers(run, members)})", members) for number, members in groups]


def _how(run: History) -> str:
    nodes, word = len(run.test_of), _word(run)
    if run.algorithm == "local":
        return f"alone, beside {nodes - 1} other {word}s that each trained alone,"
    return f"without pooling data by {nodes} {word}s that exchanged models"


def _untested(run: History, same: Sequence[int], facts: dict[str, Any]) -> list[str]:
    others = [name for name, members in _groups(run) if not set(members) & set(same)]
    lines = [f"the data of {name}: another model was deployed there" for name in others]
    if run.experiment["runtime"]["precision"] == "bf16":
        lines.append("the full precision in which it is written: the run computed, and tested, in bfloat16")
    lines.append(f"anything but the test split of `{run.experiment['data']['source']}`: other sites, devices, years")
    return [*lines, *never_tested(facts["stored"], run.final.beside is not None and not run.tested_by_oracle)]


def never_tested(stored: str, calibrated: bool = False) -> list[str]:
    """What no model here was tested on; calibrated: that was measured."""
    altered = "damaged, shifted or deliberately altered images, and images of other things: it always answers"
    unknown = "what its scores reveal about the training data"
    scores = (
        unknown if calibrated else "how well its scores are calibrated, and what they reveal about the training data"
    )
    return [altered, scores] if stored == "uint8" else [scores]


def _listed(nodes: Sequence[int]) -> str:
    """0-5, 8"""
    spans: list[list[int]] = []
    for node in nodes:
        if spans and node == spans[-1][1] + 1:
            spans[-1][1] = node
        else:
            spans.append([node, node])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
