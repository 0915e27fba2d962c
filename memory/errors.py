"""Exceptions of memory.

Bad arguments raise the built-in ``ValueError`` and ``TypeError``. Failures of files outside the database
raise ``OSError``.
"""

from __future__ import annotations


class RecallError(Exception):
    """Base of the errors of this package."""


class StoreError(RecallError):
    """Problem with the files of a store or with the disk."""


class NotAStoreError(StoreError):
    """No store at the path, or a file of another program."""


class StoreVersionError(StoreError):
    """The schema is newer than this release, or too old to be opened read-only."""


class CorruptStoreError(StoreError):
    """The database is damaged or truncated."""


class StoreLockedError(StoreError):
    """Another process has locked the store."""


class StoreReadOnlyError(StoreError):
    """The store was opened read-only, or its folder is not writable."""


class StoreFullError(StoreError):
    """The disk or quota is full; the operation was not stored."""


class StoreClosedError(StoreError):
    """The store was closed, or was opened by the parent process."""


class UnknownMemoryError(RecallError, KeyError):
    """No memory has the id."""

    def __str__(self) -> str:
        """Return the message without the quotes of ``KeyError``."""
        return str(self.args[0]) if self.args else ""


class UnknownAreaError(RecallError, ValueError):
    """No area has the name, or areas of several maps have it."""


class DimensionError(RecallError, ValueError):
    """A vector has another length than those of the store."""


class TranslationError(RecallError):
    """A language model cannot be reached, or does not speak the protocol."""


class UndoError(RecallError):
    """An operation cannot be undone: trimmed, erased, undone before, or changed by later operations."""


class SyncError(RecallError):
    """Two stores do not match, or one of them cannot be reached."""


class StaleSyncError(SyncError):
    """The receiver has newer data than the sender assumed; the sender asks for its state again."""


class ForkedStoreError(SyncError):
    """A store was restored from a backup, so its history differs from the one it sent."""


class AlignmentError(RecallError):
    """Two maps could not be aligned; the message gives the reason."""


class QueryInterruptedError(RecallError):
    """A query exceeded its time limit or was stopped because the store closes."""


class EraseError(RecallError):
    """Memories were removed, but their bytes may remain in the files of the store."""


class DataError(RecallError, ValueError):
    """An invalid file; the message begins with its name and line."""


class IndexUnavailableError(RecallError, ImportError):
    """An index needs a missing package or GPU; the message says which."""
