"""Items of an iterator taken ahead by a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from typing import Generic, TypeVar

from typing_extensions import Self

Item = TypeVar("Item")

_PAUSE_S = 0.05


class Fetcher(Generic[Item]):
    """Runs an iterator in a thread of its own, a few items ahead; a context manager.

    Leaving the context stops the thread after the item it is waiting for.

    Args:
        items: any iterable of items that are not None.
        ahead: items fetched before somebody asks for them.
    """

    def __init__(self, items: Iterable[Item], *, ahead: int) -> None:
        self._items = items
        self._arrived: queue.Queue[Item | None] = queue.Queue(ahead)
        self._error: BaseException | None = None
        self._ended = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fetch, name="fetcher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()

    def take(self, *, wait: bool) -> Item | None:
        """The next item; None at the end, or, unless ``wait``, when it has not arrived yet.

        Raises:
            BaseException: whatever the iterator raised.
        """
        if self._ended:
            return None
        try:
            item = self._arrived.get(block=wait)
        except queue.Empty:
            return None
        if item is None:
            self._ended = True
            if self._error is not None:
                raise self._error
        return item

    def _fetch(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    return
        except BaseException as error:  # handed to whoever takes the items
            self._error = error
        self._put(None)

    def _put(self, item: Item | None) -> bool:
        """Wait for room; False when nobody wants the items any more."""
        while not self._stopped.is_set():
            try:
                self._arrived.put(item, timeout=_PAUSE_S)
            except queue.Full:
                continue
            return True
        return False
