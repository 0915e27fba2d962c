"""``detections.jsonl``: one JSON record per frame, never overwritten without ``--overwrite``."""

from __future__ import annotations

import argparse
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from perception.cli.console import counted
from perception.errors import DataError
from sparse_core.common.files import GrowingFile, is_special

NAME = "detections.jsonl"


def add_record_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--overwrite`` and ``--resume``."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--overwrite", action="store_true", help=f"replace the {NAME} of an earlier run")
    choice.add_argument(
        "--resume", action="store_true", help=f"continue an earlier run: skip frames in {NAME}"
    )


class FolderRecords:
    """A file of records that can be extended.

    Args:
        folder: folder of the file; ``open`` creates it.
        overwrite: True replaces existing records.
        resume: True keeps existing records and appends; an incomplete last line is dropped. Devices and
            pipes are not read.
        name: name of the file.

    Raises:
        DataError: records exist and neither option is set, or a line of them is invalid.
    """

    def __init__(self, folder: Path, *, overwrite: bool, resume: bool, name: str = NAME) -> None:
        self.path = folder / name
        self._kept = b""
        self._known: dict[tuple[str, str | None], bytes] = {}
        try:
            keeps_records = self.path.exists() and not is_special(self.path)
            earlier = self.path.read_bytes() if keeps_records and not overwrite else b""
        except OSError as error:
            raise DataError(
                f"{self.path}: reading failed ({error.strerror}). Name another folder."
            ) from error
        if earlier and not resume:
            raise DataError(
                f"{self.path} already has {counted(earlier.count(bytes([10])), 'frame')}."
                " Add --resume to continue, --overwrite to replace them, or name another folder with --out."
            )
        self._seen_bytes = None if overwrite else len(earlier)
        self._kept = earlier[: earlier.rfind(b"\n") + 1]
        for number, line in enumerate(self._kept.splitlines(), 1):
            self._known[_identity(self.path, number, line)] = line

    def __len__(self) -> int:
        """Return the number of existing records."""
        return len(self._known)

    def holds(self, name: str, source: str) -> bool:
        """Return True if a record of this name and source exists."""
        return (name, source) in self._known

    def find(self, name: str, source: str) -> dict[str, Any] | None:
        """Return the existing record of this name and source, or None."""
        line = self._known.get((name, source))
        return None if line is None else dict(json.loads(line))

    @contextmanager
    def open(self) -> Iterator[FolderRecords]:
        """Open for appending to the existing records.

        Raises:
            DataError: another command writes the file, or has changed it since.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _sole_writer(self.path):
            if self._seen_bytes is not None and not is_special(self.path):
                self._check_unchanged(self._seen_bytes)
            with closing(GrowingFile(self.path, keep=len(self._kept))) as self._stream:
                yield self

    def _check_unchanged(self, seen_bytes: int) -> None:
        # Loading the weights takes seconds, in which another command may have started and ended.
        if self.path.stat().st_size != seen_bytes:
            raise DataError(
                f"{self.path}: another command wrote to it in the meantime. Rerun with --resume to continue,"
                " or name another folder with --out."
            )

    def write(self, record: dict[str, Any]) -> None:
        """Append a record and flush it; a failed write leaves no partial record."""
        self._stream.write(json.dumps(record) + "\n")


@contextmanager
def _sole_writer(path: Path) -> Iterator[None]:
    """Lock a file against other commands that would write it, and create it."""
    if is_special(path):
        yield
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Some network file systems have no locks; a run there is better than none.
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise DataError(
                    f"{path}: another command is writing this file. Wait until it ends, or name another"
                    " folder with --out."
                ) from error
        yield
    finally:
        os.close(descriptor)


def open_records(path: Path) -> BinaryIO:
    """Open a file of records for reading; raise ``DataError`` for a device or pipe, which may never end."""
    if is_special(path):
        raise DataError(
            f"{path} is a device or pipe, so records cannot be read back. Write them to a regular file."
        )
    return path.open("rb")


class WrittenRecords:
    """The records of a file, read on demand; raises ``DataError`` if the file or a line is invalid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[tuple[str, str | None], int] = {}
        place = 0
        try:
            with open_records(path) as lines:
                for number, line in enumerate(lines, 1):
                    self._places[_identity(path, number, line)] = place
                    place += len(line)
        except OSError as error:
            raise DataError(f"{path}: reading failed ({error.strerror}). Rerun with --overwrite.") from error

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._places)

    def holds(self, name: str, source: str) -> bool:
        """Return True if a record of this name and source exists."""
        return (name, source) in self._places

    def read(self, name: str, source: str) -> dict[str, Any]:
        """Read the record of a frame."""
        with open_records(self.path) as lines:
            lines.seek(self._places[name, source])
            return dict(json.loads(lines.readline()))


def _identity(path: Path, number: int, line: bytes) -> tuple[str, str | None]:
    try:
        record = json.loads(line)
        return record["frame"], record["source"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: line {number} is not a record of a frame ({error}). Add --overwrite to replace the"
            " file."
        ) from error
