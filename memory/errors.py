"""Exceptions of memory.

Bad arguments raise the built-in ``ValueError`` and ``TypeError``; the command line's own ``UsageError``
(:mod:`memory.cli.console`) is a ``ValueError`` too. Files outside the database that the disk refuses raise
``OSError``.
"""

from __future__ import annotations


class RecallError(Exception):
    """Base of every error that memory raises on purpose."""


class StoreError(RecallError):
    """The files of a store, or the disk that they are on."""


class NotAStoreError(StoreError):
    """There is no store at the path, or the file belongs to another program."""


class StoreVersionError(StoreError):
    """The schema is newer than this release, or older and opened for reading only."""


class CorruptStoreError(StoreError):
    """The database is damaged or cut off."""


class StoreLockedError(StoreError):
    """Another process writes to the store, or holds on to what is needed."""


class StoreReadOnlyError(StoreError):
    """The store was opened for reading only, or its folder cannot be written."""


class StoreFullError(StoreError):
    """The disk, or the quota, is full; nothing of the operation was kept."""


class StoreClosedError(StoreError):
    """The store was closed, or belongs to the process that this one was forked from."""


class UnknownMemoryError(RecallError, KeyError):
    """No memory has the id."""

    def __str__(self) -> str:
        """The message as it is: ``KeyError`` would quote it."""
        return str(self.args[0]) if self.args else ""


class DimensionError(RecallError, ValueError):
    """A vector has another length than the store's."""


class UndoError(RecallError):
    """An operation cannot be taken back: too old, erased, undone already or built upon since."""


class SyncError(RecallError):
    """What two stores know of each other does not fit, or one of them cannot be reached."""


class StaleSyncError(SyncError):
    """The other side has come further than the sender knew: it asks again where that is."""


class ForkedStoreError(SyncError):
    """A store was put back as it had been before: its history is no longer the one that was sent."""


class AlignmentError(RecallError):
    """How two robots' maps lie to each other cannot be told; says why."""


class QueryInterruptedError(RecallError):
    """Reading took longer than it may, or was ended because the store is to be closed."""


class EraseError(RecallError):
    """Memories were removed, but old bytes may still be in the files of the store."""


class DataError(RecallError, ValueError):
    """A file that cannot be used; the message begins with its name and the line."""


class IndexUnavailableError(RecallError, ImportError):
    """An index needs a package or a GPU that is not here; says which, and what to do."""
