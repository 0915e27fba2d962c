"""How many threads a frame gets where those that wait spin: it depends on whether others want the cores.

Threads of an OpenMP that spins take the cores from the very thread they wait for once another program runs: a
frame takes many times as long, and as much more of the cores; a quarter longer where they spin for some
microseconds only (:mod:`sparse_core.waiting`). One thread waits for nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from sparse_core.waiting import sleeps_soon, waits_asleep

#: Share of a frame's time that the thread which asked for it runs, below which others have its core: 0.90 and
#: more where nobody does, 0.51 to 0.58 beside one program on two cores, 0.23 to 0.36 beside four.
LEAST_SHARE = 0.75
#: Below this many others do, and threads that sleep soon get more of the cores together than one alone.
MANY_SHARE = 0.45
#: Seconds for which one thread is used then, and at least so many times as long as that frame took.
SINGLE_S, SINGLE_TIMES = 1.0, 20.0


class FrameThreads:
    """Gives a frame all threads, or one where others were found to want the cores.

    Only for what does not depend on the number of threads.

    Args:
        clock: seconds that went by.
        ran: seconds that the calling thread ran.
        asleep: whether threads that wait sleep at once; they may be as many as they are then.
        soon: whether they sleep after some microseconds.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.perf_counter,
        ran: Callable[[], float] = time.thread_time,
        asleep: Callable[[], bool] = waits_asleep,
        soon: Callable[[], bool] = sleeps_soon,
    ) -> None:
        self._clock, self._ran, self._asleep, self._soon = clock, ran, asleep, soon
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
        share = (self._ran() - ran) / max(now - begun, 1e-9)
        if (MANY_SHARE if self._soon() else 0.0) <= share < LEAST_SHARE:
            self._single_until = now + max(SINGLE_S, SINGLE_TIMES * (now - begun))
