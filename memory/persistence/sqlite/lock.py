"""One process writes to a store."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from memory.errors import StoreError, StoreLockedError, StoreReadOnlyError

#: Bytes of the file's first line, with the process id, and of its second.
PID_BYTES, LINE_BYTES = 16, 112


class Acknowledgement(NamedTuple):
    """How far a writer came.

    Attributes:
        store: name of the store.
        generation: the last operation of which it said that it is on the disk.
        next_id: of the next memory.
        closed: whether it closed the store: all of this was in the database itself.
    """

    store: str
    generation: int
    next_id: int
    closed: bool = False


def _line(done: Acknowledgement) -> bytes:
    """Of the file, with its checksum."""
    text = f"{done.store} {done.generation} {done.next_id} {done.closed:d}"
    return f"{text} {crc32(text.encode()):08x}\n".rjust(LINE_BYTES).encode()


def _read(line: bytes) -> Acknowledgement | None:
    """What :func:`_line` wrote; ``None`` where it is damaged or not there."""
    text, _, told = line.strip().rpartition(b" ")
    if told != b"%08x" % crc32(text):
        return None
    store, generation, next_id, closed = text.decode().split()
    return Acknowledgement(store, int(generation), int(next_id), closed == "1")


class WriterLock:
    """An advisory lock on ``writer.lock``, which holds the process id of the writer and how far it came.

    The system lets go of it when the process ends, however it ends, and whatever processes were forked from
    it. Two handles in one process exclude each other too.

    Attributes:
        left: what the last writer had acknowledged.
    """

    def __init__(self, file: Path) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: held already; names the process.
            StoreReadOnlyError: the file cannot be written.
        """
        self._file = file
        self._done: Acknowledgement | None = None
        try:
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise StoreReadOnlyError(
                    f"{file.parent} cannot be written ({error.strerror}): open it with readonly=True"
                ) from error
            raise StoreError(f"{file} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, PID_BYTES, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StoreLockedError(
                f"{file.parent} is being written by process {holder or 'unknown'}:"
                " one writer at a time, any number of readers (readonly=True)"
            ) from error
        self.left = _read(os.pread(self._descriptor, LINE_BYTES, PID_BYTES))
        os.pwrite(self._descriptor, f"{os.getpid()}\n".ljust(PID_BYTES).encode(), 0)
        _held.add(self)

    def acknowledge(self, done: Acknowledgement) -> None:
        """Note what is on the disk. Not synced: it costs nothing, and outlives the process."""
        os.pwrite(self._descriptor, _line(done), PID_BYTES)
        self._done = done

    def release(self, *, whole: bool = True) -> None:
        """Let go; a second call does nothing.

        Args:
            whole: everything that was acknowledged is in the database itself: no log is left.
        """
        if self._descriptor >= 0:
            # Before closing, because a forked child shares the descriptor and would keep the lock.
            os.pwrite(self._descriptor, b"\n".rjust(PID_BYTES), 0)
            if whole and self._done is not None:
                self.acknowledge(self._done._replace(closed=True))
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _let_go_after_fork() -> None:
    """A forked process shares the lock: were it to keep the descriptor, the lock would outlive the writer."""
    for lock in list(_held):
        if lock._descriptor >= 0:
            os.close(lock._descriptor)
            lock._descriptor = -1


os.register_at_fork(after_in_child=_let_go_after_fork)
