"""Cache of recently read memories, valid until an operation changes them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.persistence.engine import engine_of
from memory.persistence.log import journal
from memory.persistence.rows import TEXTS, Image, load
from memory.persistence.sql import Connection
from memory.types import Memory

#: Most memories in the cache, and most characters in the texts of one; about 20 MB in all.
MOST, LONGEST = 4096, 4096
#: Index of the payload in an image, and the JSON of an empty payload.
PAYLOAD, _NOTHING = TEXTS.index("payload"), "{}"


class MemoryCache:
    """Cache of memories without vectors, as of the last operation.

    A transaction that sees an earlier moment bypasses it. Payloads and covariances are copied for each
    caller, because they are mutable.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = -1
        #: Attributes by name, and the payload as text; the most recently used at the end.
        self._known: dict[int, tuple[Mapping[str, Any], str]] = {}

    def read(self, connection: Connection, ids: Sequence[int], generation: int) -> list[Memory]:
        """Return the memories in order of the ids, within the caller's transaction.

        Args:
            connection: of the transaction.
            ids: the ids.
            generation: last operation that the transaction sees.

        Raises:
            UnknownMemoryError: an id does not exist.
        """
        with self._lock:
            if self._generation < generation:
                self._follow(connection, generation)
            current = self._generation == generation
            known = {id: self._take(id) for id in ids if id in self._known} if current else {}
        missing = [id for id in ids if id not in known]
        read: dict[int, Memory] = {}
        if missing:
            images = engine_of(connection).read_images(connection, missing, vectors=False)
            read = {image.id: image.memory() for image in images}
            self._keep(images, read, generation)
        return [read[id] if id in read else _rebuild(*known[id]) for id in ids]

    def clear(self) -> None:
        """Empty the cache, because rows were rewritten or are to be erased."""
        with self._lock:
            self._known.clear()
            self._generation = -1

    def _take(self, id: int) -> tuple[Mapping[str, Any], str]:
        """Return a cached memory and mark it as the most recently used."""
        self._known[id] = found = self._known.pop(id)
        return found

    def _follow(self, connection: Connection, generation: int) -> None:
        """Drop the memories that later operations changed."""
        if self._known:
            changes = journal.read_changes(connection, self._generation)
            for ids in (changes.removed, changes.changed):
                for id in ids.tolist():
                    self._known.pop(id, None)
        self._generation = generation

    def _keep(self, images: Sequence[Image], read: Mapping[int, Memory], generation: int) -> None:
        with self._lock:
            if self._generation != generation:
                return
            for image in images:
                if sum(map(len, image.texts)) <= LONGEST:
                    memory = read[image.id]
                    own = {"covariance": _copy(memory.covariance)}
                    self._known[image.id] = vars(memory) | own, image.texts[PAYLOAD]
            while len(self._known) > MOST:
                del self._known[next(iter(self._known))]


def _rebuild(values: Mapping[str, Any], payload: str) -> Memory:
    """Return a new memory with these attributes."""
    return Memory.like(
        values,
        payload={} if payload == _NOTHING else load(payload),
        embeddings={},
        covariance=_copy(values["covariance"]),
    )


def _copy(covariance: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    return None if covariance is None else covariance.copy()
