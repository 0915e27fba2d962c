"""How many threads a frame gets where those that wait spin: it depends on whether others want the cores.

Threads of an OpenMP that spins (:mod:`sparse_core.waiting` has them sleep where torch was not loaded before)
take the cores from the very thread they wait for once another program runs: a frame takes many times as
long, and as much more of the cores. One thread waits for nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from sparse_core.waiting import waits_asleep

#: Share of a frame's time that the thread which asked for it runs, below which others have its core.
LEAST_SHARE = 0.85
#: Seconds for which one thread is used then, and at least so many times as long as that frame took.
SINGLE_S, SINGLE_TIMES = 1.0, 20.0


class FrameThreads:
    """Gives a frame all threads, or one where others were found to want the cores.

    Only for what does not depend on the number of threads.

    Args:
        clock: seconds that went by.
        ran: seconds that the calling thread ran.
        asleep: whether threads that wait sleep; they may be as many as they are then.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.perf_counter,
        ran: Callable[[], float] = time.thread_time,
        asleep: Callable[[], bool] = waits_asleep,
    ) -> None:
        self._clock, self._ran, self._asleep = clock, ran, asleep
        self._single_until = float("-inf")

    @contextmanager
    def of_a_frame(self) -> Iterator[None]:
        """Computes what is within with the threads that it should have; the number is this thread's alone."""
        threads = torch.get_num_threads()
        if threads == 1 or self._asleep():
            yield
            return
        begun, ran = self._clock(), self._ran()
        if begun < self._single_until:
            torch.set_num_threads(1)
            try:
                yield
            finally:
                torch.set_num_threads(threads)
            return
        yield
        now = self._clock()
        if self._ran() - ran < LEAST_SHARE * (now - begun):
            self._single_until = now + max(SINGLE_S, SINGLE_TIMES * (now - begun))
