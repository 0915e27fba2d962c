"""Where batches arrive."""

from __future__ import annotations

import threading
from typing import Protocol

from memory.persistence.database import Database
from memory.persistence.log.batches import Batch, Position
from memory.persistence.log.reception import PeerState, Receipt

#: Points of a history that are told to a sender, which looks for the newest that it knows.
MOST_POINTS = 100


class Receiver(Protocol):
    """A store that is sent to, here or elsewhere."""

    def position(self, store: str) -> Position:
        """How far it is with a store."""

    def receive(self, batch: Batch) -> Receipt:
        """Take a batch; returns when it is on the disk there."""


class Inbox:
    """A store on this computer, or on a PostgreSQL server.

    Args:
        database: open for writing.
        may_undo: whether merges may be taken back to change what they were made of: only the owner of a
            store on a server may.
    """

    def __init__(self, database: Database, *, may_undo: bool = True) -> None:
        self._database, self._may_undo = database, may_undo
        self._lock = threading.Lock()
        self._known: dict[str, PeerState] = {}

    def position(self, store: str) -> Position:
        """How far this store is with another, see :class:`Receiver`."""
        with self._lock:
            known = self._of(store)
            self._database.follow(known)
            return Position(
                self._database.store, tuple(known.points[-MOST_POINTS:]), tuple(known.partial), known.robot
            )

    def receive(self, batch: Batch) -> Receipt:
        """Do what a batch says, see :func:`memory.persistence.log.reception.receive`."""
        with self._lock:
            return self._database.receive(batch, self._of(batch.store), may_undo=self._may_undo)

    def _of(self, store: str) -> PeerState:
        return self._known.setdefault(store, PeerState(store))
