"""Synchronization of stores, batch by batch: each memory arrives exactly once, even if a link breaks."""

from memory.persistence.log.batches import Batch, Position
from memory.sync.inbox import Inbox, Receiver
from memory.sync.outbox import Outbox
from memory.sync.transfer import SyncReport, pull, sync

__all__ = ["Batch", "Inbox", "Outbox", "Position", "Receiver", "SyncReport", "pull", "sync"]
