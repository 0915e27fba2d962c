"""Forwarding of requests from a reader to the process that writes, over a Unix socket."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request

from memory.serve.errors import ServiceError
from memory.serve.limits.bodies import Bodies, read_body
from memory.serve.options import ServeOptions

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

#: Addresses of POST requests that only read.
_READING = frozenset({"/api/query", "/api/ask", "/api/locate"})
#: Beginnings of other addresses whose state one process holds.
_ONE_PLACE = ("/api/sync/", "/metrics")
#: Headers of a request that the writer reads.
_SENT = (b"host", b"authorization", b"content-type")
#: Headers of an answer that belong to one connection.
_OWN = frozenset({b"connection", b"keep-alive", b"date", b"server", b"transfer-encoding"})
#: Seconds for which an idle connection is reused; uvicorn closes idle connections after five.
_IDLE_S = 3.0


class Forwarded(NamedTuple):
    """Answer of the writer to a forwarded request."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class _WriterConnection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    since: float


class WriterClient:
    """Client of the process that writes; used from one event loop.

    Args:
        address: its Unix socket.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._idle: list[_WriterConnection] = []

    async def send(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> Forwarded:
        """Send a request and return the answer.

        Raises:
            ServiceError: the writer cannot be reached, or ended before it answered.
        """
        lines = [method.encode() + b" " + target + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in headers]
        lines += [b"content-length: %d" % len(body), b"", body]
        try:
            link = self._reused() or await self._opened()
        except OSError as error:
            raise ServiceError(503, "busy", "the service is starting or ending. Try again later") from error
        whole = False
        try:
            link.writer.write(b"\r\n".join(lines))
            await link.writer.drain()
            reply = await _reply(link.reader)
            whole = True
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            raise ServiceError(
                503, "busy", "the service ended before it answered. Check /api/log before sending again"
            ) from error
        finally:
            if whole:
                self._idle.append(link._replace(since=time.monotonic()))
            else:
                link.writer.close()
        return reply

    async def close(self) -> None:
        """Close idle connections."""
        links, self._idle = self._idle, []
        for link in links:
            link.writer.close()
            with suppress(OSError):
                await link.writer.wait_closed()

    def _reused(self) -> _WriterConnection | None:
        while self._idle:
            link = self._idle.pop()
            if time.monotonic() - link.since < _IDLE_S and not link.reader.at_eof():
                return link
            link.writer.close()
        return None

    async def _opened(self) -> _WriterConnection:
        reader, writer = await asyncio.open_unix_connection(self._address)
        return _WriterConnection(reader, writer, time.monotonic())


async def _reply(reader: asyncio.StreamReader) -> Forwarded:
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    status = int(head[0].split(b" ", 2)[1])
    pairs = [line.partition(b":") for line in head[1:] if line]
    headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    length = int(dict(headers)[b"content-length"]) if status not in (204, 304) else 0
    kept = [(name, value) for name, value in headers if name not in _OWN]
    return Forwarded(status, kept, await reader.readexactly(length))


def is_forwarded(method: str, path: str) -> bool:
    """True if the writer must answer a request."""
    if path.startswith(_ONE_PLACE):
        return True
    return method not in ("GET", "HEAD", "OPTIONS") and path.startswith("/api/") and path not in _READING


class Forwarding:
    """ASGI layer that forwards the requests that the writer must answer.

    Args:
        app: the application of the reader.
        writer: client of the writer.
        options: limits of request bodies.
        bodies: accounting of request bodies.
    """

    def __init__(self, app: ASGIApp, *, writer: WriterClient, options: ServeOptions, bodies: Bodies) -> None:
        self._app = app
        self._writer = writer
        self._options = options
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or forward it."""
        if scope["type"] != "http" or not is_forwarded(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        with self._bodies.held() as mine:
            body = b""
            if scope["method"] == "POST":
                body = await read_body(Request(scope, receive), self._options, self._bodies, mine)
            target = scope.get("raw_path") or scope["path"].encode()
            if scope["query_string"]:
                target += b"?" + scope["query_string"]
            headers = [(name, value) for name, value in scope["headers"] if name in _SENT]
            reply = await self._writer.send(scope["method"], target, headers, body)
        start = {"type": "http.response.start", "status": reply.status, "headers": reply.headers}
        await send(start)
        await send({"type": "http.response.body", "body": reply.body})
