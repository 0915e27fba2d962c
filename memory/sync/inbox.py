"""Receiving side of a synchronization."""

from __future__ import annotations

import threading
from typing import Protocol

from memory.persistence.database import Database
from memory.persistence.log.batches import Batch, Position
from memory.persistence.log.reception import PeerState, Receipt
from memory.sync.areas import AreaMessage, AreaReport, take_areas

#: Points of the receiver's history sent to a sender, which looks for the newest one that it knows.
MOST_POINTS = 100


class Receiver(Protocol):
    """A store that receives batches, on this computer or elsewhere."""

    def position(self, store: str) -> Position:
        """Return how far this store is with another."""

    def receive(self, batch: Batch) -> Receipt:
        """Store a batch; return once it is durable."""

    def take_areas(self, message: AreaMessage) -> AreaReport:
        """Take over the areas of another store."""


class Inbox:
    """A receiving store on this computer or on a PostgreSQL server.

    Args:
        database: open for writing.
        may_undo: True if merges may be undone to change their parts; on a server, only the store's owner may.
    """

    def __init__(self, database: Database, *, may_undo: bool = True) -> None:
        self._database, self._may_undo = database, may_undo
        self._lock = threading.Lock()
        self._known: dict[str, PeerState] = {}

    def position(self, store: str) -> Position:
        """Return how far this store is with another."""
        with self._lock:
            known = self._of(store)
            self._database.follow(known)
            return Position(
                self._database.store, tuple(known.points[-MOST_POINTS:]), tuple(known.partial), known.robot
            )

    def receive(self, batch: Batch) -> Receipt:
        """Store a batch, see :func:`memory.persistence.log.reception.receive`."""
        with self._lock:
            return self._database.receive(batch, self._of(batch.store), may_undo=self._may_undo)

    def take_areas(self, message: AreaMessage) -> AreaReport:
        """Take over the areas of another store, see :func:`memory.sync.areas.take_areas`."""
        with self._lock:
            return take_areas(self._database, message, self._of(message.store))

    def _of(self, store: str) -> PeerState:
        return self._known.setdefault(store, PeerState(store))
