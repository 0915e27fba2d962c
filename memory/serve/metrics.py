"""Metrics of the service and its store for Prometheus, at ``/metrics``.

Requests are counted by the pattern of their address (``/api/memories/{id}``), so the number of labels is
bounded. Needs ``prometheus_client`` of the extra ``serve``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from memory.serve.service import StoreService

if TYPE_CHECKING:
    from prometheus_client.metrics_core import GaugeMetricFamily, Metric

#: Route of requests with an unknown address, or refused before routing.
_NO_ROUTE = "none"
#: Address of event streams, which have no duration.
_ENDLESS = "/api/events"
#: Upper bounds of the histogram in seconds.
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Metrics of a service; raises ``ModuleNotFoundError`` without ``prometheus_client``."""

    def __init__(self, service: StoreService) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

        self._registry = CollectorRegistry()
        self._requests = Counter(
            "recall_requests", "Answered requests.", ("method", "route", "status"),
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "recall_request_seconds", "Duration of requests in seconds.", ("route",),
            buckets=_BUCKETS_S, registry=self._registry,
        )  # fmt: skip
        #: Counter and histogram by method, route and status; looking them up takes longer than counting.
        self._known: dict[tuple[str, str, int], tuple[Any, Any]] = {}
        self._open = Gauge("recall_requests_open", "Requests in progress.", registry=self._registry)
        ProcessCollector(registry=self._registry)
        figures: Any = _StoreFigures(service)
        self._registry.register(figures)

    def begun(self) -> None:
        """Count a new request."""
        self._open.inc()

    def ended(self, scope: Any, status: int, seconds: float) -> None:
        """Count an answered request; status 0 if the client left."""
        self._open.dec()
        route = scope.get("route")
        path = getattr(route, "path", None) or _NO_ROUTE
        methods = getattr(route, "methods", None) or ()
        method = scope["method"] if scope["method"] in methods else "other"
        known = self._known.get((method, path, status))
        if known is None:
            endless = path == _ENDLESS
            known = (
                self._requests.labels(method, path, str(status)),
                None if endless else self._seconds.labels(path),
            )
            self._known[method, path, status] = known
        counter, histogram = known
        counter.inc()
        if histogram is not None:
            histogram.observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format; reads the store."""
        from prometheus_client import generate_latest

        text: bytes = generate_latest(self._registry)
        return text


class _StoreFigures:
    """Collector that reads the store on each scrape."""

    def __init__(self, service: StoreService) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not read the store."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield counts of the store and queue lengths."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        service = self._service
        stats = service.store.stats()
        yield _by("recall_memories", "Memories.", "kind", stats.by_kind)
        yield _by("recall_memories_by_state", "Memories.", "state", service.overview()["by_state"])
        yield _by("recall_vectors", "Vectors of memories.", "encoder", stats.vectors)
        sizes = {"file": stats.file_bytes, "log": stats.log_bytes, "free": stats.free_bytes}
        yield _by(
            "recall_store_bytes",
            "Bytes of the database, its write-ahead log, and free space in it.",
            "part",
            sizes,
        )
        yield CounterMetricFamily("recall_operations", "Operations on the store.", value=stats.generation)
        yield _by("recall_waiting", "Calls waiting for a thread.", "threads", service.waiting)
        yield _by("recall_working", "Calls running in a thread.", "threads", service.working)
        held = float(service.held_bytes)
        yield GaugeMetricFamily("recall_held_bytes", "Bytes of unanswered request bodies.", value=held)
        followers = float(service.feed.followers)
        yield GaugeMetricFamily("recall_followers", "Event streams.", value=followers)
        readonly = float(service.readonly)
        yield GaugeMetricFamily("recall_readonly", "1 if the store is read-only.", value=readonly)


def _by(name: str, help_text: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, help_text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
