"""What the requests share: the store, threads to work in, and who follows."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from memory.errors import StoreReadOnlyError
from memory.persistence.deadline import Deadline, reading_until, without_limit
from memory.questions import Questions
from memory.serve.answers import JsonAnswer
from memory.serve.errors import without_paths
from memory.serve.events import Feed
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
#: Bytes of a body that is read in a moment.
SHORT = 1 << 15


class Service:
    """A store that is being served.

    Attributes:
        store: whose it is to close is said at :func:`memory.serve.create_app`.
        reading: what it reads beside the store's questions.
        options: limits.
        readonly: whether nothing may be changed.
        feed: of operations.
        questions: to the store.
    """

    def __init__(self, store: MemoryStore, options: ServeOptions) -> None:
        self.store = store
        self.options = options
        self.reading = Reading(store.database)
        self.questions = Questions(store)
        self.inbox = Inbox(store.database)
        self.pulls = Pulls()
        self.feed = Feed(self.reading, self.work, options)
        self._bodies = Bodies(options.max_held_bytes)
        # Apart, so that who reads never waits for those who wait for a long operation to be written.
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
        """Whether nothing may be changed."""
        return self.store.readonly

    @property
    def waiting(self) -> dict[str, int]:
        """Calls that no thread has begun, by what they do."""
        return {"read": self._readers.waiting, "write": self._writers.waiting}

    @property
    def working(self) -> dict[str, int]:
        """Calls that a thread is at, by what they do."""
        return {"read": self._readers.working, "write": self._writers.working}

    @property
    def held_bytes(self) -> int:
        """Of bodies that came and are not answered yet."""
        return self._bodies.total_bytes

    async def work(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Call a function in a thread: the event loop never waits for the disk.

        Raises:
            QueryInterruptedError: reading took longer than ``query_timeout_s``, or the service is ending.
        """
        deadline = self._deadline()

        def call() -> Result:
            with reading_until(deadline):
                return function(*arguments, **named)

        return await self._readers.call(call)

    def _deadline(self) -> Deadline:
        """Of what begins now."""
        return Deadline(self.options.query_timeout_s or None, self._stopping)

    async def work_aside(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """The same for what may take long, or waits for others of its sort: it leaves threads to the rest."""
        async with self._aside:
            return await self.work(function, *arguments, **named)

    async def read(self, function: Callable[[], Any]) -> JsonAnswer:
        """The answer with what a function finds; JSON is made of it in the same thread."""
        return await self.work(lambda: JsonAnswer(function()))

    async def asked(
        self,
        request: Request,
        model: type[Model],
        function: Callable[[Model], Any],
        *,
        at_once: Callable[[Model], AbstractContextManager[bool]] | None = None,
    ) -> JsonAnswer:
        """The answer with what a function finds for the body of a request, in one go in a thread.

        Args:
            request: whose body is read.
            model: of the body.
            function: gives what is answered.
            at_once: whether that takes a moment, within a block: then it is done here and now.
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
        """The same for a function that changes the store; those who follow are told.

        Args:
            request: whose body is read.
            model: of the body.
            function: gives the answer, and the number of its last operation or ``None``.
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
        self.feed.tell(generation)
        return answer

    def check_writable(self) -> None:
        """Raise :class:`StoreReadOnlyError` where nothing may be changed."""
        if self.readonly:
            raise StoreReadOnlyError("served for reading only")

    def checked(self, *, anew: bool) -> dict[str, Any] | None:
        """The last check of the files, or a new one where that is old; blocks no writer."""
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
        """Counts by label and state, counted anew after an operation."""
        generation, known = self._overview
        now = self.reading.generation
        if generation != now:
            with without_limit():
                known = self.reading.overview()
            self._overview = (now, known)
        return known

    def interrupt(self) -> None:
        """End what is at work and what waits for it, with an error; what was being written is rolled back."""
        self._stopping.set()
        self.store.database.interrupt()

    @asynccontextmanager
    async def running(self, _: object = None) -> AsyncIterator[None]:
        """As long as the service runs; at the end nothing works on the store any more."""
        try:
            yield
        finally:
            self.feed.stop()
            # What is still at work had its time.
            self._readers.cancel()
            self._writers.shutdown(wait=False, cancel_futures=True)
            waits = (self._readers.join, self._writers.shutdown)
            ended = [asyncio.ensure_future(asyncio.to_thread(wait)) for wait in waits]
            while (await asyncio.wait(ended, timeout=0.2))[1]:
                self.interrupt()


async def service_of(request: Request) -> Service:
    """The service that a request came to; awaited, because FastAPI calls what is not in a thread."""
    found = request.app.state.service
    assert isinstance(found, Service)
    return found


ServiceOf = Annotated[Service, Depends(service_of)]
