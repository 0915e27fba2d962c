"""Transfer between stores until the receiver has everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from memory.errors import StaleSyncError, SyncError
from memory.persistence.database import Database
from memory.persistence.log.reception import Receipt
from memory.sync.areas import AreaReport
from memory.sync.inbox import Inbox, Receiver
from memory.sync.outbox import Outbox
from memory.sync.service import ServiceClient

#: Attempts if another sender updates the same store meanwhile.
_ATTEMPTS = 5


@dataclass
class SyncReport:
    """Result of a transfer, as counted by the receiver.

    Attributes:
        robot: name of the robot whose memories were sent.
        added, changed, removed: memories in the receiving store.
        kept: changes that the receiver refused, because it had forgotten, erased or finally merged the
            memory.
        batches: batches sent.
        future: memories whose time is more than a minute after their arrival.
        ahead_ns: nanoseconds that this clock is ahead of the receiver's, measured by the last batch.
        areas: result of the exchange of areas.
    """

    robot: str
    added: int = 0
    changed: int = 0
    removed: int = 0
    kept: int = 0
    batches: int = 0
    future: int = 0
    ahead_ns: int = 0
    areas: AreaReport = field(default_factory=AreaReport)

    def count(self, done: Receipt) -> None:
        """Add the receipt of a batch."""
        self.batches += 1
        self.added += done.added
        self.changed += done.changed
        self.removed += done.removed
        self.kept += done.kept
        self.future += done.future
        if done.generation is not None:
            self.ahead_ns = done.ahead_ns

    @property
    def empty(self) -> bool:
        """True if nothing was sent and no area changed."""
        return not self.batches and not self.areas.changed

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return vars(self) | {"areas": self.areas.to_json()}


def sync(
    outbox: Outbox, receiver: Receiver, *, progress: Callable[[int, int], None] | None = None
) -> SyncReport:
    """Send what a receiver lacks; return when it has everything that existed at the start.

    A transfer may break off at any moment on either side and be repeated: memories that arrived are not sent
    again, and those that arrive twice are stored once.

    Args:
        outbox: sending store.
        receiver: receiving store.
        progress: called with the memories sent and their total.

    Raises:
        ForkedStoreError: see :meth:`Outbox.start`.
        SyncError: the receiver is unreachable, refuses the batch, or is this store or a copy of it.
        StoreError: the receiving store is locked, full or damaged.
    """
    report = SyncReport(outbox.robot)
    for attempt in range(_ATTEMPTS):
        try:
            position = receiver.position(outbox.store)
            if position.store == outbox.store:
                # Otherwise the store would receive a copy of each of its own memories.
                raise SyncError(
                    "both sides are the same store, or one is a copy of the other. Choose another target"
                )
            for batch in outbox.batches(position):
                report.count(receiver.receive(batch))
                if progress is not None:
                    progress(*batch.progress)
            break
        except StaleSyncError:
            if attempt == _ATTEMPTS - 1:
                raise
    # After the memories, because areas may lie around some of them.
    message = outbox.areas(position.store)
    if message.areas:
        report.areas = receiver.take_areas(message)
    return report


def pull(
    source: Database | ServiceClient,
    database: Database,
    *,
    name: str = "shared",
    progress: Callable[[int, int], None] | None = None,
) -> SyncReport:
    """Fetch for a robot what others saw in its maps.

    Queries find it like everything else, with the names of the robots that saw it. But it stays separate: it
    is not sent again, not merged with the robot's own memories, and later observations of it count only in
    the robot's store.

    Args:
        source: the shared store, or the service that has it.
        database: the robot's store, open for writing.
        name: the robot's name for the shared store.
        progress: called with the memories received and their total, if known.

    Raises:
        SyncError, StoreError: the other side is unreachable.
    """
    inbox, maps = Inbox(database), database.maps()
    if isinstance(source, Database):
        # Follow a restored shared store too, because the robot's own memories are not in it.
        outbox = Outbox(source, name, maps=maps, shared=True, forked=True)
        return sync(outbox, inbox, progress=progress)
    report, store = SyncReport(name), source.store()
    while (batch := source.pull(inbox.position(store), name=name, maps=maps)) is not None:
        report.count(inbox.receive(batch))
        if progress is not None:
            progress(report.added, report.added)
    message = source.pull_areas(database.store, name=name, maps=maps)
    report.areas = AreaReport(supported=False) if message is None else inbox.take_areas(message)
    return report
