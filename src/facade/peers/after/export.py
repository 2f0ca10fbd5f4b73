"""A site's model to deploy: what `facade export` writes of a simulated run, of a real one."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch

from facade.analysis import metrics
from facade.errors import ExperimentError
from facade.export.model_card import (
    OWN_SHARES,
    files_section,
    input_words,
    is_balanced,
    local_section,
    never_tested,
    prediction_section,
)
from facade.export.package import WrittenPackage, package
from facade.export.portable import Deployed
from facade.peers.after.outcome import MODEL, Measures, Outcome, SiteFacts, deployed_model, read_site
from facade.peers.node.surroundings import changes, surroundings
from facade.peers.trust.identity import Ask, cannot_ask
from facade.peers.trust.membership import Membership
from facade.peers.trust.site import Site, set_up
from facade.peers.trust.studies import MAIN


def export_site(home: Path, out: Path, ask: Ask = cannot_ask, study: str = MAIN) -> WrittenPackage:
    """Write the model that a site deploys, when the run of a study is finished, to the directory `out`; `ask` gives the
    passphrase of encrypted keys."""
    site = Site.load(home, ask, study)
    outcome, path = Outcome.load(site.run), site.run / MODEL
    if outcome is None or not path.exists():
        raise ExperimentError(f"{path} is not there; a site has a model when its run is finished: facade node up")
    facts, membership = read_site(site.run / "site.json"), site.membership()
    setup = set_up(site, membership)
    for sentence in changes(outcome.surroundings, surroundings(site, membership)):
        warnings.warn(sentence, stacklevel=2)
    weights = {name: leaf[0] for name, leaf in deployed_model(site.run).items()}
    stored = setup.federation.training.samples.x.dtype
    balanced = is_balanced(membership.experiment)
    advice = OWN_SHARES if balanced else ""
    model = Deployed(setup.learner.module(weights), setup.learner.inputs, setup.learner.dtype, stored, advice).eval()
    how = [prediction_section(setup.plan.prior_for(setup.federation))] if balanced else []

    def about(files: list[str], left_out: dict[str, str]) -> str:
        own = local_section(setup.learner.local_names, setup.learner.running_statistics)
        return _card(facts, membership, stored, how, files_section(files, left_out)) + own

    return package(model, setup.experiment.model.name, setup.federation.classes, out, about)


def _card(facts: SiteFacts, membership: Membership, stored: torch.dtype, how: list[str], files: str) -> str:
    schema, rounds = membership.schema_, membership.experiment["training"]["rounds"]
    kind = str(stored).removeprefix("torch.")
    confusion = np.array(facts.final.confusion)
    accuracy, head = float(metrics.accuracy(confusion)), facts.final.choice
    gain = "" if facts.gain is None else f" Training alone, this site reached {accuracy - facts.gain:.1%}."
    measured = facts.final.measures
    parts = [
        f"# Model card: {facts.federation}, {facts.algorithm}, deployed by site '{facts.id}'"
        + ("" if head is None else f" (head {head})"),
        f"A classifier of {len(schema.classes)} classes: {', '.join(schema.classes)}. Input:"
        f" {input_words(schema.model_dump() | {'stored': kind})}. Trained without pooling data by"
        f" {membership.n} sites that exchanged models for {rounds} rounds.",
        *how,
        "## How good it is, and for whom",
        f"{accuracy:.1%} of this site's own {int(confusion.sum())} test samples are answered rightly.{gain}"
        f"{_measured(measured)} Other sites may deploy other models; `facade network report` compares them.",
        "## What it was not tested on",
        "\n".join(f"* {line}" for line in ("the data of any other site", *never_tested(kind, measured is not None))),
        "## Files",
        files,
    ]
    return "\n\n".join(parts) + "\n"


def _measured(measures: Measures | None) -> str:
    """A sentence on what was measured beside accuracy; nothing where an older version did not."""
    if measures is None:
        return ""
    auc = "" if measures.auc is None else f"AUC {measures.auc[0]:.3f}, "
    others = f"log loss {measures.log_loss[0]:.3f}, calibration error {measures.calibration_error:.3f}"
    return f" Beside accuracy: {auc}{others}."
