"""``/healthz`` and ``/metrics`` of a live run, for whoever watches over it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from perception.live.figures import Figures
from sparse_core.common.libraries import missing, module_available

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: Without a scan, and without a sign of life, for so many seconds a run is not well.
STALE_S, DEAD_S = 10.0, 5.0
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
#: Upper ends in seconds, of latencies.
_BUCKETS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
_COUNTS = {
    "arrived": "Scans that came.",
    "done": "Scans whose boxes are known.",
    "dropped": "Scans that made way for newer ones.",
    "passed_over": "Scans left out to keep to a rate.",
    "unreadable": "Scans that could not be used.",
    "late": "Scans of an earlier moment than the one before.",
    "without_pose": "Scans of which nobody said where they were made.",
    "reconnects": "Times that the source was opened again.",
    "restarts": "Times that tracks began anew.",
    "unpublished": "Results that those who show or keep them were too slow for.",
    "things": "Things that were tracked.",
}


class HealthServer:
    """Answers GET requests in threads of its own.

    ``/healthz`` is 200 while the run goes on and scans come, else 503; both say more as JSON. ``/metrics``
    has the figures in Prometheus' text format.

    Args:
        figures: of the run.
        host: of this computer to listen at.
        port: 0 for any that is free.
        stale_s: without a scan for so long the run is not well.

    Raises:
        OSError: the port cannot be listened at.
    """

    def __init__(
        self, figures: Figures, *, host: str = "127.0.0.1", port: int = 8766, stale_s: float = STALE_S
    ) -> None:
        self._figures, self._stale_s = figures, stale_s
        self._alive_s = time.monotonic()
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(self))
        except OSError as error:
            hint = "take another --health port"
            raise OSError(
                error.errno, f"cannot listen at {host} port {port}: {error.strerror}; {hint}"
            ) from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    def alive(self) -> None:
        """The run goes on."""
        self._alive_s = time.monotonic()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def health(self) -> tuple[int, dict[str, Any]]:
        """Status of ``/healthz``, and what it says."""
        silent_s, idle_s = time.monotonic() - self._alive_s, self._figures.idle_s
        if silent_s > DEAD_S:
            status, said = 503, f"a frame has taken {silent_s:.0f} s so far"
        elif idle_s > self._stale_s:
            status, said = 503, f"no scan for {idle_s:.0f} s"
        else:
            status, said = 200, "ok"
        return status, {"status": said, "idle_s": round(idle_s, 2), **self._figures.now()}

    def metrics(self) -> bytes:
        """The text of ``/metrics``.

        Raises:
            ImportError: prometheus_client is missing.
        """
        if not module_available("prometheus_client"):
            raise ImportError(missing("prometheus_client", "pip install 'sparsight[live]'"))
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_Collected(self._figures))
        text: bytes = generate_latest(registry)
        return text


class _Collected:
    """The figures as families of metrics."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        counts, latency = self._figures.counts(), self._figures.latency
        for name, help_text in _COUNTS.items():
            yield CounterMetricFamily(f"perceive_{name}", help_text, value=counts[name])
        yield GaugeMetricFamily("perceive_tracks", "Tracks that go on.", value=counts["tracks"])
        if "memories" in counts:
            yield GaugeMetricFamily("perceive_memories", "Memories in the store.", value=counts["memories"])
        buckets = [(str(end), latency.below(end)) for end in _BUCKETS_S]
        yield HistogramMetricFamily(
            "perceive_latency_seconds", "From the arrival of a scan to its tracks.",
            buckets=[*buckets, ("+Inf", latency.count)], sum_value=latency.total_s,
        )  # fmt: skip


def _handler(server: HealthServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            """Answer."""
            path = self.path.partition("?")[0]
            if path == "/healthz":
                status, said = server.health()
                self._answer(status, "application/json", json.dumps(said).encode())
            elif path == "/metrics":
                try:
                    self._answer(200, _TEXT, server.metrics())
                except ImportError as error:
                    self._answer(501, "text/plain", str(error).encode())
            else:
                self._answer(404, "text/plain", b"/healthz or /metrics")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing: it is asked every few seconds."""

    return Handler
