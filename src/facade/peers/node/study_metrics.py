"""The numbers of all studies of a process on one page for Prometheus: each has the label `study`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from facade.peers.node.journal import Metrics
from facade.peers.node.metrics_server import Address, MetricsServer

if TYPE_CHECKING:
    from prometheus_client import Metric


class StudyMetrics:
    """Where the studies count; shown at an address, or, without one, to nobody."""

    def __init__(self, address: Address | None) -> None:
        from prometheus_client import CollectorRegistry

        self._of: dict[str, Metrics] = {}
        self._server = None
        if address is not None:
            registry = CollectorRegistry()
            registry.register(self)
            self._server = MetricsServer(address, registry, self.obstacle)

    @property
    def address(self) -> Address | None:
        """Where they are shown."""
        return None if self._server is None else self._server.address

    def obstacle(self) -> str:
        """Why peers cannot work with this site in any study; nothing as long as there is one in which they can."""
        found = {study: metrics.obstacle() for study, metrics in sorted(self._of.items())}
        if not found:
            return "starting"
        if not all(found.values()):
            return ""
        return "; ".join(says if len(found) == 1 else f"{study}: {says}" for study, says in found.items())

    def of(self, study: str) -> Metrics:
        """New numbers of a study; they take the place of its earlier ones."""
        made = Metrics()
        self._of = self._of | {study: made}  # in one step: the page may be asked for meanwhile
        return made

    def collect(self) -> Iterator[Metric]:
        """All numbers, those of the same name together."""
        families: dict[str, Metric] = {}
        for study, metrics in sorted(self._of.items()):
            for family in metrics.registry.collect():
                samples = [sample._replace(labels={"study": study} | sample.labels) for sample in family.samples]
                family.samples = families[family.name].samples + samples if family.name in families else samples
                families[family.name] = family
        yield from families.values()

    def close(self) -> None:
        """Free the port."""
        if self._server is not None:
            self._server.close()
