"""The measures of one model's outputs, sample by sample and pair by pair, as they are defined."""

from __future__ import annotations

import math


def probabilities(outputs: list[float]) -> list[float]:
    highest = max(outputs)
    each = [math.exp(z - highest) for z in outputs]
    return [e / math.fsum(each) for e in each]


def log_odds(outputs: list[float], c: int) -> float:
    others = [z for j, z in enumerate(outputs) if j != c]
    highest = max(others)
    return outputs[c] - highest - math.log(math.fsum(math.exp(z - highest) for z in others))


def beats(one: float, other: float) -> float:
    return 1.0 if one > other else 0.5 if one == other else 0.0


def auc(outputs: list[list[float]], labels: list[int]) -> float | None:
    """Over all classes, the mean share of pairs of a sample of the class and one of another that are in order."""
    classes = range(len(outputs[0]))
    if set(labels) != set(classes):
        return None
    areas = []
    for c in classes:
        score = [log_odds(row, c) for row in outputs]
        inside = [s for s, label in zip(score, labels, strict=True) if label == c]
        outside = [s for s, label in zip(score, labels, strict=True) if label != c]
        areas.append(sum(beats(x, y) for x in inside for y in outside) / (len(inside) * len(outside)))
    return sum(areas) / len(areas)


def variance(values: list[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def binary_auc_variance(outputs: list[list[float]], labels: list[int]) -> float:
    """As DeLong, DeLong and Clarke-Pearson (1988) write it, for one curve."""
    score = [row[1] - row[0] for row in outputs]
    xs = [s for s, label in zip(score, labels, strict=True) if label == 1]
    ys = [s for s, label in zip(score, labels, strict=True) if label == 0]
    v10 = [sum(beats(x, y) for y in ys) / len(ys) for x in xs]
    v01 = [sum(beats(x, y) for x in xs) / len(xs) for y in ys]
    return variance(v10) / len(xs) + variance(v01) / len(ys)


def auc_variance(outputs: list[list[float]], labels: list[int]) -> float:
    """Of the mean over classes: what every sample adds to the curves of all classes; samples of one class vary."""
    m, classes = len(outputs), range(len(outputs[0]))
    added = [0.0] * m
    for c in classes:
        score = [log_odds(row, c) for row in outputs]
        inside = [i for i in range(m) if labels[i] == c]
        outside = [i for i in range(m) if labels[i] != c]
        for i in inside:
            added[i] += sum(beats(score[i], score[j]) for j in outside) / len(outside) / len(inside)
        for j in outside:
            added[j] += sum(beats(score[i], score[j]) for i in inside) / len(inside) / len(outside)
    total = 0.0
    for c in classes:
        mine = [added[i] / len(classes) for i in range(m) if labels[i] == c]
        total += len(mine) * variance(mine)
    return total


def log_losses(outputs: list[list[float]], labels: list[int]) -> list[float]:
    return [-math.log(probabilities(row)[label]) for row, label in zip(outputs, labels, strict=True)]


def calibration_error(outputs: list[list[float]], labels: list[int], bins: int) -> float:
    total = 0.0
    for number in range(bins):
        confidences, right = [], 0
        for row, label in zip(outputs, labels, strict=True):
            confidence = max(probabilities(row))
            if number / bins < confidence <= (number + 1) / bins:
                confidences.append(confidence)
                right += row.index(max(row)) == label
        if confidences:
            gap = abs(right / len(confidences) - math.fsum(confidences) / len(confidences))
            total += len(confidences) / len(labels) * gap
    return total
