"""Status messages to systemd: ready, alive, stopping (sd_notify, without its library).

Follows sd_notify(3) and sd_watchdog_enabled(3): datagrams to the socket in ``$NOTIFY_SOCKET``. Outside a
service nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping

#: Watchdog messages per watchdog interval.
_PULSES = 4


class ServiceManager:
    """Sender of status messages to the service manager; thread-safe.

    Args:
        environment: variables, by default those of the process.

    Attributes:
        watchdog_s: interval of the watchdog in seconds; ``None`` without one.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        name = variables.get("NOTIFY_SOCKET", "")
        # @ marks an abstract socket of Linux.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        if name.startswith(("/", "@")) and hasattr(socket, "AF_UNIX"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.watchdog_s = _watchdog_s(variables) if self._socket is not None else None
        self._last_pulse_s = -float("inf")

    def ready(self, status: str = "") -> None:
        """Report that the service has started."""
        self._send("READY=1", status)

    def status(self, status: str) -> None:
        """Set the line for ``systemctl status``."""
        self._send("", status)

    def alive(self) -> None:
        """Report progress to the watchdog; may be called often, but only when work proceeds."""
        now_s = time.monotonic()
        if self.watchdog_s is not None and now_s - self._last_pulse_s >= self.watchdog_s / _PULSES:
            self._last_pulse_s = now_s
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the service is about to stop."""
        self._send("STOPPING=1")

    def close(self) -> None:
        """Close the socket; later messages are dropped."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _send(self, message: str, status: str = "") -> None:
        lines = [message, f"STATUS={' '.join(status.split())}" if status else ""]
        text = "\n".join(line for line in lines if line)
        with self._lock:
            # Ignore errors, so that the service works without a listening manager.
            if self._socket is not None and text:
                with contextlib.suppress(OSError):
                    self._socket.sendto(text.encode(), socket.MSG_DONTWAIT, self._address)


def _watchdog_s(known: Mapping[str, str]) -> float | None:
    microseconds, process = known.get("WATCHDOG_USEC", ""), known.get("WATCHDOG_PID", "")
    if not (microseconds.isascii() and microseconds.isdigit()) or int(microseconds) == 0:
        return None
    if process and process != str(os.getpid()):
        return None  # The watchdog watches another process of the service.
    return int(microseconds) / 1e6
