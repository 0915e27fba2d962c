"""Prefetch the items of an iterator in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from typing import Generic, TypeVar

from typing_extensions import Self

Item = TypeVar("Item")

_PAUSE_S = 0.05


class Fetcher(Generic[Item]):
    """Context manager that runs an iterator in a thread, a few items ahead.

    On exit, the thread stops after the item that it waits for.

    Args:
        items: iterable of items that are not None.
        ahead: largest number of prefetched items.
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
        """Return the next item; None at the end, or if ``wait`` is False and no item has arrived."""
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
        except BaseException as error:  # take() raises it
            self._error = error
        self._put(None)

    def _put(self, item: Item | None) -> bool:
        """Wait for room and put an item; return False after the context has ended."""
        while not self._stopped.is_set():
            try:
                self._arrived.put(item, timeout=_PAUSE_S)
            except queue.Full:
                continue
            return True
        return False
