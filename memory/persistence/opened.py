"""An open store of any engine: who may read and write, and how it is lent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Self

from memory.persistence.log.journal import Counters
from memory.persistence.log.writer import Commits

Result = TypeVar("Result")


class Opened(ABC):
    """Lends the connections of a store.

    Attributes:
        folder: of the store, or of what this computer keeps for one on a server: caches that may be deleted.
        dim: length of the default vectors.
        readonly: whether it was opened for reading only.
        remarks: what opening found that its user should know.
        shared: whether other processes, on other computers too, write at the same time: settings are in the
            database alone.
        guarded: whether row-level security holds for this user: who is not the owner of a server's store.
    """

    folder: Path
    dim: int
    readonly: bool
    remarks: list[str]
    shared: bool
    guarded: bool
    _counters: Counters

    @abstractmethod
    def _read(self) -> AbstractContextManager[Any]:
        """A connection that sees one moment."""

    @abstractmethod
    def _check_writer(self) -> Commits:
        """The writer, or raise where there is none."""

    @abstractmethod
    def _translated(self) -> AbstractContextManager[Any]:
        """Turns errors of the engine into those of :mod:`memory.errors`."""

    @abstractmethod
    def interrupt(self) -> None:
        """End what is read and written just now, in any thread; what was being written is rolled back.

        Those who wait for it get :class:`memory.errors.QueryInterruptedError`.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the store; a second call does nothing."""

    def __enter__(self) -> Self:
        """The database itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def _write(self, work: Callable[[Any], Result]) -> Result:
        """Do something in a transaction that others may share; returns when it is on the disk."""
        writer = self._check_writer()
        with self._translated():
            return writer.run(work)
