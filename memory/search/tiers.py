"""Background moves of vectors from the recent to the long-term tier, with a bounded CPU budget."""

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
    """Sizes of the two tiers of an encoder.

    Attributes:
        recent, long_term: number of vectors in each.
        waiting: number of recent vectors to be moved.
        index: name of the long-term index, or ``None``.
        bytes: size of the arrays of both tiers, including mapped files.
        reached: measured effort and recall of the long-term index for each aim; ``None`` before the
            measurement.
    """

    recent: int
    long_term: int
    waiting: int
    index: str | None
    bytes: int
    reached: tuple[AimEffort, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        reached = None if self.reached is None else [one.to_json() for one in self.reached]
        return {**vars(self), "reached": reached}


class Mover:
    """Background thread that works in small steps and rests in between.

    Args:
        work: does a step and returns True if there is more. It calls its argument, :meth:`rest`, during
            long steps.
        budget: maximum share of the time spent working.
    """

    def __init__(self, work: Callable[[Callable[[], None]], bool], budget: float) -> None:
        self._work = work
        self._budget = budget
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._since = 0.0

    def wake(self) -> None:
        """Start working."""
        if self._wanted.is_set() or self._stopped.is_set():
            return
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="memory-tiers", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish the current step and end the thread."""
        self._stopped.set()
        self._wanted.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def rest(self) -> None:
        """Rest to keep the budget; raises ``InterruptedError`` if the thread must end."""
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
                # Answers stay correct, and the next change retries.
                _LOG.exception("failed to move vectors to the long-term tier; retrying after the next change")
                self._stopped.wait(1.0)
