"""Stop signals of a training: it finishes its step, saves, and prints how to resume."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_Handler = Callable[[int, FrameType | None], None]
#: Signals of Ctrl-C, and of service managers, batch systems and containers.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A computation stopped by a signal; the message names what was saved and how to resume.

    Args:
        signal_number: of the signal; None is SIGTERM received by another process.
    """

    def __init__(self, message: str, signal_number: int | None) -> None:
        super().__init__(message)
        self.signal_number = signal.SIGTERM if signal_number is None else signal_number

    @property
    def exit_status(self) -> int:
        """Exit status of a program ended by this signal: 130 or 143."""
        return 128 + int(self.signal_number)


class StopRequest:
    """First signal since :func:`stop_requests` began.

    Attributes:
        signal_number: None without a signal.
    """

    signal_number: int | None = None

    def __bool__(self) -> bool:
        """True after a signal."""
        return self.signal_number is not None


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM instead of ending the process; a second signal raises KeyboardInterrupt.

    Outside the main thread, which alone can handle signals, this does nothing.
    """
    request = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        if request:
            raise KeyboardInterrupt
        request.signal_number = number

    with _handle_signals(note):
        yield request


@contextmanager
def interruptible(message: Callable[[], str]) -> Iterator[None]:
    """Raise :class:`Interrupted` at once on SIGINT and SIGTERM.

    Args:
        message: called on a signal; returns what was saved and how to resume.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted(message(), number)

    with _handle_signals(stop):
        yield


@contextmanager
def _handle_signals(handler: _Handler) -> Iterator[None]:
    """Handle both signals, and restore the previous handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            # None is a handler that Python did not install and cannot restore.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


def ignore_stop_signals() -> None:
    """Ignore stop signals in worker processes; Ctrl-C also reaches their parent, which stops them."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
