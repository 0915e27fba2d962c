"""Lock that lets only one process write to a store."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from memory.errors import StoreError, StoreLockedError, StoreReadOnlyError

#: Bytes of the file's first line, the process id, and of its second.
PID_BYTES, LINE_BYTES = 16, 112


class Acknowledgement(NamedTuple):
    """Progress that a writer acknowledged.

    Attributes:
        generation: last durable operation.
        next_id: id of the next memory.
        closed: True if the writer closed the store, with everything in the database itself.
    """

    store: str
    generation: int
    next_id: int
    closed: bool = False


def _line(done: Acknowledgement) -> bytes:
    """Return the file's line, with its checksum."""
    text = f"{done.store} {done.generation} {done.next_id} {done.closed:d}"
    return f"{text} {crc32(text.encode()):08x}\n".rjust(LINE_BYTES).encode()


def _read(line: bytes) -> Acknowledgement | None:
    """Parse the line of :func:`_line`; ``None`` if it is damaged or missing."""
    text, _, checksum = line.strip().rpartition(b" ")
    if checksum != b"%08x" % crc32(text):
        return None
    store, generation, next_id, closed = text.decode().split()
    return Acknowledgement(store, int(generation), int(next_id), closed == "1")


class WriterLock:
    """Advisory lock on ``writer.lock``, which holds the writer's process id and progress.

    The system releases it when the process ends for any reason, even if it forked. Two handles in one process
    exclude each other too.

    Attributes:
        last_acknowledgement: progress of the last writer.
    """

    def __init__(self, file: Path) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: another process holds it.
            StoreReadOnlyError: the file is not writable.
        """
        self._file = file
        self._done: Acknowledgement | None = None
        try:
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise StoreReadOnlyError(
                    f"{file.parent} is not writable ({error.strerror}). Open it with readonly=True"
                ) from error
            raise StoreError(f"cannot open {file}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, PID_BYTES, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StoreLockedError(
                f"{file.parent} is being written by process {holder or 'unknown'}. Only one process may"
                " write. End it, or write through it if it is recall serve. Reading works meanwhile"
            ) from error
        self.last_acknowledgement = _read(os.pread(self._descriptor, LINE_BYTES, PID_BYTES))
        os.pwrite(self._descriptor, f"{os.getpid()}\n".ljust(PID_BYTES).encode(), 0)
        _held.add(self)

    def acknowledge(self, done: Acknowledgement) -> None:
        """Record the progress; not synced, because it only has to outlive the process."""
        os.pwrite(self._descriptor, _line(done), PID_BYTES)
        self._done = done

    def release(self, *, whole: bool = True) -> None:
        """Release the lock; a second call does nothing.

        Args:
            whole: True if everything acknowledged is in the database itself, without a log.
        """
        if self._descriptor >= 0:
            # Clear the process id first, because a forked child shares the descriptor and would keep the
            # lock.
            os.pwrite(self._descriptor, b"\n".rjust(PID_BYTES), 0)
            if whole and self._done is not None:
                self.acknowledge(self._done._replace(closed=True))
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _release_after_fork() -> None:
    """Close the descriptor in a forked process, so that the lock does not outlive the writer."""
    for lock in list(_held):
        if lock._descriptor >= 0:
            os.close(lock._descriptor)
            lock._descriptor = -1


os.register_at_fork(after_in_child=_release_after_fork)
