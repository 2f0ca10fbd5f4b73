"""The numbers of all studies of a process on one page for Prometheus: each has the label `study`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from facade.errors import ExperimentError
from facade.peers.node.journal import Metrics

if TYPE_CHECKING:
    from prometheus_client import Metric


class StudyMetrics:
    """Where the studies count; shown at a port of 127.0.0.1, or, without one, to nobody."""

    def __init__(self, port: int) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        self._of: dict[str, Metrics] = {}
        self._server = None
        registry = CollectorRegistry()
        registry.register(self)
        if port:
            try:
                self._server, self._thread = start_http_server(port, "127.0.0.1", registry)
            except OSError as error:
                raise ExperimentError(f"metrics_port = {port} cannot be used: {error.strerror}") from None

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
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
