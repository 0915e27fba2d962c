"""Sending until the other side has everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memory.errors import StaleSyncError
from memory.persistence.database import Database
from memory.persistence.log.reception import Receipt
from memory.sync.inbox import Inbox, Receiver
from memory.sync.outbox import Outbox
from memory.sync.service import ServiceClient

#: Times that a send begins anew because somebody else sent for the same store meanwhile.
_ATTEMPTS = 5


@dataclass
class SyncReport:
    """What a send did, as the other side counts.

    Attributes:
        robot: whose memories were sent.
        added, changed, removed: memories there.
        kept: changes that the other side did not make: it had forgotten or erased the memory, or merged it
            for good.
        batches: that were sent.
        future: memories that say that they were seen after they came there, by more than a minute.
        ahead_ns: nanoseconds that this clock is ahead of that of the other side, as the last batch says.
    """

    robot: str
    added: int = 0
    changed: int = 0
    removed: int = 0
    kept: int = 0
    batches: int = 0
    future: int = 0
    ahead_ns: int = 0

    def count(self, done: Receipt) -> None:
        """A batch that was sent."""
        self.batches += 1
        self.added += done.added
        self.changed += done.changed
        self.removed += done.removed
        self.kept += done.kept
        self.future += done.future
        if done.generation is not None:
            self.ahead_ns = done.ahead_ns

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dict(vars(self))


def sync(
    outbox: Outbox, receiver: Receiver, *, progress: Callable[[int, int], None] | None = None
) -> SyncReport:
    """Send what a receiver lacks; returns when it has everything there was at the start.

    It may break off at any moment, on either side, and be called again: what had arrived is not sent again,
    what arrives twice is there once.

    Args:
        outbox: of the store that is sent.
        receiver: of the other store.
        progress: called with the memories that are sent and how many there are.

    Raises:
        ForkedStoreError: see :meth:`Outbox.start`.
        SyncError, StoreError: the other side cannot be reached, or does not take it.
    """
    report = SyncReport(outbox.robot)
    for attempt in range(_ATTEMPTS):
        try:
            for batch in outbox.batches(receiver.position(outbox.store)):
                report.count(receiver.receive(batch))
                if progress is not None:
                    progress(*batch.progress)
            break
        except StaleSyncError:
            if attempt == _ATTEMPTS - 1:
                raise
    return report


def pull(
    source: Database | ServiceClient,
    database: Database,
    *,
    name: str = "shared",
    progress: Callable[[int, int], None] | None = None,
) -> SyncReport:
    """Bring a robot what others saw in its maps.

    It is found as all else, with who saw it, but stays apart: it is not sent again, not merged with what the
    robot saw itself, and what the robot sees of it again counts in its own store only.

    Args:
        source: the shared store, or the service that has it.
        database: of the robot, open for writing.
        name: as which the robot has the shared store.
        progress: called with the memories that came and how many there are, as far as that is known.

    Raises:
        SyncError, StoreError: the other side cannot be reached.
    """
    inbox, maps = Inbox(database), database.maps()
    if isinstance(source, Database):
        # Whatever was put back there is followed: the robot's own memories are not among it.
        outbox = Outbox(source, name, maps=maps, shared=True, forked=True)
        return sync(outbox, inbox, progress=progress)
    report, store = SyncReport(name), source.store()
    while (batch := source.pull(inbox.position(store), name=name, maps=maps)) is not None:
        report.count(inbox.receive(batch))
        if progress is not None:
            progress(report.added, report.added)
    return report
