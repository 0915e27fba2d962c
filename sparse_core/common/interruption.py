"""Signals that ask a training to stop: it finishes its step, saves, and says how to resume."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_Handler = Callable[[int, FrameType | None], None]
#: Ctrl-C, and what service managers, batch systems and containers send.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A computation stopped because of a signal; the message says what was saved and how to resume.

    Args:
        message: for the user.
        signal_number: of the signal; None stands for SIGTERM that another process received.
    """

    def __init__(self, message: str, signal_number: int | None) -> None:
        super().__init__(message)
        self.signal_number = signal.SIGTERM if signal_number is None else signal_number

    @property
    def exit_status(self) -> int:
        """Exit status of a program that ends for this signal: 130 or 143."""
        return 128 + int(self.signal_number)


class StopRequest:
    """The first signal that came since :func:`stop_requests` began.

    Attributes:
        signal_number: of it; None while none came.
    """

    signal_number: int | None = None

    def __bool__(self) -> bool:
        """Return True if a signal came."""
        return self.signal_number is not None


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Note SIGINT and SIGTERM instead of ending the process; a second signal raises KeyboardInterrupt.

    In threads other than the main one, which cannot handle signals, nothing is noted.
    """
    request = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        if request:
            raise KeyboardInterrupt
        request.signal_number = number

    with _handled(note):
        yield request


@contextmanager
def interruptible(message: Callable[[], str]) -> Iterator[None]:
    """Raise :class:`Interrupted` at once on SIGINT and SIGTERM.

    Args:
        message: called when a signal comes; returns what was saved and how to resume.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted(message(), number)

    with _handled(stop):
        yield


@contextmanager
def _handled(handler: _Handler) -> Iterator[None]:
    """Handle both signals, and restore what handled them before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            # None: a handler that Python did not install, which it cannot restore either.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


def ignore_stop_signals() -> None:
    """Leave stopping to the parent process: Ctrl-C reaches the workers of a training too."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
