"""The thread that reads scans from a source and reopens a broken one."""

from __future__ import annotations

import threading
from collections.abc import Callable

from perception.errors import DataError
from perception.live.arrivals import Arrival, Source
from perception.live.figures import Figures
from perception.live.newest import NewestQueue

#: First and longest wait in seconds before a source is reopened; failures double it.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0


class Reader(threading.Thread):
    """Thread that moves scans from a source to a queue, until the source or the run ends.

    Args:
        source: source of scans.
        queue: queue, which is closed at the end.
        figures: counts of the run.
        stop: set to end the run.
        say: called with messages for the user.
        rate_hz: largest number of scans per second; others are skipped.
        first_wait_s: see :data:`FIRST_WAIT_S`.

    Attributes:
        error: error that ended the source.
    """

    def __init__(
        self,
        source: Source,
        queue: NewestQueue[Arrival],
        figures: Figures,
        stop: threading.Event,
        say: Callable[[str], None],
        *,
        rate_hz: float | None = None,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        super().__init__(name="scans", daemon=True)
        self._source, self._queue, self._figures = source, queue, figures
        self._stop_asked, self._say, self._first_wait_s = stop, say, first_wait_s
        self._least_gap_s = 0.0 if rate_hz is None else 1.0 / rate_hz
        self._next_s = 0.0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Read until the end."""
        try:
            self._read()
        except BaseException as error:
            self.error = error
        finally:
            self._queue.close()

    def _read(self) -> None:
        wait_s = self._first_wait_s
        while not self._stop_asked.is_set():
            before = self._figures.arrived
            try:
                for arrival in self._source.arrivals(self._stop_asked):
                    self._take(arrival)
            except (DataError, OSError) as error:
                if not self._source.lasting:
                    raise
                problem = str(error)
            else:
                if self._stop_asked.is_set() or not self._source.lasting:
                    return
                problem = f"{self._source.name}: ended"
            wait_s = self._first_wait_s if self._figures.arrived > before else wait_s
            self._say(f"{problem}. Reopening in {wait_s:g} s.")
            if self._stop_asked.wait(wait_s):
                return
            self._figures.reconnects += 1
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _take(self, arrival: Arrival | DataError) -> None:
        if isinstance(arrival, DataError):
            self._figures.unreadable += 1
            self._say(f"skipped: {arrival}")
            return
        self._figures.arrived += 1
        slack_s = 0.1 * self._least_gap_s
        if arrival.arrived_s < self._next_s - slack_s:
            self._figures.skipped += 1
            return
        # In step with the source, so that 5 of 10 Hz is every second scan despite jitter.
        self._next_s = max(self._next_s, arrival.arrived_s - slack_s) + self._least_gap_s
        self._queue.put(arrival)
        self._figures.dropped = self._queue.dropped
