"""Limits of connections: idle and slow clients are disconnected."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from memory.serve.limits.rate import client_of

#: Bytes above which data is sent at once.
_LONG = 1 << 16
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BufferedTransport:
    """Transport that sends the header and body of an answer together.

    Each send wakes the client, which then competes with the server for the CPU.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Buffer data until the event loop continues; send long data at once."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _LONG:
            self._send()

    def close(self) -> None:
        """Send the buffered data and close."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Close without sending anything."""
        self._take()
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the transport."""
        return getattr(self._transport, name)

    def _send(self) -> None:
        data = self._take()
        if data:
            self._transport.write(data)

    def _take(self) -> bytes:
        parts, self._parts, self._size = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)


def protocol(head_s: float, stuck_s: float, most: int) -> type[asyncio.Protocol]:
    """Return the HTTP protocol of uvicorn, extended by limits.

    Args:
        head_s: seconds to receive the header of a request, from its first byte or the start of the
            connection.
        stuck_s: seconds in which a client must read a part of a ready answer.
        most: maximum connections. Beyond it, the oldest idle connection of the client with the most idle
            connections is closed. If none is idle, requests of a further connection are refused.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    #: In order of connection.
    opened: dict[Any, None] = {}

    class LimitedProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        """One connection."""

        _head: asyncio.TimerHandle | None = None
        _stuck: asyncio.TimerHandle | None = None
        _received = False

        def connection_made(self, transport: Any) -> None:
            """Wait for the first request."""
            super().connection_made(BufferedTransport(transport, self.loop))
            self._head = self.loop.call_later(head_s, self._end)
            if len(opened) >= most:
                make_room()
            opened[self] = None

        @property
        def waits(self) -> bool:
            """True if the client must send a header or the rest of a body."""
            return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

        def data_received(self, data: bytes) -> None:
            """Pass data on; the timer runs until the header is complete."""
            self._received = True
            # Without room, uvicorn refuses the request. Its own count has requests of closed connections too.
            self.limit_concurrency = 0 if len(opened) > most else None
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_head()
            elif self._head is None and not self.transport.is_closing():
                self._head = self.loop.call_later(head_s, self._end)

        def pause_writing(self) -> None:
            """Start the timer for a client that reads too slowly."""
            super().pause_writing()
            self._stop_stuck()
            self._stuck = self.loop.call_later(stuck_s, self.transport.abort)

        def resume_writing(self) -> None:
            """Stop the timer."""
            super().resume_writing()
            self._stop_stuck()

        def connection_lost(self, exc: Exception | None) -> None:
            """Stop all timers."""
            opened.pop(self, None)
            self._stop_head()
            self._stop_stuck()
            super().connection_lost(exc)

        def _end(self) -> None:
            self._head = None
            if self._received:
                self.transport.write(_TOO_SLOW)
            self.transport.close()

        def _stop_head(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

        def _stop_stuck(self) -> None:
            if self._stuck is not None:
                self._stuck.cancel()
                self._stuck = None

    def make_room() -> None:
        """Close an idle connection, if there is one."""
        waiting = [(each, client_of(each.client)) for each in opened if each.waits]
        if waiting:
            ((busiest, _),) = Counter(client for _, client in waiting).most_common(1)
            victim = next(each for each, client in waiting if client == busiest)
            opened.pop(victim)
            # Some event loops report the loss only after the next request.
            victim.connections.discard(victim)
            victim.transport.abort()

    return LimitedProtocol
