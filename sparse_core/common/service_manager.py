"""What systemd is told of a service: ready, alive, ending (sd_notify, without its library).

Follows sd_notify(3) and sd_watchdog_enabled(3): datagrams to the socket that ``$NOTIFY_SOCKET`` names.
Outside of a service nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping

#: Signs of life in the time after which systemd takes a service for dead.
_PULSES = 4


class ServiceManager:
    """Tells the service manager how this process is; any thread may.

    Args:
        environment: that says where to, by default that of the process.

    Attributes:
        watchdog_s: seconds within which a sign of life is expected; ``None`` where none is.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        known = os.environ if environment is None else environment
        name = known.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is one of Linux' abstract sockets.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._sending = threading.Lock()
        self._socket: socket.socket | None = None
        if name.startswith(("/", "@")) and hasattr(socket, "AF_UNIX"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.watchdog_s = _watchdog_s(known) if self._socket is not None else None
        self._told_s = -float("inf")

    def ready(self, status: str = "") -> None:
        """The service has begun to work."""
        self._send("READY=1", status)

    def status(self, status: str) -> None:
        """A line for ``systemctl status``."""
        self._send("", status)

    def alive(self) -> None:
        """A sign of life; may be called as often as one likes, and only by what shows that work goes on."""
        now_s = time.monotonic()
        if self.watchdog_s is not None and now_s - self._told_s >= self.watchdog_s / _PULSES:
            self._told_s = now_s
            self._send("WATCHDOG=1", "")

    def stopping(self, status: str = "") -> None:
        """The service is about to end."""
        self._send("STOPPING=1", status)

    def close(self) -> None:
        """Tell nothing more."""
        with self._sending:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _send(self, message: str, status: str) -> None:
        lines = [message, f"STATUS={' '.join(status.split())}" if status else ""]
        text = "\n".join(line for line in lines if line)
        with self._sending:
            # A manager that does not listen is no reason for the work to end.
            if self._socket is not None and text:
                with contextlib.suppress(OSError):
                    self._socket.sendto(text.encode(), socket.MSG_DONTWAIT, self._address)


def _watchdog_s(known: Mapping[str, str]) -> float | None:
    microseconds, process = known.get("WATCHDOG_USEC", ""), known.get("WATCHDOG_PID", "")
    if not (microseconds.isascii() and microseconds.isdigit()) or int(microseconds) == 0:
        return None
    if process and process != str(os.getpid()):
        return None  # Meant for another process of the service.
    return int(microseconds) / 1e6
