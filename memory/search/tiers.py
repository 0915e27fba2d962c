"""Moving memories from the recent to the long-term tier, in the background and with a bounded budget."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memory.index.effort import AimEffort

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tier:
    """Sizes of the two tiers of an encoder's vectors.

    Attributes:
        recent, long_term: vectors in each.
        waiting: recent ones that should move on.
        index: what the long-term tier is, or ``None`` where there is none.
        bytes: of the arrays of both; those that are mapped from a file are in memory as far as they are used.
        reached: what a single query of the long-term tier does for each aim, and finds, as measured on its
            own rows; ``None`` where that was not measured yet.
    """

    recent: int
    long_term: int
    waiting: int
    index: str | None
    bytes: int
    reached: tuple[AimEffort, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        reached = None if self.reached is None else [one.to_json() for one in self.reached]
        return {**vars(self), "reached": reached}


class Mover:
    """A thread that works in small steps and rests between them, so that its share of time is bounded.

    Args:
        work: does a step and says whether there is more; it is given :meth:`rest`, to be called between the
            parts of a long step.
        budget: most of the time that is spent working.
    """

    def __init__(self, work: Callable[[Callable[[], None]], bool], budget: float) -> None:
        self._work = work
        self._budget = budget
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._since = 0.0

    def wake(self) -> None:
        """There is something to do."""
        if self._wanted.is_set() or self._stopped.is_set():
            return
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="memory-tiers", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish the step and end; nothing that waits is lost."""
        self._stopped.set()
        self._wanted.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def rest(self) -> None:
        """Wait for as long as the work since the last rest is above its share.

        Raises:
            InterruptedError: the thread is to end.
        """
        spent = time.perf_counter() - self._since
        if self._stopped.wait(min(spent * (1.0 / self._budget - 1.0), 10.0)):
            raise InterruptedError
        self._since = time.perf_counter()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wanted.wait()
            self._wanted.clear()
            try:
                self._since = time.perf_counter()
                while not self._stopped.is_set() and self._work(self.rest):
                    self.rest()
            except InterruptedError:
                return
            except Exception:
                # Answers stay right, from the tier where the vectors are; the next change tries again.
                _LOG.exception("vectors could not be moved to the long-term tier")
                self._stopped.wait(1.0)
