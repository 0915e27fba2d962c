"""Tests of messages to systemd, over real sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sparse_core.common.service_manager import ServiceManager


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """Return a socket in the place of systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "notify"))
        found.settimeout(300)
        yield found


def told(listener: socket.socket) -> list[str]:
    """Return the received datagrams."""
    found = []
    listener.setblocking(False)
    while True:
        try:
            found.append(listener.recv(4096).decode())
        except BlockingIOError:
            return found


def test_ready_alive_and_stopping(listener: socket.socket, tmp_path: Path) -> None:
    known = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    manager = ServiceManager(known | {"WATCHDOG_PID": str(os.getpid())})
    assert manager.watchdog_s == 0.2
    manager.ready("scans of\nudp://:2368")
    for _ in range(50):
        manager.alive()  # At most one message per quarter of the interval.
    manager.status("9.9 scans/s")
    manager.stopping()
    manager.close()
    manager.status("nobody hears this")
    said = told(listener)
    assert said[:2] == ["READY=1\nSTATUS=scans of udp://:2368", "WATCHDOG=1"]
    assert said[-2:] == ["STATUS=9.9 scans/s", "STOPPING=1"]
    assert said.count("WATCHDOG=1") <= 2


@pytest.mark.skipif(
    not hasattr(socket, "AF_UNIX") or os.uname().sysname != "Linux", reason="Linux alone has them"
)
def test_abstract_sockets() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0sparsight-{os.getpid()}")
        with closing(ServiceManager({"NOTIFY_SOCKET": f"@sparsight-{os.getpid()}"})) as manager:
            manager.ready()
        assert told(listener) == ["READY=1"]


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"NOTIFY_SOCKET": ""},
        {"NOTIFY_SOCKET": "relative", "WATCHDOG_USEC": "1000"},
        {"WATCHDOG_USEC": "1000"},
    ],
)
def test_outside_of_a_service_nothing_is_sent(known: dict[str, str]) -> None:
    manager = ServiceManager(known)
    manager.ready()
    manager.alive()
    manager.close()
    assert manager.watchdog_s is None


@pytest.mark.parametrize(
    "watchdog",
    [{"WATCHDOG_USEC": "many"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}],
)
def test_no_watchdog_messages_without_a_watchdog(
    watchdog: dict[str, str], listener: socket.socket, tmp_path: Path
) -> None:
    with closing(ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify"), **watchdog})) as manager:
        manager.alive()
    assert told(listener) == []


def test_work_goes_on_without_a_listening_manager(listener: socket.socket, tmp_path: Path) -> None:
    known = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1"}
    with closing(ServiceManager(known)) as manager:
        for _ in range(2000):
            manager.status("full" * 100)
        listener.close()
        (tmp_path / "notify").unlink()
        manager.alive()
