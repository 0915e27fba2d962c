"""Exceptions of memory.

    RecallError
    ├── StoreError                    the files of a store
    │   ├── NotAStoreError            nothing there, or a file of another program
    │   ├── StoreVersionError         written by a newer release, or to be migrated by a writer first
    │   ├── CorruptStoreError         damaged or cut off
    │   ├── StoreLockedError          another process writes, or holds on to what is needed
    │   ├── StoreReadOnlyError        opened for reading only, or the folder cannot be written
    │   ├── StoreFullError            no room on the disk
    │   └── StoreClosedError          used after ``close()``, or in a process that was forked
    ├── UnknownMemoryError            no memory has this id (also a ``KeyError``)
    ├── DimensionError                a vector of another length than the store's (also a ``ValueError``)
    ├── UndoError                     an operation that cannot be taken back
    ├── QueryInterruptedError         reading took longer than it may, or the store is to be closed
    ├── EraseError                    removed, but old bytes may still be in the files
    └── DataError                     a file to import, or of poses, cannot be used (also a ``ValueError``)

    UserWarning
    └── RecallWarning                 an index finds clearly less than searches aim at

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


class QueryInterruptedError(RecallError):
    """Reading took longer than it may, or was ended because the store is to be closed."""


class EraseError(RecallError):
    """Memories were removed, but old bytes may still be in the files of the store."""


class DataError(RecallError, ValueError):
    """A file that cannot be used; the message begins with its name and the line."""


class RecallWarning(UserWarning):
    """An index finds clearly fewer of the nearest than searches aim at; the message says what helps."""
