"""Figures of the service and its store for Prometheus, at ``/metrics``.

Labels are bounded: a request counts for the pattern of its address (``/api/memories/{id}``), never for
what was asked, and the store is told in sums. Needs ``prometheus_client``, of the extra ``serve``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from memory.serve.service import Service

if TYPE_CHECKING:
    from prometheus_client.metrics_core import GaugeMetricFamily, Metric

#: Of a request whose address is none of ours, or that was refused before that was looked at.
_NO_ROUTE = "none"
#: Requests that last as long as somebody follows.
_ENDLESS = "/api/events"
#: Upper ends in seconds: from a lookup of one memory to a consolidation.
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts requests, and tells of the store when it is asked.

    Args:
        service: whose store it is.

    Raises:
        ModuleNotFoundError: ``prometheus_client`` is not installed.
    """

    def __init__(self, service: Service) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

        self._registry = CollectorRegistry()
        self._requests = Counter(
            "recall_requests", "Requests that were answered.", ("method", "route", "status"),
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "recall_request_seconds", "From a request to the end of its answer.", ("route",),
            buckets=_BUCKETS_S, registry=self._registry,
        )  # fmt: skip
        self._open = Gauge("recall_requests_open", "Requests that are not answered.", registry=self._registry)
        ProcessCollector(registry=self._registry)
        figures: Any = _StoreFigures(service)
        self._registry.register(figures)

    def begun(self) -> None:
        """A request came."""
        self._open.inc()

    def ended(self, scope: Any, status: int, seconds: float) -> None:
        """A request was answered, or its client has gone (status 0)."""
        self._open.dec()
        route = scope.get("route")
        path = getattr(route, "path", None) or _NO_ROUTE
        methods = getattr(route, "methods", None) or ()
        method = scope["method"] if scope["method"] in methods else "other"
        self._requests.labels(method, path, str(status)).inc()
        if path != _ENDLESS:
            self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' text format; reads the store."""
        from prometheus_client import generate_latest

        text: bytes = generate_latest(self._registry)
        return text


class _StoreFigures:
    """What is read when it is asked for."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        """Nothing: so that the store is not read when this is registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Sums over the store, and what waits."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        service = self._service
        stats = service.store.stats()
        yield _by("recall_memories", "Memories.", "kind", stats.by_kind)
        yield _by("recall_memories_by_state", "Memories.", "state", service.overview()["by_state"])
        yield _by("recall_vectors", "Vectors of memories.", "encoder", stats.vectors)
        sizes = {"file": stats.file_bytes, "log": stats.log_bytes, "free": stats.free_bytes}
        yield _by(
            "recall_store_bytes", "Database, its write-ahead log, and what is free in it.", "part", sizes
        )
        yield CounterMetricFamily("recall_operations", "Operations on the store.", value=stats.generation)
        yield _by("recall_waiting", "Calls that wait for a thread.", "threads", service.waiting)
        yield _by("recall_working", "Calls that a thread is at.", "threads", service.working)
        held = float(service.held_bytes)
        yield GaugeMetricFamily("recall_held_bytes", "Bodies that are not answered.", value=held)
        followers = float(service.feed.followers)
        yield GaugeMetricFamily("recall_followers", "Clients that follow what happens.", value=followers)
        readonly = float(service.readonly)
        yield GaugeMetricFamily("recall_readonly", "1: nothing may be changed.", value=readonly)


def _by(name: str, help_text: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, help_text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
