"""What takes a moment is done by the thread of the event loop, everything else is not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from memory import Memory, MemoryStore
from memory.serve.workers import moments
from memory.serve.workers.moments import Moments

QUERY = {"embedding": [0, 1, 0.1], "k": 3}


@pytest.fixture
def threads(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each query of the store whether it came from the loop's thread."""
    found: list[bool] = []
    query = store.query
    loops = threading.get_ident()

    def noted(*given: Any, **named: Any) -> Any:
        found.append(threading.get_ident() == loops)
        return query(*given, **named)

    monkeypatch.setattr(store, "query", noted)
    return found


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments that are never over: a busy machine may take long for anything."""
    monkeypatch.setattr(moments, "_spent", lambda: moments._Spent(0.0, 0))


def test_a_vector_alone_is_searched_at_once(client: Any, threads: list[bool], patient: None) -> None:
    first = client.post("/api/query", QUERY)  # Makes the index, which may take long.
    assert threads == [False]
    again = client.post("/api/query", QUERY)
    assert threads == [False, True]
    assert again.content == first.content
    assert len(again.json()["hits"]) == 3


@pytest.mark.parametrize(
    "more",
    [
        {"k": 33}, {"text": "mug"}, {"labels": ["Mug"]}, {"aggregate": True}, {"near": [0, 0]},
        {"min_confidence": 0.5}, {"between_ns": [0, 5]}, {"order": "recency"},
    ],
)  # fmt: skip
def test_other_queries_are_not(client: Any, threads: list[bool], patient: None, more: dict[str, Any]) -> None:
    client.post("/api/query", QUERY)
    threads.clear()
    client.post("/api/query", QUERY | more)
    assert True not in threads


def test_what_was_stored_before_is_found(client: Any, threads: list[bool], patient: None) -> None:
    client.post("/api/query", QUERY)
    for number in range(3):
        record = {"time_ns": number, "embedding": [0.3, 1, number]}
        ids = client.post("/api/memories", {"memories": [record]}).json()["ids"]
        found = client.post("/api/query", {"embedding": [0.3, 1, number], "k": 1}).json()["hits"]
        assert [hit["memory"]["id"] for hit in found] == ids
    assert threads == [False, True, True, True]


def test_who_is_far_behind_catches_up_in_a_thread(
    client: Any, store: MemoryStore, threads: list[bool], patient: None
) -> None:
    client.post("/api/query", QUERY)
    ids = store.add([Memory(time_ns=row, embedding=np.ones(3, np.float32)) for row in range(40)])
    client.post("/api/query", QUERY)
    store.repose(ids[:1], [[1.0, 2.0, 3.0]], [0.0])
    client.post("/api/query", QUERY)
    client.post("/api/query", QUERY)
    assert threads == [False, False, False, True]


def test_nobody_waits_for_another_thread(
    client: Any, store: MemoryStore, threads: list[bool], patient: None
) -> None:
    client.post("/api/query", QUERY)
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with store._retriever.indexes.lock:
            begun.set()
            end.wait(300)

    holder = threading.Thread(target=hold)
    holder.start()
    assert begun.wait(300)
    timer = threading.Timer(0.2, end.set)
    timer.start()
    assert client.post("/api/query", QUERY).status_code == 200
    assert threads == [False, False]
    holder.join()


@pytest.mark.parametrize("embedding", [[0, 0, 0], [1, 2], [], [1, "x", 0], [1e39, 0, 0]])
def test_errors_are_those_of_a_thread(client: Any, patient: None, embedding: list[Any]) -> None:
    first = client.post("/api/query", {"embedding": embedding})
    client.post("/api/query", QUERY)
    again = client.post("/api/query", {"embedding": embedding})
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert first.status_code == 422


def test_what_takes_long_goes_to_threads_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Moments(moment_s=0.02, pause_s=0.2)
    now_s = 1000.0
    monkeypatch.setattr(moments, "time", SimpleNamespace(monotonic=lambda: now_s))
    with found.watched():
        pass
    assert found.now
    with found.watched():
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
    assert not found.now
    now_s += 0.19
    assert not found.now
    now_s += 0.02
    assert found.now


def test_what_reads_from_the_disk_goes_to_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter(
        [moments._Spent(0.0, 7), moments._Spent(0.0, 7), moments._Spent(0.0, 7), moments._Spent(0.0, 8)]
    )
    monkeypatch.setattr(moments, "_spent", lambda: next(spent))
    found = Moments()
    with found.watched():
        pass
    assert found.now
    with found.watched():
        pass
    assert not found.now


def test_a_store_that_is_only_read_follows(
    store: MemoryStore, make_client: Callable[..., Any], tmp_path: Path, patient: None
) -> None:
    from memory.serve import ServeOptions, create_app
    from tests.memory.serve.conftest import Client

    store.add([Memory(time_ns=1, embedding=np.array([1, 0, 0], np.float32))])
    with MemoryStore.open(store.folder, readonly=True) as reader:
        client = Client(create_app(reader, options=ServeOptions(threads=2)), base="http://127.0.0.1:8713")
        for number in range(2, 5):
            vector = np.array([1, number, 0], np.float32)
            client.post("/api/query", QUERY)
            store.add([Memory(time_ns=number, embedding=vector)])
            (hit,) = client.post("/api/query", {"embedding": vector.tolist(), "k": 1}).json()["hits"]
            assert hit["memory"]["id"] == number
        client.runner.close()


def test_others_are_heard_between_two() -> None:
    order: list[str] = []

    async def run() -> None:
        found = Moments()

        async def other(name: str) -> None:
            order.append(name)

        async def one(name: str) -> None:
            async with found.turn():
                order.append(name)
                others.append(asyncio.ensure_future(other(f"after {name}")))

        others: list[asyncio.Future[None]] = []
        await asyncio.gather(*(one(name) for name in "abc"))
        await asyncio.gather(*others)

    asyncio.run(run())
    assert order == ["a", "after a", "b", "after b", "c", "after c"]
