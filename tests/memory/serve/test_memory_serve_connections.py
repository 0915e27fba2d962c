"""Clients that keep a connection by doing nothing, little, or never reading: none of them keeps its place."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from memory.serve.limits.connections import BufferedTransport
from memory.store import MemoryStore
from memory.types import Memory

#: More than the buffers of a connection hold.
_ROWS = 400
#: What the service waits for a head or a body, and after how long a test that hangs ends.
TIMEOUT_S, GUARD_S = 3.0, 300.0
_PROGRAM = """
import sys
from memory.serve.options import ServeOptions, ServiceSettings
from memory.serve.running import serve
from memory.serve.limits.connections import BufferedTransport
from memory.store import MemoryStore

limits = ServeOptions(rate=0.0, header_timeout_s=3.0, body_timeout_s=3.0, max_connections=8)
with MemoryStore.open(sys.argv[1], create=False) as store:
    serve(store, ServiceSettings(port=0, limits=limits), ready=lambda address: print(address, flush=True))
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with little patience, of a store whose export is longer than what connections hold."""
    folder = tmp_path_factory.mktemp("stores") / "robot-store"
    with MemoryStore.open(folder, dim=3) as store:
        store.add([Memory(time_ns=row, payload={"text": "x" * 100_000}) for row in range(_ROWS)])
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, process.communicate()[1]
    yield line
    process.terminate()
    _, said = process.communicate(timeout=GUARD_S)
    assert process.returncode == 0
    assert "Traceback" not in said


def connect(address: str) -> socket.socket:
    url = httpx.URL(address)
    return socket.create_connection((url.host, url.port), timeout=GUARD_S)


REQUEST = b"GET /api/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
HEAD = (
    b"POST /api/query HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: 100\r\n\r\n{"
)


def until_closed(connection: socket.socket) -> bytes:
    """What comes before the service ends the connection."""
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


def says_nothing(address: str) -> tuple[bytes, float]:
    """What is said to a client that says nothing, and after how long it is let go."""
    begun = time.monotonic()
    with connect(address) as connection:
        return until_closed(connection), time.monotonic() - begun


def trickles(address: str) -> float:
    """After how long a client is let go whose head comes byte by byte."""
    begun = time.monotonic()
    with connect(address) as connection, contextlib.suppress(OSError):
        for byte in REQUEST[:-4] + b"\r\nx-slow: " + b"a" * 6000:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)
        raise AssertionError("the connection stayed open")
    return time.monotonic() - begun


def half_a_second_head(address: str) -> tuple[bytes, bytes]:
    """What a client is told that sends a request, and a part of another one."""
    with connect(address) as connection:
        connection.sendall(REQUEST)
        said = b""
        while not said.endswith(b"}"):
            said += connection.recv(65536)
        connection.sendall(REQUEST[:20])
        return said, until_closed(connection)


def half_a_body(address: str) -> bytes:
    """What a client is told whose body does not come."""
    with connect(address) as connection:
        connection.sendall(HEAD)
        return until_closed(connection)


def reads_nothing(address: str) -> tuple[bytes, int]:
    """The first bytes, and how many come, for a client that asks for much and reads when it is let go."""
    with connect(address) as connection:
        connection.sendall(b"GET /api/export HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        head, received = connection.recv(12), 0
        # The request that asks is the only one.
        while "recall_requests_open 1.0" not in httpx.get(f"{address}metrics", timeout=GUARD_S).text:
            time.sleep(0.05)
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 20):
                received += len(part)
        return head, received


@pytest.fixture(scope="module")
def told(address: str) -> Iterator[dict[str, Any]]:
    """What clients get that keep the service waiting, all at the same time."""
    clients = (says_nothing, trickles, half_a_second_head, half_a_body, reads_nothing)
    with ThreadPoolExecutor(len(clients)) as threads:
        started = {client.__name__: threads.submit(client, address) for client in clients}
        yield {name: future.result() for name, future in started.items()}


def test_who_says_nothing_is_let_go(told: dict[str, Any]) -> None:
    said, spent_s = told["says_nothing"]
    assert said == b""
    assert spent_s >= TIMEOUT_S


def test_a_head_that_trickles_is_ended(told: dict[str, Any]) -> None:
    assert told["trickles"] >= TIMEOUT_S


def test_the_second_head_of_a_connection_too(told: dict[str, Any]) -> None:
    first, second = told["half_a_second_head"]
    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 408")


def test_a_body_that_does_not_come_is_refused(told: dict[str, Any]) -> None:
    assert told["half_a_body"].startswith(b"HTTP/1.1 408")
    assert b'"timeout"' in told["half_a_body"]


def test_who_does_not_read_is_let_go(told: dict[str, Any]) -> None:
    head, received = told["reads_nothing"]
    assert head == b"HTTP/1.1 200"
    assert 0 < received < 100_000 * _ROWS


@pytest.mark.parametrize("said", [b"", b"GET /api/hea", HEAD], ids=["nothing", "half a head", "half a body"])
def test_waiting_connections_do_not_keep_others_out(address: str, said: bytes) -> None:
    waiting = [connect(address) for _ in range(16)]
    try:
        for connection in waiting:
            with contextlib.suppress(OSError):  # The first make room for the last.
                connection.sendall(said)
        for _ in range(3):
            assert httpx.get(f"{address}api/health", timeout=GUARD_S).status_code == 200
        # The one that came first was ended, without an answer.
        with contextlib.suppress(ConnectionResetError):
            assert waiting[0].recv(100) == b""
    finally:
        for connection in waiting:
            connection.close()


def test_a_request_without_room_is_refused(address: str) -> None:
    busy = [connect(address) for _ in range(8)]
    try:
        for connection in busy:
            connection.sendall(b"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert httpx.get(f"{address}api/health", timeout=GUARD_S).status_code == 503
    finally:
        for connection in busy:
            connection.close()


def test_who_leaves_in_the_middle_of_a_body_is_no_error(address: str) -> None:
    # The fixture looks for tracebacks at the end.
    for _ in range(3):
        with connect(address) as connection:
            connection.sendall(HEAD)
            time.sleep(0.05)
    assert httpx.get(f"{address}api/health", timeout=GUARD_S).status_code == 200


class _Wire:
    """Notes what a transport is told."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("close")

    def abort(self) -> None:
        self.told.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.told


def test_what_is_written_at_once_is_sent_at_once() -> None:
    async def run() -> None:
        wire = _Wire()
        found = BufferedTransport(wire, asyncio.get_running_loop())
        found.write(b"head ")
        found.write(b"body")
        assert wire.told == []
        await asyncio.sleep(0)
        assert wire.told == [b"head body"]
        # What is long does not wait, and keeps its place.
        found.write(b"first ")
        found.write(b"x" * 70_000)
        assert wire.told[1:] == [b"first " + b"x" * 70_000]
        await asyncio.sleep(0)
        found.write(b"last")
        assert not found.is_closing()
        found.close()
        await asyncio.sleep(0)
        assert found.is_closing()
        assert wire.told[2:] == [b"last", "close"]

        wire = _Wire()
        found = BufferedTransport(wire, asyncio.get_running_loop())
        found.write(b"lost")
        found.abort()
        await asyncio.sleep(0)
        assert wire.told == ["abort"]

    asyncio.run(run())
