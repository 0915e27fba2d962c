"""Readers answer queries of one port, and forward what changes the store to the process that writes."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from service_process import Served

from memory.errors import StoreError
from memory.search.accesses import Accesses
from memory.serve import create_app
from memory.serve.app import make_app
from memory.serve.errors import ServiceError
from memory.serve.forwarding import WriterClient, is_forwarded
from memory.serve.options import ServeOptions, ServiceSettings
from memory.serve.readers.pool import ReaderPool
from memory.serve.readers.serving import serve_with_readers
from memory.store import MemoryStore
from memory.types import Memory

MUG = {"time": "2026-01-02T10:00:00Z", "label": "Mug", "caption": "red mug", "embedding": [0, 1, 0]}
#: Requests of a service that change the store, or whose state one process holds.
FORWARDED = {
    ("POST", "/api/memories"), ("POST", "/api/mark"), ("POST", "/api/forget"), ("POST", "/api/undo"),
    ("POST", "/api/consolidate"), ("POST", "/api/areas"), ("POST", "/api/areas/remove"),
    ("POST", "/api/sync"), ("POST", "/api/areas/sync"), ("POST", "/api/areas/pull"),
    ("GET", "/api/sync/{store}"), ("POST", "/api/pull"), ("GET", "/metrics"),
}  # fmt: skip


def ask(port: int, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
    """Status and JSON of a request over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(text)


def port_of(served: Served) -> int:
    return int(served.address.rstrip("/").rpartition(":")[2])


def readers_of(served: Served) -> list[int]:
    """Process ids of the readers."""
    tasks = Path(f"/proc/{served.process.pid}/task")
    return [int(each) for task in tasks.iterdir() for each in (task / "children").read_text().split()]


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.05)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    MemoryStore.open(tmp_path / "store", dim=3).close()
    service = Served(
        tmp_path / "store", "--readers", "2", "--rate", "0", environment={"RECALL_TOKEN": "word"}
    )
    yield service
    if service.process.poll() is None:
        service.end()


def test_every_address_is_read_or_forwarded(store: MemoryStore) -> None:
    app = create_app(store)
    found = {
        (method, route.path)
        for route in app.state.addresses
        for method in route.methods or ()
        if is_forwarded(method, route.path.replace("{store}", "x").replace("{id}", "1"))
    }
    assert found == FORWARDED
    assert not is_forwarded("GET", "/index.html")
    assert not is_forwarded("POST", "/api/query")


def test_a_reader_is_not_read_only_for_clients(tmp_path: Path) -> None:
    MemoryStore.open(tmp_path, dim=3).close()
    with MemoryStore.open(tmp_path, readonly=True) as store:
        assert create_app(store).state.service.readonly
        assert not make_app(store, None, ServeOptions(), str(tmp_path / "writer")).state.service.readonly


def test_without_a_writer_a_request_is_refused(tmp_path: Path) -> None:
    client = WriterClient(str(tmp_path / "nobody"))
    with pytest.raises(ServiceError, match="Try again later"):
        asyncio.run(client.send("POST", b"/api/mark", [], b"{}"))


def test_a_writer_that_ends_before_its_answer_is_reported(tmp_path: Path) -> None:
    """The request may have been executed, so it is not sent again."""
    taken = []

    async def run() -> None:
        async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-le")
            writer.close()

        path = str(tmp_path / "writer")
        async with await asyncio.start_unix_server(leave, path):
            with pytest.raises(ServiceError, match="Check /api/log"):
                await WriterClient(path).send("POST", b"/api/mark", [(b"host", b"x")], b"{}")

    asyncio.run(run())
    assert len(taken) == 1
    assert taken[0].startswith(b"POST /api/mark HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n")


def test_connections_to_the_writer_are_used_again(tmp_path: Path) -> None:
    opened = 0

    async def run() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal opened
            opened += 1
            with suppress(asyncio.IncompleteReadError):
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(
                        b"HTTP/1.1 201 Made\r\nConnection: keep-alive\r\nX: y\r\nContent-Length: 2\r\n\r\nok"
                    )
            writer.close()

        path = str(tmp_path / "writer")
        async with await asyncio.start_unix_server(answer, path):
            client = WriterClient(path)
            for _ in range(3):
                reply = await client.send("GET", b"/metrics", [], b"")
                assert (reply.status, reply.body) == (201, b"ok")
                assert reply.headers == [(b"x", b"y"), (b"content-length", b"2")]
            await client.close()

    asyncio.run(run())
    assert opened == 1


def test_a_store_on_a_server_needs_no_readers(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(store.database), "shared", True)
    with pytest.raises(ValueError, match="several services"):
        serve_with_readers(store, ServiceSettings(port=0), 1)


def test_readers_that_cannot_start_are_reported(tmp_path: Path) -> None:
    pool = ReaderPool(1, {}, stop_s=30.0, accessed=lambda counts: None)
    with pytest.raises(StoreError, match="ended with status 1"):
        pool.start()
    assert pool.pids == []


def test_accesses_of_a_reader_are_taken(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=3) as writer:
        writer.add([Memory(time_ns=1, label="Mug"), Memory(time_ns=2, label="Door")])
        with MemoryStore.open(tmp_path, readonly=True) as reader:
            reader.get([1])
            assert reader.accesses.take() == {}
            counted: Accesses = reader.accesses
            counted.collect()
            counted.note([1, 2, 1])
            taken = counted.take()
            assert taken == {1: 2, 2: 1}
            assert counted.take() == {}
            writer.accesses.add(taken)
            writer.accesses.write()
            assert reader.database.scan_columns().access_counts.tolist() == [2, 1]


@pytest.mark.slow
def test_reads_follow_writes_on_every_connection(served: Served) -> None:
    port = port_of(served)
    assert ask(port, "GET", "/api/health")[0] == 401
    for number in range(1, 21):
        assert ask(port, "POST", "/api/memories", {"memories": [MUG]}, "word") == (200, {"ids": [number]})
        # Each request has a new connection, so any reader may answer.
        assert ask(port, "GET", "/api/health", token="word")[1] == {
            "status": "ok", "generation": number, "readonly": False,
        }  # fmt: skip
        status, found = ask(port, "POST", "/api/query", {"text": "mug", "k": 100}, "word")
        assert (status, len(found["hits"])) == (200, number)
    status, answer = ask(port, "POST", "/api/memories", {"memories": [{"x": "y"}]}, "word")
    assert (status, answer["error"]["type"]) == (422, "invalid")
    assert ask(port, "POST", "/api/forget", {"ids": [1]}, "word")[1]["can_be_undone"]
    status, remarks = served.end()
    assert (status, remarks) == (0, "")


@pytest.mark.slow
def test_a_killed_reader_is_replaced_and_a_killed_writer_leaves_no_reader(
    served: Served, tmp_path: Path
) -> None:
    port, first = port_of(served), readers_of(served)
    assert len(first) == 2
    assert ask(port, "POST", "/api/memories", {"memories": [MUG, MUG]}, "word")[0] == 200
    os.kill(first[0], signal.SIGKILL)
    wait_for(lambda: len(set(readers_of(served)) - set(first)) == 1)
    assert ask(port, "POST", "/api/query", {"text": "mug"}, "word")[0] == 200
    last = readers_of(served)
    served.process.kill()
    served.process.communicate()
    wait_for(lambda: not any(Path(f"/proc/{each}/stat").exists() for each in last))
    with MemoryStore.open(tmp_path / "store") as store:
        assert len(store) == 2


@pytest.mark.slow
def test_accesses_of_readers_are_stored(served: Served, tmp_path: Path) -> None:
    port = port_of(served)
    ask(port, "POST", "/api/memories", {"memories": [MUG, {**MUG, "caption": "blue mug"}]}, "word")
    for _ in range(7):
        assert ask(port, "POST", "/api/query", {"text": "red mug"}, "word")[0] == 200
    assert served.end()[0] == 0
    with MemoryStore.open(tmp_path / "store", readonly=True) as store:
        assert store.database.scan_columns().access_counts.tolist() == [7, 0]
