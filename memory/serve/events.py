"""Live updates: a stream of server-sent events with each operation of the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
from fastapi.responses import StreamingResponse

from memory.errors import QueryInterruptedError, StoreError
from memory.serve.answers import dump, entry_answer
from memory.serve.errors import ServiceError
from memory.serve.options import ServeOptions
from memory.serve.reading import Operation, Reading

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

#: Operations that are read at once.
PORTION = 500
#: Milliseconds after which a disconnected client should reconnect.
RETRY_MS = 2000


class Events(StreamingResponse):
    """Response that streams the events of a feed; ``after`` is that of :meth:`Feed.stream`."""

    def __init__(self, feed: Feed, after: int | None) -> None:
        super().__init__(
            feed.stream(after), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream the events, or raise :class:`ServiceError` if there are too many streams."""
        with self._feed.admitted():
            await super().__call__(scope, receive, send)


class Feed:
    """Source of events about new operations, used from the event loop only.

    Operations of this service are announced at once. While there are streams, a task polls for operations of
    other processes.

    Args:
        reading: reader of the store.
        work: runs a function in a thread.
        options: limits.
    """

    def __init__(
        self, reading: Reading, work: Callable[..., Awaitable[object]], options: ServeOptions
    ) -> None:
        self._reading = reading
        self._work = work
        self._options = options
        self._generation = 0
        self._followers = 0
        self._news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def followers(self) -> int:
        """Number of streams."""
        return self._followers

    def announce(self, generation: int | None) -> None:
        """Announce an operation to all streams."""
        if generation is not None and generation > self._generation:
            self._generation = generation
            self._wake()

    def stop(self) -> None:
        """End all streams."""
        self._stopped = True
        self._wake()
        if self._looking is not None:
            self._looking.cancel()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count a stream from its request on.

        Raises:
            ServiceError: there are too many streams, or the service is shutting down.
        """
        if self._stopped:
            raise ServiceError(503, "busy", "the service is shutting down. Try again later")
        if self._followers >= self._options.max_subscribers:
            raise ServiceError(
                503, "busy", f"all {self._followers} event streams are in use. Try again later"
            )
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def stream(self, after: int | None) -> AsyncIterator[bytes]:
        """Yield operations after a number (``None``: only new ones), and heartbeats in between."""
        try:
            self._look()
            latest = await self._latest()
            # A number beyond the last one belongs to an earlier store.
            at = latest if after is None or after > latest else max(after, 0)
            yield f"retry: {RETRY_MS}\nid: {at}\nevent: start\n".encode() + _data({"generation": latest})
            while not self._stopped:
                operations: list[Operation] = await self._read(at)
                for operation in operations:
                    at = operation.entry.generation
                    yield f"id: {at}\nevent: operation\n".encode() + _data(
                        entry_answer(operation.entry, touched=operation.touched, undone=operation.undone)
                    )
                self._generation = max(self._generation, at)
                if len(operations) < PORTION and not await self._wait(at):
                    yield b": heartbeat\n\n"
        except (StoreError, QueryInterruptedError):
            return  # The store was closed; the client reconnects.

    async def _read(self, after: int) -> list[Operation]:
        found = await self._work(self._reading.operations, after, PORTION)
        assert isinstance(found, list)
        return found

    async def _latest(self) -> int:
        found = await self._work(lambda: self._reading.generation)
        assert isinstance(found, int)
        return found

    async def _wait(self, at: int) -> bool:
        """Until there is something after ``at``; false where a sign of life is due first."""
        with anyio.move_on_after(self._options.heartbeat_s):
            while self._generation <= at and not self._stopped:
                await self._news.wait()
            return True
        return False

    def _wake(self) -> None:
        """Wake all waiting streams once."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _look(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._follow_others())

    async def _follow_others(self) -> None:
        while not self._stopped:
            with contextlib.suppress(StoreError, QueryInterruptedError):
                self.announce(await self._latest())
            await asyncio.sleep(self._options.poll_s)


def _data(value: object) -> bytes:
    return b"data: " + dump(value) + b"\n\n"
