"""What whoever watches over a run is told, over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from perception.live import Figures
from perception.live.health import HealthServer


class Clock:
    """What the modules use of ``time``, moved by tests alone."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of figures and of the server."""
    made = Clock()
    for module in ("figures", "health"):
        monkeypatch.setattr(f"perception.live.{module}.time", made)
    return made


@pytest.fixture
def figures(clock: Clock) -> Figures:
    """Of three scans, one of which made way."""
    made = Figures(arrived=3, dropped=1)
    made.frame(0.04, tracks=1, objects=1)
    made.frame(0.2, tracks=2, objects=3)
    return made


@pytest.fixture
def server(figures: Figures) -> Iterator[HealthServer]:
    """At a port that was free."""
    made = HealthServer(figures, port=0)
    yield made
    made.close()


def get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=300) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_run_is_well_until_scans_or_signs_of_life_stay_away(
    server: HealthServer, figures: Figures, clock: Clock
) -> None:
    status, text = get(server, "/healthz")
    told = json.loads(text)
    assert (status, told["status"], told["done"], told["dropped"]) == (200, "ok", 2, 1)
    clock.now_s += 11
    status, text = get(server, "/healthz")
    assert (status, json.loads(text)["status"]) == (503, "a frame has taken 11 s so far")
    server.alive()
    status, text = get(server, "/healthz")
    assert (status, json.loads(text)["status"]) == (503, "no scan for 11 s")
    figures.frame(0.1, tracks=0, objects=3)
    assert get(server, "/healthz")[0] == 200
    assert get(server, "/else") == (404, "/healthz or /metrics")


def test_figures_for_prometheus(server: HealthServer, figures: Figures) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus_client (extra 'live')")
    figures.memories = 7
    status, text = get(server, "/metrics")
    assert status == 200
    found = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["perceive_arrived_total", None] == 3
    assert found["perceive_dropped_total", None] == 1
    assert (found["perceive_tracks", None], found["perceive_memories", None]) == (2, 7)
    assert found["perceive_latency_seconds_bucket", "0.05"] == 1
    assert found["perceive_latency_seconds_bucket", "+Inf"] == 2
    assert found["perceive_latency_seconds_sum", None] == pytest.approx(0.24)


def test_without_the_library_and_with_a_taken_port(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perception.live.health.module_available", lambda name: False)
    status, text = get(server, "/metrics")
    assert status == 501
    assert "pip install 'sparsight[live]'" in text
    with pytest.raises(OSError, match=rf"port {server.port} failed.*another --health port"):
        HealthServer(Figures(), port=server.port)
