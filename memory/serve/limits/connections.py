"""Connections that do not keep a place by doing nothing: limits below the requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from memory.serve.limits.rate import client_of

#: Bytes that do not wait for more.
_LONG = 1 << 16
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Together:
    """A transport that sends at once what is written at once: the head of an answer with its body.

    Each sending wakes the client, which takes the core from who has not written the rest yet.

    Args:
        transport: of the connection.
        loop: that it belongs to.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Send it with what follows before the loop goes on; what is long already goes now."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _LONG:
            self._send()

    def close(self) -> None:
        """Send what was written, and close."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Close without sending anything."""
        self._take()
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the transport's."""
        return getattr(self._transport, name)

    def _send(self) -> None:
        data = self._take()
        if data:
            self._transport.write(data)

    def _take(self) -> bytes:
        parts, self._parts, self._size = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)


def protocol(head_s: float, stuck_s: float, most: int) -> type[asyncio.Protocol]:
    """The server's own protocol for HTTP, which ends connections that make no progress.

    Args:
        head_s: seconds that a connection has for the head of a request, from its first byte on, or from its
            own beginning.
        stuck_s: seconds that a client may take nothing of an answer that is ready for it.
        most: connections at the same time. Of more, one that waits for its client ends: the oldest of who has
            most of these.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    #: In the order in which they came.
    opened: dict[Any, None] = {}

    class Watched(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        """One connection."""

        _head: asyncio.TimerHandle | None = None
        _stuck: asyncio.TimerHandle | None = None
        _said = False

        def connection_made(self, transport: Any) -> None:
            """Wait for the first request."""
            super().connection_made(Together(transport, self.loop))
            self._head = self.loop.call_later(head_s, self._end)
            if len(opened) >= most:
                make_room()
            opened[self] = None

        @property
        def waits(self) -> bool:
            """Whether it is the client's turn: to send a head, or the rest of a body."""
            return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

        def data_received(self, data: bytes) -> None:
            """Take it; the time for a head runs on until the head is whole."""
            self._said = True
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_head()
            elif self._head is None and not self.transport.is_closing():
                self._head = self.loop.call_later(head_s, self._end)

        def pause_writing(self) -> None:
            """The client does not keep up."""
            super().pause_writing()
            self._stop_stuck()
            self._stuck = self.loop.call_later(stuck_s, self.transport.abort)

        def resume_writing(self) -> None:
            """It does again."""
            super().resume_writing()
            self._stop_stuck()

        def connection_lost(self, exc: Exception | None) -> None:
            """Nothing is waited for any more."""
            opened.pop(self, None)
            self._stop_head()
            self._stop_stuck()
            super().connection_lost(exc)

        def _end(self) -> None:
            self._head = None
            if self._said:
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
        """End a connection that waits for its client; none where all are at work."""
        waiting = [(each, client_of(each.client)) for each in opened if each.waits]
        if waiting:
            ((busiest, _),) = Counter(client for _, client in waiting).most_common(1)
            victim = next(each for each, client in waiting if client == busiest)
            opened.pop(victim)
            # Some event loops say only after the next request has come that it is lost.
            victim.connections.discard(victim)
            victim.transport.abort()

    return Watched
