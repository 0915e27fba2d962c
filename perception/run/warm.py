"""Empty frames between the scans of a sensor, which keep a GPU and its host awake."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from typing_extensions import Self


class WarmKeeper:
    """Calls a function again and again in a thread, as long as the context lasts.

    Args:
        rehearse: computes an empty frame, unless a call is running.
        interval_s: pause between the calls.

    Raises:
        ValueError: the interval is not positive.
    """

    def __init__(self, rehearse: Callable[[], object], interval_s: float) -> None:
        if not interval_s > 0:
            raise ValueError(f"interval_s must be positive, got {interval_s}")
        self._rehearse, self._interval_s = rehearse, interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keep-warm", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._rehearse()
