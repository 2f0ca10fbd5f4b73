"""What no confusion matrix gives: how well outputs tell classes apart, and how far their probabilities can be trusted.

Everything is computed in float64, model by model in the order of samples or with whole numbers: the numbers of a model
are the same to the bit, whatever other models are measured beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facade.core.types import Ids, Row

BINS = 15
"""Bins of equal width in which confidence is compared with how often it is right."""
_SAMPLES_AT_ONCE = 1 << 16
"""Samples, over all models, that are measured together: they stay in the cache."""
_MODELS_AT_ONCE = 32
"""Nodes whose views of one model's outputs are in memory together."""

Floats = NDArray[np.float64]


def measured(logits: Tensor, y: Tensor, priors: list[Tensor] | None = None) -> Tensor:
    """[b, 4] float64 of outputs [b, m, C] of models for m samples of classes y: AUC, its variance, that of the mean
    log loss, and the calibration error; NaN where there is no such number. With priors, one [nodes, 1 + p, C] for each
    model, they are those of all nodes after the first prior was added; computed once for nodes that have the same."""
    if priors is None:
        return _in_pieces(logits, y)
    each = []
    for out, prior in zip(logits, priors, strict=True):
        different, which = torch.unique(prior[:, 0], dim=0, return_inverse=True)
        pieces = torch.split(different.unsqueeze(1), _MODELS_AT_ONCE)
        each.append(torch.cat([_in_pieces(out + some, y) for some in pieces])[which])
    return torch.cat(each)


def _in_pieces(logits: Tensor, y: Tensor) -> Tensor:
    at_once = max(1, _SAMPLES_AT_ONCE // max(1, len(y)))
    with np.errstate(all="ignore"):  # of models that diverged, which whoever asks refuses by their loss
        parts = [_measured(part.numpy(), y.numpy()) for part in torch.split(logits, at_once)]
    return torch.from_numpy(np.concatenate(parts))


def as_row(values: Tensor, loss: float) -> Row:
    """What a row holds of one model's four values and its mean loss: `[value, variance]` each, and the calibration
    error; null for what there is not."""
    auc, auc_variance, loss_variance, calibration_error = [None if v != v else v for v in values.tolist()]
    return {
        "auc": None if auc is None else [auc, auc_variance],
        "log_loss": [loss, loss_variance],
        "calibration_error": calibration_error,
    }


def _measured(logits: NDArray[np.floating], truth: Ids) -> Floats:
    outputs = _Outputs.of(logits)
    auc, variance = _auc(outputs, truth)
    own = np.take_along_axis(logits, np.broadcast_to(truth, outputs.top.shape)[..., None], 2)[..., 0]
    losses = outputs.highest - own + np.log1p(outputs.rest)
    loss_variance = losses.var(1, ddof=1) / len(truth) if len(truth) > 1 else np.full(len(logits), np.nan)
    return np.stack([auc, variance, loss_variance, _calibration_error(outputs, truth)], 1)


class _Outputs(NamedTuple):
    """Outputs [b, m, C], and per sample what probabilities follow from; class after class, for there may be many."""

    logits: NDArray[np.floating]
    top: Ids
    """[b, m] the class with the highest output."""
    highest: Floats
    """[b, m] that output."""
    second: Floats
    """[b, m] the highest output of the other classes."""
    rest: Floats
    """[b, m] sum of the other classes' exp(output - highest)."""
    near: Floats
    """[b, m] sum of the other classes' exp(output - second)."""

    @classmethod
    def of(cls, logits: NDArray[np.floating]) -> _Outputs:
        classes = range(logits.shape[2])
        top = logits.argmax(2)
        highest = np.take_along_axis(logits, top[..., None], 2)[..., 0].astype(np.float64)
        second = np.full_like(highest, -np.inf)
        for c in classes:
            second = np.where(top == c, second, np.maximum(second, logits[..., c]))
        rest, near = np.zeros_like(highest), np.zeros_like(highest)
        for c in classes:
            output, other = logits[..., c].astype(np.float64), top != c
            rest += np.where(other, np.exp(output - highest), 0)
            near += np.where(other, np.exp(output - second), 0)
        return cls(logits, top, highest, second, rest, near)

    def log_odds(self, c: int) -> Floats:
        """[b, m] of a class against all others. It orders samples as the class's probability does, but does not round
        to one where a model is sure."""
        output = self.logits[..., c].astype(np.float64)
        others = np.log1p(self.rest - np.exp(output - self.highest))
        return np.where(self.top == c, output - self.second - np.log(self.near), output - self.highest - others)


def _calibration_error(outputs: _Outputs, truth: Ids) -> Floats:
    """[b] the mean distance between confidence and the share of right answers, over bins ((i - 1) / BINS, i / BINS] of
    confidence, each weighted by its samples."""
    confidence = 1 / (1 + outputs.rest)
    bins = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    surplus = _sums((outputs.top == truth) - confidence, bins, BINS)
    return np.asarray(np.abs(surplus).sum(1) / len(truth))


def _auc(outputs: _Outputs, truth: Ids) -> tuple[Floats, Floats]:
    """[b] the area under the ROC curve, of every class against the others, the mean over classes; NaN where a class is
    missing. [b] DeLong's variance of it: samples of a class are a sample of their own, and what one of them adds to the
    curves of all classes is added up before it is squared; NaN where a class has a single one."""
    size, m, classes = outputs.logits.shape
    count = np.bincount(truth, minlength=classes)
    none = np.full(size, np.nan)
    if classes < 2 or not count.all():
        return none, none
    auc, added = np.zeros(size), np.zeros((size, m))
    for c in range(classes):
        positive = truth == c
        won, pairs = _half_wins(outputs.log_odds(c), positive), 2 * int(count[c]) * int(m - count[c])
        auc += (won * positive).sum(1) / pairs
        added += won / pairs
    if count.min() < 2:
        return auc / classes, none
    groups = np.broadcast_to(truth, added.shape)
    means = _sums(added, groups, classes) / count
    squares = _sums((added - np.take_along_axis(means, groups, 1)) ** 2, groups, classes)
    return auc / classes, np.asarray((squares * (count / (count - 1))).sum(1)) / classes**2


def _half_wins(score: Floats, positive: NDArray[np.bool_]) -> Ids:
    """[b, m] how many samples of the other kind each sample is on the right side of, twice; a tie is half of one."""
    m = len(positive)
    order = np.argsort(score, axis=1)
    ranked, positives = np.take_along_axis(score, order, 1), positive[order]
    begins = np.ones(ranked.shape, np.bool_)
    begins[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    ends = np.ones_like(begins)
    ends[:, :-1] = begins[:, 1:]
    place = np.arange(m)
    first = np.maximum.accumulate(np.where(begins, place, 0), 1)  # of the samples that are tied with this one
    past = np.minimum.accumulate(np.where(ends, place + 1, m)[:, ::-1], 1)[:, ::-1]
    seen = np.zeros((len(score), m + 1), np.int64)
    np.cumsum(positives, axis=1, out=seen[:, 1:])
    below = np.take_along_axis(seen, first, 1) + np.take_along_axis(seen, past, 1)
    won = np.empty_like(order)
    np.put_along_axis(won, order, np.where(positives, first + past - below, 2 * positive.sum() - below), 1)
    return won


def _sums(values: Floats, groups: Ids, count: int) -> Floats:
    """[b, count] sums of the values [b, m] of every group, in the order of samples."""
    size = len(values)
    numbers = groups + count * np.arange(size)[:, None]
    return np.asarray(np.bincount(numbers.ravel(), values.ravel(), size * count), np.float64).reshape(size, count)
