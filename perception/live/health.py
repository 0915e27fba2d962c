"""``/healthz`` and ``/metrics`` of a live run, for monitoring."""

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

#: Seconds without a scan, and without a heartbeat, after which a run is unhealthy.
STALE_S, DEAD_S = 10.0, 5.0
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
#: Upper bounds of latency buckets in seconds.
_BUCKETS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
_COUNTS = {
    "arrived": "Scans that arrived.",
    "done": "Processed scans.",
    "dropped": "Scans dropped for newer ones.",
    "skipped": "Scans skipped to keep the rate.",
    "unreadable": "Unusable scans.",
    "late": "Scans earlier than the one before.",
    "without_pose": "Scans without a pose.",
    "reconnects": "Times that the source was reopened.",
    "restarts": "Times that tracking restarted.",
    "unpublished": "Results dropped because sinks were too slow.",
    "objects": "Tracked objects.",
}


class HealthServer:
    """HTTP server for monitoring, in its own threads.

    ``/healthz`` returns 200 while scans are processed, else 503, with figures as JSON. ``/metrics`` returns
    figures in Prometheus' text format.

    Args:
        figures: figures of the run.
        host: address to listen on.
        port: port to listen on; 0 chooses a free one.
        stale_s: seconds without a scan after which the run is unhealthy.

    Raises:
        OSError: the port is in use or not allowed.
    """

    def __init__(
        self, figures: Figures, *, host: str = "127.0.0.1", port: int = 8766, stale_s: float = STALE_S
    ) -> None:
        self._figures, self._stale_s = figures, stale_s
        self._alive_s = time.monotonic()
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(self))
        except OSError as error:
            problem = (
                f"listening on {host} port {port} failed ({error.strerror}). Choose another --health port."
            )
            raise OSError(error.errno, problem) from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    def alive(self) -> None:
        """Record a heartbeat of the run."""
        self._alive_s = time.monotonic()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def health(self) -> tuple[int, dict[str, Any]]:
        """Return status and content of ``/healthz``."""
        silent_s, idle_s = time.monotonic() - self._alive_s, self._figures.idle_s
        if silent_s > DEAD_S:
            status, said = 503, f"a frame has taken {silent_s:.0f} s so far"
        elif idle_s > self._stale_s:
            status, said = 503, f"no scan for {idle_s:.0f} s"
        else:
            status, said = 200, "ok"
        return status, {"status": said, "idle_s": round(idle_s, 2), **self._figures.now()}

    def metrics(self) -> bytes:
        """Return the text of ``/metrics``; raise ``ImportError`` without prometheus_client."""
        if not module_available("prometheus_client"):
            raise ImportError(missing("prometheus_client", "pip install 'sparsight[live]'"))
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_FigureCollector(self._figures))
        text: bytes = generate_latest(registry)
        return text


class _FigureCollector:
    """Collector of the figures for Prometheus."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        counts, latency = self._figures.counts(), self._figures.latency
        for name, help_text in _COUNTS.items():
            yield CounterMetricFamily(f"perceive_{name}", help_text, value=counts[name])
        yield GaugeMetricFamily("perceive_tracks", "Current tracks.", value=counts["tracks"])
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
            """Answer a request."""
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
            """Log nothing, because monitoring asks every few seconds."""

    return Handler
