"""A link between two programs that does what networks do: it breaks, falls silent, is slow, loses answers."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time


class Link:
    """Forwards connections on this computer; all of its state can be changed while it is used.

    Args:
        port: of who is called.
        host: address of this computer at which it is called instead.

    Attributes:
        port: to call instead.
        rate: bytes a second each way; ``None`` for no limit.
        delay_s: that everything takes each way.
        silent: nothing arrives any more, and nobody is told.
        lose_after: once this passes on the way there, what is answered next is lost and all connections
            break.
        lost: how often an answer was lost like that.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = port
        self.rate: float | None = None
        self.delay_s = 0.0
        self.silent = False
        self.lose_after: bytes | None = None
        self.lost = 0
        self._losing = False
        self._broken = self._ended = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((host, 0))
        # Else this computer takes all at once, however slow it is to be.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        self.port = int(self._listener.getsockname()[1])
        self._start(self._accept)

    def cut(self) -> None:
        """Break all connections; who calls is refused."""
        self._broken = True
        self._break()

    def heal(self) -> None:
        """As on the first day."""
        self._broken = self.silent = False
        self.rate, self.delay_s, self.lose_after = None, 0.0, None

    def close(self) -> None:
        """End it."""
        self._ended = True
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _break(self) -> None:
        with self._lock:
            broken, self._open = self._open, set()
        for each in broken:
            with contextlib.suppress(OSError):
                # Without a last word: both sides read of an error, not of an end.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _start(self, work: object, *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        while not self._ended:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._broken:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            self._start(self._forward, near, far, True)
            self._start(self._forward, far, near, False)

    def _forward(self, source: socket.socket, target: socket.socket, there: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.silent:
                    continue
                if not there and self._losing:
                    self._losing = False
                    self.lost += 1
                    self._break()
                    return
                if there and self.lose_after is not None and self.lose_after in data:
                    self.lose_after, self._losing = None, True
                self._send(target, data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _send(self, target: socket.socket, data: bytes) -> None:
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.rate is None:
            target.sendall(data)
            return
        portion = max(1, int(self.rate / 50))
        for start in range(0, len(data), portion):
            target.sendall(data[start : start + portion])
            time.sleep(portion / self.rate if self.rate is not None else 0.0)
