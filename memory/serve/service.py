"""State that requests share: the store, threads and the event feed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from memory.errors import StoreReadOnlyError
from memory.persistence.deadline import Deadline, reading_until, without_limit
from memory.questions import Questions
from memory.serve.answers import JsonAnswer
from memory.serve.errors import without_paths
from memory.serve.events import Feed
from memory.serve.forwarding import Forwarding, WriterClient
from memory.serve.limits.bodies import Bodies, Model, parse, read_body
from memory.serve.options import ServeOptions
from memory.serve.reading import Reading
from memory.serve.workers.moments import Moments
from memory.serve.workers.threads import CountedThreads
from memory.serve.workers.turns import Turns
from memory.store import MemoryStore
from memory.sync.inbox import Inbox
from memory.sync.pulls import Pulls

Result = TypeVar("Result")
#: Maximum bytes of a body that the event loop parses itself.
SHORT = 1 << 15


class StoreService:
    """Served store with its threads and event feed.

    Attributes:
        store: the store; the caller of :func:`memory.serve.create_app` closes it.
        reading: reader of pages and operations.
        options: limits.
        feed: event feed.
        questions: questions about the store.
        writer: client of the process that writes, or ``None`` if this one does.
    """

    def __init__(self, store: MemoryStore, options: ServeOptions, writer: WriterClient | None = None) -> None:
        self.store = store
        self.writer = writer
        self.options = options
        self.reading = Reading(store.database)
        self.questions = Questions(store)
        self.inbox = Inbox(store.database)
        self.pulls = Pulls()
        self.feed = Feed(self.reading, self.work, options)
        self._bodies = Bodies(options.max_held_bytes)
        # Separate threads, so that reads never wait for writes.
        self._readers = Turns(options.threads, name="recall-read")
        self._moments = Moments()
        self._writers = CountedThreads(options.threads, "recall-write")
        self._aside = asyncio.Semaphore(max(1, options.threads // 4))
        self._stopping = threading.Event()
        self._checking = threading.Lock()
        self._checked: dict[str, Any] | None = None
        self._overview: tuple[int, dict[str, Any]] = (-1, {})

    @property
    def readonly(self) -> bool:
        """True if the store is read-only for clients."""
        return self.store.readonly and self.writer is None

    def forwarding(self) -> list[Callable[..., Forwarding]]:
        """Return the factory of the layer that forwards to the writer, if there is one."""
        if self.writer is None:
            return []
        return [partial(Forwarding, writer=self.writer, options=self.options, bodies=self._bodies)]

    @property
    def waiting(self) -> dict[str, int]:
        """Number of queued reads and writes."""
        return {"read": self._readers.waiting, "write": self._writers.waiting}

    @property
    def working(self) -> dict[str, int]:
        """Number of running reads and writes."""
        return {"read": self._readers.working, "write": self._writers.working}

    @property
    def held_bytes(self) -> int:
        """Bytes of unanswered request bodies."""
        return self._bodies.total_bytes

    async def work(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Call a reading function in a thread.

        Raises:
            QueryInterruptedError: it exceeded ``query_timeout_s``, or the service is shutting down.
        """
        deadline = self._deadline()

        def call() -> Result:
            with reading_until(deadline):
                return function(*arguments, **named)

        return await self._readers.call(call)

    def _deadline(self) -> Deadline:
        return Deadline(self.options.query_timeout_s or None, self._stopping)

    async def work_aside(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Call a slow reading function in a thread; a quarter of the threads at most run such functions."""
        async with self._aside:
            return await self.work(function, *arguments, **named)

    async def read(self, function: Callable[[], Any]) -> JsonAnswer:
        """Answer with the result of a function that runs in a thread."""
        return await self.work(lambda: JsonAnswer(function()))

    async def asked(
        self,
        request: Request,
        model: type[Model],
        function: Callable[[Model], Any],
        *,
        at_once: Callable[[Model], AbstractContextManager[bool]] | None = None,
    ) -> JsonAnswer:
        """Answer a reading request with the result of a function.

        Args:
            request: the request.
            model: model of the body.
            function: returns the answer for a body.
            at_once: context that is true if the event loop should call the function itself, because it is
                fast.
        """
        with self._bodies.held() as mine:
            raw = await read_body(request, self.options, self._bodies, mine)
            if at_once is not None and len(raw) <= SHORT and self._moments.now:
                deadline, body = self._deadline(), parse(model, raw, self.options)
                async with self._moments.turn():
                    with self._moments.watched(), at_once(body) as now, reading_until(deadline):
                        if now:
                            return JsonAnswer(function(body))
            async with self._bodies.turn(raw):
                return await self.work(lambda: JsonAnswer(function(parse(model, raw, self.options))))

    async def changed(
        self, request: Request, model: type[Model], function: Callable[[Model], tuple[Any, int | None]]
    ) -> JsonAnswer:
        """Answer a request that changes the store, and announce the operation.

        Args:
            request: the request.
            model: model of the body.
            function: returns the answer, and the number of its last operation or ``None``.
        """
        with self._bodies.held() as mine:
            raw = await read_body(request, self.options, self._bodies, mine)
            deadline = Deadline(None, self._stopping)

            def work() -> tuple[JsonAnswer, int | None]:
                with reading_until(deadline):
                    body = parse(model, raw, self.options)
                    self.check_writable()
                    found, generation = function(body)
                    return JsonAnswer(found), generation

            async with self._bodies.turn(raw):
                answer, generation = await asyncio.get_running_loop().run_in_executor(self._writers, work)
        self.feed.announce(generation)
        return answer

    def check_writable(self) -> None:
        """Raise :class:`StoreReadOnlyError` if the store is read-only."""
        if self.readonly:
            raise StoreReadOnlyError("the store is served read-only")

    def checked(self, *, anew: bool) -> dict[str, Any] | None:
        """Return the last check, or with ``anew`` a recent one; does not block writers."""
        known = self._checked
        if not anew:
            return known
        with self._checking:
            known = self._checked
            now = time.time_ns()
            if known is None or now - known["time_ns"] > self.options.check_every_s * 1e9:
                with without_limit():
                    report = self.reading.check().to_json()
                problems = [without_paths(text, self.store.folder) for text in report["problems"]]
                self._checked = known = {"time_ns": now, **report, "problems": problems}
            return known

    def overview(self) -> dict[str, Any]:
        """Return counts by label and state, cached until the next operation."""
        generation, known = self._overview
        now = self.reading.generation
        if generation != now:
            with without_limit():
                known = self.reading.overview()
            self._overview = (now, known)
        return known

    def interrupt(self) -> None:
        """Interrupt running and queued calls; unfinished writes are rolled back."""
        self._stopping.set()
        self.store.database.interrupt()

    @asynccontextmanager
    async def running(self, _: object = None) -> AsyncIterator[None]:
        """Wait at the end until no thread uses the store."""
        try:
            yield
        finally:
            self.feed.stop()
            if self.writer is not None:
                await self.writer.close()
            # Running calls have had their grace period.
            self._readers.cancel()
            self._writers.shutdown(wait=False, cancel_futures=True)
            waits = (self._readers.join, self._writers.shutdown)
            ended = [asyncio.ensure_future(asyncio.to_thread(wait)) for wait in waits]
            while (await asyncio.wait(ended, timeout=0.2))[1]:
                self.interrupt()


async def service_of(request: Request) -> StoreService:
    """Return the service of a request. It is async because FastAPI runs plain functions in threads."""
    found = request.app.state.service
    assert isinstance(found, StoreService)
    return found


ServiceOf = Annotated[StoreService, Depends(service_of)]
