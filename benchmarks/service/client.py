"""One client of the service, in a separate process that imports only the standard library.

Read the task as JSON from standard input; add, search, ask and read until the time is up; write the
measurements as JSON. Requests that failed because the service was down are repeated.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from typing import Any, NamedTuple

#: Kinds of things that are seen.
LABELS = 50
#: In turn.
OPERATIONS = ("add", "query", "get", "query", "ask")
_PAUSE_S = 0.02
#: Seconds after the end within which what was begun must succeed.
_PATIENCE_S = 120.0
_HEAD = b"%b %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


class Sent(NamedTuple):
    """A request that was answered.

    Attributes:
        status: of HTTP.
        body: of the answer.
        seconds: that the last attempt took.
        attempts: how often it was sent.
    """

    status: int
    body: bytes
    seconds: float
    attempts: int


class Connection:
    """Keeps one connection, and opens it again while the service is away.

    It writes HTTP itself, because :mod:`http.client` takes several times the CPU time on shared cores.

    Args:
        port: on this computer.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: socket.socket | None = None
        #: Longest time that nobody answered, in seconds.
        self.away_s = 0.0

    def send(self, method: str, path: str, body: str | None, until: float) -> Sent | None:
        """The answer; ``None`` where there was none until a moment of :func:`time.monotonic`."""
        begun = time.monotonic()
        attempts = 0
        while attempts == 0 or time.monotonic() < until:
            attempts += 1
            start = time.perf_counter()
            try:
                if self._open is None:
                    self._open = socket.create_connection(("127.0.0.1", self._port), timeout=60)
                    self._open.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                text = (body or "").encode()
                self._open.sendall(_HEAD % (method.encode(), path.encode(), len(text)) + text)
                status, answer = _receive(self._open)
            except OSError:
                self.close()
                time.sleep(_PAUSE_S)
                continue
            spent = time.perf_counter() - start
            if attempts > 1:
                self.away_s = max(self.away_s, time.monotonic() - begun)
            return Sent(status, answer, spent, attempts)
        return None

    def close(self) -> None:
        """Let go of the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None


def _receive(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of an answer.

    Raises:
        OSError: the connection ended before.
    """
    data, body, size = b"", b"", None
    while size is None or len(body) < size:
        more = connection.recv(1 << 18)
        if not more:
            raise ConnectionError("the service closed the connection")
        data += more
        head, end, body = data.partition(b"\r\n\r\n")
        if end:
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r", 1)[0])
    return int(data[9:12]), body


def caption(client: int, number: int, part: int) -> str:
    """Key that identifies a memory within a run."""
    return f"client {client} batch {number} part {part}"


def work(task: dict[str, Any]) -> dict[str, Any]:
    """Do the task.

    Args:
        task: ``port``, ``client`` (its number), ``seconds``, ``batch`` (memories of a request), ``dim``,
            ``seed``; where they are not the usual ones also ``operations`` in turn, and ``vectors`` as JSON.

    Returns:
        ``seconds_of`` each operation, ``errors``, ``acknowledged`` rows of the number of a batch and its ids,
        ``repeated`` requests and ``away_s``.
    """
    generator = random.Random(f"{task['seed']} {task['client']}")
    operations = task.get("operations", OPERATIONS)
    vectors = task.get("vectors") or [
        json.dumps([round(generator.gauss(0.0, 1.0), 4) for _ in range(task["dim"])]) for _ in range(64)
    ]
    connection = Connection(task["port"])
    found: dict[str, Any] = {"errors": [], "acknowledged": [], "repeated": 0, "lost": 0}
    seconds: dict[str, list[float]] = {name: [] for name in OPERATIONS}
    known = 1
    end = time.monotonic() + task["seconds"]
    turn = 0
    while time.monotonic() < end:
        operation = operations[turn % len(operations)]
        number = turn // len(operations)
        turn += 1
        method, path, body = _request(operation, task, number, known, vectors, generator)
        sent = connection.send(method, path, body, end + _PATIENCE_S)
        if sent is None:
            found["lost"] += 1
            break
        found["repeated"] += sent.attempts > 1
        if sent.status != 200:
            found["errors"].append(f"{operation}: {sent.status} {sent.body[:200]!r}")
            continue
        seconds[operation].append(sent.seconds)
        if operation == "add":
            ids = json.loads(sent.body)["ids"]
            known = ids[-1]
            found["acknowledged"].append([number, ids])
    connection.close()
    return {**found, "seconds_of": seconds, "away_s": connection.away_s}


def _request(
    operation: str,
    task: dict[str, Any],
    number: int,
    known: int,
    vectors: list[str],
    generator: random.Random,
) -> tuple[str, str, str | None]:
    """Method, address and body of the next request; texts are put together, which costs the client least."""
    if operation == "add":
        rows = ",".join(
            f'{{"time_ns":{time.time_ns()},"label":"thing {generator.randrange(LABELS)}",'
            f'"caption":"{caption(task["client"], number, part)}","embedding":{generator.choice(vectors)},'
            f'"position":[{generator.uniform(-99, 99):.2f},{generator.uniform(-99, 99):.2f},0.0]}}'
            for part in range(task["batch"])
        )
        return "POST", "/api/memories", f'{{"memories":[{rows}]}}'
    if operation == "query":
        return "POST", "/api/query", f'{{"embedding":{generator.choice(vectors)},"k":10}}'
    if operation == "ask":
        label = f"thing {generator.randrange(LABELS)}"
        return "POST", "/api/ask", f'{{"question":"last_seen","what":"{label}"}}'
    return "GET", f"/api/memories/{known}", None


if __name__ == "__main__":
    json.dump(work(json.load(sys.stdin)), sys.stdout)
