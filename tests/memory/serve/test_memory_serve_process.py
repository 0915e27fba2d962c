"""A service in a process of its own: live updates, a clean end, and none."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from memory.cli import main
from memory.store import MemoryStore
from memory.types import Memory

#: Seconds after which a test that hangs ends.
GUARD_S = 300.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "robot-store"
    MemoryStore.open(made, dim=3).close()
    return made


def told(lines: Iterator[str], count: int) -> list[tuple[int, dict[str, Any]]]:
    """Numbers and contents of the next operations of a stream."""
    found: list[tuple[int, dict[str, Any]]] = []
    number, event = -1, ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            number = int(value)
        elif name == "event":
            event = value
        elif name == "data" and event == "operation":
            found.append((number, json.loads(value)))
            if len(found) == count:
                break
    return found


def test_live_updates_and_a_clean_end(folder: Path, served: Callable[..., Any]) -> None:
    service = served(folder, environment={"RECALL_TOKEN": "sesame"})
    bearer = {"authorization": "Bearer sesame"}
    with httpx.Client(base_url=service.address, timeout=GUARD_S) as client:
        assert client.get("/api/health").status_code == 401

        def post(path: str, body: Any) -> Any:
            answer = client.post(f"/api/{path}", json=body, headers=bearer)
            assert answer.status_code == 200, answer.text
            return answer.json()

        post("memories", {"memories": [{"time_ns": row} for row in range(3)]})
        with httpx.stream("GET", f"{service.address}api/events?token=sesame", timeout=GUARD_S) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            assert next(lines) == "retry: 2000"
            assert next(lines) == "id: 1"
            post("forget", {"ids": [1, 3]})
            post("undo", {"generation": 2})
            first, second = told(lines, 2)
            assert (first[0], first[1]["operation"], first[1]["ids_count"]) == (2, "remove", 2)
            assert (second[0], second[1]["operation"], second[1]["undoes"]) == (3, "undo", 2)
            # Who comes back is told what was missed.
            headers = {**bearer, "last-event-id": "1"}
            with httpx.stream(
                "GET", f"{service.address}api/events", headers=headers, timeout=GUARD_S
            ) as again:
                assert [number for number, _ in told(again.iter_lines(), 2)] == [2, 3]
            # The end of the service ends the stream, which has no end of its own.
            assert service.end(signal.SIGTERM)[0] == 0
            assert "data" not in "".join(lines)
    with MemoryStore.open(folder) as store:
        assert len(store) == 3


def test_what_another_process_does_is_told_and_interrupt_ends(
    folder: Path, served: Callable[..., Any]
) -> None:
    service = served(folder, "--readonly", "--rate", "0")
    with httpx.stream("GET", f"{service.address}api/events", timeout=GUARD_S) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "retry: 2000"
        with MemoryStore.open(folder) as store:
            memory = {"memories": [{"time_ns": 1}]}
            assert httpx.post(f"{service.address}api/memories", json=memory).status_code == 403

            store.add([Memory(time_ns=5), Memory(time_ns=6)])
            ((_, operation),) = told(lines, 1)
            assert operation["ids_count"] == 2
        assert service.end(signal.SIGINT)[0] == 0


def test_requests_under_way_are_finished(folder: Path, served: Callable[..., Any]) -> None:
    pytest.importorskip("prometheus_client", reason="needs prometheus_client (extra 'serve')")
    service = served(folder)
    rows = [{"time_ns": row, "caption": "word " * 40} for row in range(6000)]
    text = json.dumps({"memories": rows}).encode()
    answers: list[httpx.Response] = []
    ending = threading.Event()

    def parts() -> Iterator[bytes]:
        yield text[:1000]
        assert ending.wait(GUARD_S)
        yield text[1000:]

    def add() -> None:
        headers = {"content-type": "application/json"}
        address = f"{service.address}api/memories"
        answers.append(httpx.post(address, content=parts(), headers=headers, timeout=GUARD_S))

    thread = threading.Thread(target=add)
    thread.start()
    # That request, and the one that asks.
    while "recall_requests_open 2.0" not in httpx.get(f"{service.address}metrics", timeout=GUARD_S).text:
        time.sleep(0.01)
    service.process.send_signal(signal.SIGTERM)
    with contextlib.suppress(httpx.HTTPError):
        while True:  # Until nobody is let in any more.
            httpx.get(f"{service.address}api/health", timeout=GUARD_S)
            time.sleep(0.01)
    ending.set()
    _, remarks = service.process.communicate(timeout=GUARD_S)
    assert service.process.returncode == 0, remarks
    thread.join()
    assert len(answers) == 1
    assert answers[0].status_code == 200
    with MemoryStore.open(folder) as store:
        assert len(store) == 6000


def test_a_killed_service_loses_nothing_that_it_acknowledged(
    folder: Path, served: Callable[..., Any]
) -> None:
    service = served(folder, "--rate", "0")
    acknowledged: dict[int, str] = {}
    lock = threading.Lock()

    def add(worker: int) -> None:
        with httpx.Client(base_url=service.address, timeout=GUARD_S) as client:
            for row in range(100_000):
                labels = [f"{worker}-{row}-{part}" for part in range(3)]
                body = {"memories": [{"time_ns": row, "label": label} for label in labels]}
                try:
                    answer = client.post("/api/memories", json=body)
                    ids = answer.json()["ids"]
                except (httpx.HTTPError, ValueError):
                    return
                with lock:
                    acknowledged.update(zip(ids, labels, strict=True))

    threads = [threading.Thread(target=add, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 600:
        time.sleep(0.01)
    service.process.send_signal(signal.SIGKILL)
    service.process.wait()
    for thread in threads:
        thread.join()
    with MemoryStore.open(folder) as store:
        assert store.check().ok
        found = {memory.id: memory.label for memory in store.get(acknowledged)}
    assert found == acknowledged


def test_what_cannot_be_served(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(folder), "--port", str(port)]) == 2
        said = capsys.readouterr().err
        assert (
            f"cannot listen on 127.0.0.1 port {port}: Address already in use. Choose another --port" in said
        )
    with MemoryStore.open(folder):
        assert main(["serve", str(folder)]) == 2
        said = capsys.readouterr().err
        assert f"is being written by process {os.getpid()}" in said
        assert "recall serve --readonly" in said
    for wrong in (["--port", "70000"], ["--rate", "-1"], ["--max-body-mb", "0"], ["--host", "10.0.0.1"]):
        assert main(["serve", str(folder), *wrong]) == 2
    assert main(["serve", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.splitlines()[-2] == f"opening {tmp_path / 'nothing'}"


def test_a_quiet_service_tells_systemd_and_prints_only_its_address(
    folder: Path, served: Callable[..., Any], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(300)
        known = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
        service = served(folder, "--quiet", environment=known)
        assert listener.recv(1000).decode() == f"READY=1\nSTATUS={service.address}"
        assert listener.recv(1000) == b"WATCHDOG=1"
        assert listener.recv(1000) == b"WATCHDOG=1"
        assert httpx.get(f"{service.address}api/memories", timeout=GUARD_S).status_code == 200
        assert service.end() == (0, "")
        last = listener.recv(1000)
        while last == b"WATCHDOG=1":
            last = listener.recv(1000)
        assert last == b"STOPPING=1"
