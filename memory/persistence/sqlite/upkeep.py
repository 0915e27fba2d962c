"""A copy of the store at one moment, while it is written to."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from memory.persistence.sqlite.connection import is_failed_write, translate
from memory.persistence.sqlite.files import FILE_NAME, make_folder
from sparse_core.common.files import replacing, sync

#: Pages that are copied between two reports of progress: 4 MiB.
STEP_PAGES = 1024
#: Called with the pages that are copied and the pages that there are.
Progress = Callable[[int, int], None]


def copy_store(
    source: sqlite3.Connection,
    folder: Path,
    progress: Progress | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> Path:
    """Copy what a read transaction sees into a new store.

    The database is written under another name, and gets its own when it and everything beside it are on the
    disk: a folder with ``memory.db`` is a whole copy.

    Args:
        source: within a read transaction: the writer goes on meanwhile and does not disturb the copy.
        folder: of the copy, made where there is none; holds no store yet.
        progress: told how far it is.
        beside: contents of further files by name; those of the same name are replaced.

    Returns:
        The file, which is there only once all is complete and on the disk.

    Raises:
        FileExistsError: there is a store.
        StoreFullError: no room for the copy.
        StoreError: the copy cannot be written for another reason.
    """
    make_folder(folder)
    file = folder / FILE_NAME
    if file.exists() or Path(f"{file}-wal").exists():
        raise FileExistsError(f"{file} exists: a backup goes into a folder without a store")
    fresh = folder / f"{FILE_NAME}.new"
    # Of a copy that was interrupted: SQLite would play such a journal back into the new file.
    for left in (fresh, Path(f"{fresh}-journal")):
        left.unlink(missing_ok=True)
    source.execute("SELECT count(*) FROM meta").fetchone()  # The moment that is copied.

    def report(status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    target = sqlite3.connect(fresh)
    try:
        source.backup(target, pages=STEP_PAGES, progress=report)
    except BaseException as error:
        target.close()
        for left in (fresh, Path(f"{fresh}-journal")):
            left.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error) and is_failed_write(error):
            # Only the copy is written: callers would name the store that is copied.
            raise translate(error, file) from error
        raise
    target.close()
    sync(fresh)
    for name, content in (beside or {}).items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
    # Before the database appears in it.
    sync(folder)
    os.replace(fresh, file)
    sync(folder)
    return file
