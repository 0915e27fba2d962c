"""``detections.jsonl``: one JSON record a frame; nothing that is there is lost unasked."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from perception.errors import DataError
from sparse_core.common.files import GrowingFile, is_special

NAME = "detections.jsonl"


def add_record_options(parser: argparse.ArgumentParser) -> None:
    """``--overwrite`` or ``--resume``."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--overwrite", action="store_true", help=f"replace the {NAME} of an earlier run")
    choice.add_argument(
        "--resume", action="store_true", help=f"go on: frames that {NAME} holds are passed over"
    )


class FolderRecords:
    """The records of a folder, and what is written to them.

    Args:
        folder: of the file; made when it is opened.
        overwrite: replace what is there.
        resume: keep it, and go on behind it. A last line that was cut off is written again. A device or
            pipe keeps no records, and is not read.
        name: of the file.

    Raises:
        DataError: records are there and neither is asked for; or a line of them cannot be read.
    """

    def __init__(self, folder: Path, *, overwrite: bool, resume: bool, name: str = NAME) -> None:
        self.path = folder / name
        self._kept = b""
        self._known: dict[tuple[str, str | None], bytes] = {}
        try:
            keeps_records = self.path.exists() and not is_special(self.path)
            earlier = self.path.read_bytes() if keeps_records and not overwrite else b""
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror}); name another folder") from error
        if earlier and not resume:
            raise DataError(
                f"{self.path}: there already, with {earlier.count(bytes([10]))} frames; --overwrite replaces"
                " it, --resume goes on behind it, or name another folder with --out"
            )
        self._kept = earlier[: earlier.rfind(b"\n") + 1]
        for number, line in enumerate(self._kept.splitlines(), 1):
            self._known[_identity(self.path, number, line)] = line

    def __len__(self) -> int:
        """Frames that were written before."""
        return len(self._known)

    def holds(self, name: str, source: str) -> bool:
        """Whether a frame of this name and source was written before."""
        return (name, source) in self._known

    def held(self, name: str, source: str) -> dict[str, Any] | None:
        """The record of a frame of this name and source that was written before; None without."""
        line = self._known.get((name, source))
        return None if line is None else dict(json.loads(line))

    @contextmanager
    def open(self) -> Iterator[FolderRecords]:
        """Open for writing, behind what is kept."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(GrowingFile(self.path, keep=len(self._kept))) as self._stream:
            yield self

    def write(self, record: dict[str, Any]) -> None:
        """Add a record; it is with the system when this returns.

        Raises:
            OSError: there is no room; the file ends with the record before.
        """
        self._stream.write(json.dumps(record) + "\n")


def open_records(path: Path) -> BinaryIO:
    """Open records that were written, to read them.

    Args:
        path: of the file.

    Raises:
        DataError: it is a device or pipe; reading it might never end.
        OSError: the system refuses.
    """
    if is_special(path):
        raise DataError(
            f"{path}: a device or pipe, from which records cannot be read back; write them to a regular file"
        )
    return path.open("rb")


class WrittenRecords:
    """The records of a file, each read when it is asked for.

    Args:
        path: of the file.

    Raises:
        DataError: it cannot be read, or a line of it is no record.
    """

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
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error

    def __len__(self) -> int:
        """How many there are."""
        return len(self._places)

    def holds(self, name: str, source: str) -> bool:
        """Whether there is one of a frame of this name and source."""
        return (name, source) in self._places

    def read(self, name: str, source: str) -> dict[str, Any]:
        """The record of a frame that is held."""
        with open_records(self.path) as lines:
            lines.seek(self._places[name, source])
            return dict(json.loads(lines.readline()))


def _identity(path: Path, number: int, line: bytes) -> tuple[str, str | None]:
    try:
        record = json.loads(line)
        return record["frame"], record["source"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: line {number} is no record of a frame ({error}); --overwrite replaces the file"
        ) from error
