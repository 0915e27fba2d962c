"""Files that memories are read from, line by line or row by row."""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from memory.errors import DataError
from memory.exchange.detections import DetectionOptions, is_detections, memories_from_frame
from memory.exchange.jsonl import Line, parse_object, read_lines
from memory.exchange.parquet import count_rows, read_rows
from memory.exchange.records import memory_from_record
from memory.types import Memory

SourceFormat = Literal["auto", "memories", "detections", "parquet"]
SOURCE_FORMATS: tuple[SourceFormat, ...] = get_args(SourceFormat)


class Entry(NamedTuple):
    """What holds memories: a line or a row.

    Attributes:
        number: of the line or row, from 1.
        raw: bytes that tell its content.
        position: among the entries, from 0: empty lines do not count.
        row: of a table, or ``None``.
    """

    number: int
    raw: bytes
    position: int
    row: dict[str, Any] | None = None


class Source(ABC):
    """A file.

    Attributes:
        path: of the file.
        sort: of what it holds; the same lines as another sort are another import.
        size: for progress: what the weights of all entries sum up to, about.
    """

    path: Path
    sort: str
    size: int

    @abstractmethod
    def entries(self, *, content: bool = True) -> Iterator[Entry]:
        """In order; without the rows where only :attr:`Entry.raw` is wanted."""

    @abstractmethod
    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """The memories of an entry.

        Raises:
            DataError: names file and line.
        """

    def weight(self, entry: Entry) -> int:
        """Of an entry, for progress."""
        return len(entry.raw) + 1

    def find_dim(self) -> int | None:
        """Length of the first default vector in it; ``None`` where there is none."""
        for entry in self.entries():
            try:
                memories = self.parse(entry, {})
            except DataError:
                continue  # The import says so.
            for memory in memories:
                if memory.embedding is not None:
                    return len(memory.embedding)
        return None


class MemoryLines(Source):
    """JSONL with a memory a line."""

    sort = "memories"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = _size(path)

    def entries(self, *, content: bool = True) -> Iterator[Entry]:
        """Every line that is not empty."""
        lines = (line for line in read_lines(self.path) if line.raw.strip())
        return (Entry(line.number, line.raw, position) for position, line in enumerate(lines))

    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """One memory."""
        record = parse_object(self.path, Line(entry.number, entry.raw))
        try:
            return [memory_from_record(record, dims)]
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}:{entry.number}: {error}") from error


class DetectionLines(MemoryLines):
    """JSONL with a frame of detections a line."""

    def __init__(self, path: Path, options: DetectionOptions | None = None) -> None:
        super().__init__(path)
        self.options = options or DetectionOptions()
        #: Boxes of the frames parsed so far whose score was too low.
        self.left_out = 0
        # For the log, which stays when all memories of a map are erased: so not by its name.
        self.sort = f"detections of map {hashlib.sha256(self.options.map_id.encode()).hexdigest()[:16]}"

    def find_dim(self) -> None:
        """Boxes have no vectors."""

    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """The boxes of a frame."""
        record = parse_object(self.path, Line(entry.number, entry.raw))
        try:
            found = memories_from_frame(record, entry.position, self.options)
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}:{entry.number}: {error}") from error
        self.left_out += len(record["boxes"]) - len(found)
        return found


class ParquetRows(Source):
    """Parquet with a memory a row; entries are told apart by the whole file and their number."""

    sort = "parquet"

    def __init__(self, path: Path) -> None:
        self.path = path
        _size(path)
        self.size = count_rows(path)
        with path.open("rb") as stream:
            self._digest = hashlib.file_digest(stream, "sha256").digest()

    def entries(self, *, content: bool = True) -> Iterator[Entry]:
        """Every row."""
        rows = read_rows(self.path) if content else (None for _ in range(self.size))
        return (Entry(place + 1, self._digest, place, row) for place, row in enumerate(rows))

    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """One memory."""
        try:
            return [memory_from_record(entry.row or {}, dims)]
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}: row {entry.number}: {error}") from error

    def weight(self, entry: Entry) -> int:
        """A row is a row."""
        return 1


def open_source(
    path: Path, format: SourceFormat = "auto", detections: DetectionOptions | None = None
) -> Source:
    """A file to import.

    Args:
        path: of the file.
        format: of what it holds; ``"auto"`` goes by the suffix and the first line that is JSON.
        detections: how boxes become memories.

    Raises:
        DataError: it cannot be read.
    """
    if format == "auto":
        format = _guess(path)
    if format == "parquet":
        return ParquetRows(path)
    return DetectionLines(path, detections) if format == "detections" else MemoryLines(path)


def _guess(path: Path) -> SourceFormat:
    if path.suffix.lower() in (".parquet", ".pq"):
        return "parquet"
    for line in read_lines(path):
        if line.raw.startswith(b"PAR1"):
            return "parquet"
        if line.raw.strip():
            # What is no JSON the import names, or leaves out.
            with contextlib.suppress(DataError):
                return "detections" if is_detections(parse_object(path, line)) else "memories"
    return "memories"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror})") from error
