"""Figures for Prometheus: what is counted, what is never a label, and who may ask."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from memory.serve.workers.threads import CountedThreads


def figures(client: Any) -> dict[tuple[str, ...], float]:
    """Value by name and labels, as Prometheus' own parser reads them."""
    parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus_client")
    answer = client.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    families = list(parser.text_string_to_metric_families(answer.text))
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for each in families
        for sample in each.samples
    }


def test_requests_and_the_store(client: Any) -> None:
    client.get("/api/memories/1")
    client.get("/api/memories/2")
    client.get("/api/memories/99")
    client.get("/secret-address")
    client.ask("BREW", "/api/stats")
    client.post("/api/forget", {"ids": [2]})
    client.post("/api/mark", {"ids": [1]})
    found = figures(client)
    route = "/api/memories/{id}"
    assert found["recall_requests_total", "GET", route, "200"] == 2
    assert found["recall_requests_total", "GET", route, "404"] == 1
    assert found["recall_requests_total", "POST", "/api/memories", "200"] == 1
    assert found["recall_request_seconds_count", route] == 3
    assert found["recall_request_seconds_bucket", "+Inf", route] == 3
    assert found["recall_requests_open",] == 1  # This one.
    assert (found["recall_memories", "object"], found["recall_memories", "place"]) == (2, 1)
    assert (found["recall_memories_by_state", "gone"], found["recall_memories_by_state", "present"]) == (1, 2)
    assert found["recall_vectors", "default"] == 3
    assert found["recall_store_bytes", "file"] > 4096
    assert found["recall_operations_total",] == 3
    assert (found["recall_waiting", "read"], found["recall_working", "read"]) == (0, 1)
    assert found["recall_followers",] == found["recall_held_bytes",] == found["recall_readonly",] == 0
    assert found["process_resident_memory_bytes",] > 1e6
    # Neither what was asked nor by which invented method becomes a label.
    assert not [key for key in found if any("secret" in part or "BREW" in part for part in key)]
    assert found["recall_requests_total", "other", "none", "404"] == 1
    assert found["recall_requests_total", "other", "/api/stats", "405"] == 1


def test_with_a_token_figures_need_it_too(make_client: Callable[..., Any]) -> None:
    client = make_client(token="sesame")
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics?token=sesame").status_code == 401
    pytest.importorskip("prometheus_client", reason="needs prometheus_client")
    answer = client.get("/metrics", headers={"authorization": "Bearer sesame"})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert 'recall_requests_total{method="other",route="none",status="401"} 2.0' in answer.text
    assert client.ask("POST", "/metrics", headers={"authorization": "Bearer sesame"}).status_code == 405


def test_without_the_package_the_answer_says_what_to_install(
    make_client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "prometheus_client"]:
        monkeypatch.delitem(sys.modules, name)
    imported = builtins.__import__

    def refusing(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "prometheus_client":
            raise ModuleNotFoundError(name=name)
        return imported(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refusing)
    client = make_client()
    answer = client.get("/metrics")
    assert (answer.status_code, answer.json()["error"]["type"]) == (501, "not_installed")
    assert "pip install 'sparsight[serve]'" in answer.text
    assert client.get("/api/health").status_code == 200


def test_threads_count_what_waits() -> None:
    threads, go = CountedThreads(1, "test"), threading.Event()
    began = threading.Event()

    def first() -> str:
        began.set()
        go.wait()
        return "first"

    futures = [threads.submit(first), threads.submit(lambda: "second"), threads.submit(lambda: "third")]
    assert began.wait(300)
    assert (threads.waiting, threads.working) == (2, 1)
    assert futures[2].cancel()
    assert threads.waiting == 1
    go.set()
    assert [future.result() for future in futures[:2]] == ["first", "second"]
    threads.shutdown()
    assert (threads.waiting, threads.working) == (0, 0)
