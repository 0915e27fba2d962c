"""Clients that keep a connection by doing nothing, little, or never reading: none of them keeps its place."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from memory.serve.connections import Together
from memory.store import MemoryStore
from memory.types import Memory

#: More than the buffers of a connection hold.
_ROWS = 400
_PROGRAM = """
import sys
from memory.serve.options import ServeOptions
from memory.serve.running import serve
from memory.serve.connections import Together
from memory.store import MemoryStore

limits = ServeOptions(rate=0.0, header_timeout_s=0.6, body_timeout_s=1.2, max_connections=4)
with MemoryStore.open(sys.argv[1], create=False) as store:
    serve(store, port=0, options=limits, ready=lambda address: print(address, flush=True))
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
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in said


def connect(address: str) -> socket.socket:
    url = httpx.URL(address)
    return socket.create_connection((url.host, url.port), timeout=20)


def until_closed(connection: socket.socket) -> tuple[bytes, float]:
    """What comes before the service ends the connection, and after how long."""
    begun = time.monotonic()
    found = b""
    while part := connection.recv(65536):
        found += part
    return found, time.monotonic() - begun


def test_who_says_nothing_is_let_go(address: str) -> None:
    with connect(address) as connection:
        said, spent = until_closed(connection)
    assert said == b""
    assert 0.4 < spent < 10


def test_a_head_that_trickles_is_ended(address: str) -> None:
    with connect(address) as connection:
        begun = time.monotonic()
        try:
            for byte in b"GET /api/health HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: " + b"a" * 200:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
            pytest.fail("the connection stayed open")
        except OSError:
            pass  # Ended by the other side.
        assert 0.4 < time.monotonic() - begun < 8


def test_the_second_head_of_a_connection_too(address: str) -> None:
    request = b"GET /api/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    with connect(address) as connection:
        connection.sendall(request)
        said = b""
        while not said.endswith(b"}"):
            said += connection.recv(65536)
        assert said.startswith(b"HTTP/1.1 200")
        connection.sendall(request[:20])
        said, _ = until_closed(connection)
    assert said.startswith(b"HTTP/1.1 408")


def test_a_body_that_does_not_come_is_refused(address: str) -> None:
    with connect(address) as connection:
        connection.sendall(
            b"POST /api/query HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"content-length: 100\r\n\r\n{"
        )
        said = connection.recv(65536)
        assert said.startswith(b"HTTP/1.1 408")
        while b'"timeout"' not in said:
            said += connection.recv(65536)


def test_who_does_not_read_is_let_go(address: str) -> None:
    with connect(address) as connection:
        connection.sendall(b"GET /api/export HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
        # Beside other programs the server is late to see who does not read.
        time.sleep(6)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 20):
                received += len(part)
        assert 0 < received < 100_000 * _ROWS


HEAD = (
    b"POST /api/query HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: 100\r\n\r\n{"
)


@pytest.mark.parametrize("said", [b"", b"GET /api/hea", HEAD], ids=["nothing", "half a head", "half a body"])
def test_waiting_connections_do_not_keep_others_out(address: str, said: bytes) -> None:
    waiting = [connect(address) for _ in range(8)]
    try:
        for connection in waiting:
            with contextlib.suppress(OSError):  # The first make room for the last.
                connection.sendall(said)
        for _ in range(3):
            assert httpx.get(f"{address}api/health", timeout=20).status_code == 200
        # The one that came first was ended, without an answer.
        with contextlib.suppress(ConnectionResetError):
            assert waiting[0].recv(100) == b""
    finally:
        for connection in waiting:
            connection.close()


def test_who_leaves_in_the_middle_of_a_body_is_no_error(address: str) -> None:
    # The fixture looks for tracebacks at the end.
    for _ in range(3):
        with connect(address) as connection:
            connection.sendall(HEAD)
            time.sleep(0.05)
    assert httpx.get(f"{address}api/health", timeout=20).status_code == 200


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
        found = Together(wire, asyncio.get_running_loop())
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
        found = Together(wire, asyncio.get_running_loop())
        found.write(b"lost")
        found.abort()
        await asyncio.sleep(0)
        assert wire.told == ["abort"]

    asyncio.run(run())
