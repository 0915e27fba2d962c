"""Live updates: every operation of the store, to all who follow, as server-sent events."""

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

#: Operations that are read at a time.
PORTION = 500
#: Milliseconds after which a client that lost the connection should come back.
RETRY_MS = 2000


class Events(StreamingResponse):
    """A stream of events, which has its place as long as it is sent.

    Args:
        feed: that it follows.
        after: see :meth:`Feed.stream`.
    """

    def __init__(self, feed: Feed, after: int | None) -> None:
        super().__init__(
            feed.stream(after), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, or raise :class:`ServiceError` where there is no place."""
        with self._feed.admitted():
            await super().__call__(scope, receive, send)


class Feed:
    """Tells those who follow that there are new operations.

    While somebody follows, one task looks for what other processes did; what this service does is told at
    once. Used from the event loop only.

    Args:
        reading: of the store.
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
        """How many follow."""
        return self._followers

    def tell(self, generation: int | None) -> None:
        """There is an operation of this number."""
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
        """A place among those who follow, from the request on and not only from the first event.

        Raises:
            ServiceError: too many follow, or the service is ending.
        """
        if self._stopped:
            raise ServiceError(503, "busy", "the service is ending")
        if self._followers >= self._options.max_subscribers:
            raise ServiceError(
                503, "busy", f"{self._followers} clients follow already, which is the most: try later"
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
        """The operations after one, then each new one; heartbeats while there are none.

        Args:
            after: its number; ``None`` for new ones only.
        """
        try:
            self._look()
            latest = await self._latest()
            # A number beyond the last is of a store that was here before.
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
            return  # Closed under us: the client comes back and is told.

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
        """Let all who wait look once; who comes later waits for the next news."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _look(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._follow_others())

    async def _follow_others(self) -> None:
        while not self._stopped:
            with contextlib.suppress(StoreError, QueryInterruptedError):
                self.tell(await self._latest())
            await asyncio.sleep(self._options.poll_s)


def _data(value: object) -> bytes:
    return b"data: " + dump(value) + b"\n\n"
