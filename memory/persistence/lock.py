"""One process writes to a store."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from memory.errors import StoreLockedError, StoreReadOnlyError


class WriterLock:
    """An advisory lock on ``writer.lock``, which holds the process id of the writer.

    The system lets go of it when the process ends, however it ends; the file stays and means nothing by
    itself. Two handles in one process exclude each other too.
    """

    def __init__(self, file: Path) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: held already; names the process.
            StoreReadOnlyError: the file cannot be written.
        """
        self._file = file
        try:
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise StoreReadOnlyError(
                    f"{file.parent} cannot be written ({error.strerror}): open it with readonly=True"
                ) from error
            raise
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StoreLockedError(
                f"{file.parent} is being written by process {holder or 'unknown'}:"
                " one writer at a time, any number of readers (readonly=True)"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go; a second call does nothing."""
        if self._descriptor >= 0:
            # Before closing, because a forked child shares the descriptor and would keep the lock.
            os.ftruncate(self._descriptor, 0)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1
