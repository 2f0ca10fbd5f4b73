"""The runs of the study of heterogeneity by question."""

from __future__ import annotations

from facade.studies import heterogeneity
from facade.studies.kept_lines import KeptLines, KeptRun
from facade.studies.numbers import KeptStudy


class HeterogeneityRuns(KeptStudy):
    """Its cases, and their runs as far as they are kept."""

    def __init__(self, kept: KeptLines) -> None:
        super().__init__(kept, [*heterogeneity.cases(), *heterogeneity.cifar_cases()])

    def skewed(self, clusters: str, alpha: float | None, loss: str, label: str) -> list[KeptRun]:
        """Runs with unequal labels under a loss."""
        balanced = None if loss == "plain" else loss
        return self.runs("labels", label, data_clusters=clusters, data_alpha=alpha, training_loss=balanced)


def share(alpha: float | None) -> str:
    """Dirichlet's parameter as it is written."""
    return "∞" if alpha is None else f"{alpha:g}"
