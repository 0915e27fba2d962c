"""Files that memories are read from, line by line or row by row."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from memory.errors import DataError
from memory.exchange.crops import Crops
from memory.exchange.detections import (
    DEFAULT,
    EARLIEST_NS,
    DetectionOptions,
    embedding_dim,
    look_of_frame,
    memories_from_frame,
)
from memory.exchange.jsonl import Line, StreamLines, parse_object, read_lines
from memory.exchange.parquet import count_rows, read_rows
from memory.exchange.records import memory_from_record
from memory.exchange.scenes import Scenes
from memory.observe.free_space import Looks
from memory.types import Memory, check_text

#: Bytes of a file that are read at a time.
_PART = 1 << 20


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


class Ending(NamedTuple):
    """What comes after the last entry.

    Attributes:
        memories: that were held back.
        detail: for the log, with them.
    """

    memories: list[Memory]
    detail: dict[str, Any]


class Source(ABC):
    """A file, or a stream.

    Attributes:
        path: of the file; of a stream, what messages call it.
        sort: of what it holds; the same lines as another sort are another import.
        size: for progress: what the weights of all entries sum up to, about; 0 where nobody knows.
        streams: entries come once, and when they come.
        spaces: name of vectors in the store -> the encoder whose they are, as entries said so far.
        expected: the same, as earlier imports said: entries with vectors of others are errors.
        ended: recording -> lines after which earlier imports had stored all of its tracks.
    """

    path: Path
    sort: str
    size: int
    streams: bool = False

    def __init__(self) -> None:
        self.spaces: dict[str, str] = {}
        self.expected: dict[str, str] = {}
        self.ended: dict[str, set[int]] = {}

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """In order."""

    @abstractmethod
    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """The memories of an entry.

        Raises:
            DataError: names file and line.
        """

    def pass_over(self, entry: Entry) -> None:  # noqa: B027 (most need not)
        """An entry that was imported before: what goes on after it may need to know it."""

    def end(self) -> Ending:
        """What is left to be stored after the last entry."""
        return Ending([], {})

    def weight(self, entry: Entry) -> int:
        """Of an entry, for progress."""
        return len(entry.raw) + 1

    def find_dim(self) -> int | None:
        """Length of the first default vector in it, of a stream in its first line; ``None`` without one."""
        for entry in self._looked_at():
            try:
                dim = self._dim(entry)
            except DataError:
                continue  # The import says so.
            if dim is not None:
                return dim
        return None

    def _looked_at(self) -> Iterator[Entry]:
        """Entries that may be looked at before they are imported."""
        return self.entries()

    def _dim(self, entry: Entry) -> int | None:
        return next((len(m.embedding) for m in self.parse(entry, {}) if m.embedding is not None), None)


class MemoryLines(Source):
    """JSONL with a memory a line."""

    sort = "memories"

    def __init__(self, path: Path, stream: StreamLines | None = None) -> None:
        super().__init__()
        self.path = path
        self.size = _size(path) if stream is None else 0
        self.streams = stream is not None
        self._stream = stream

    def entries(self) -> Iterator[Entry]:
        """Every line that is not empty."""
        lines = (line for line in self.lines() if line.raw.strip())
        return (Entry(line.number, line.raw, position) for position, line in enumerate(lines))

    def lines(self) -> Iterator[Line]:
        """Every line."""
        return iter(self._stream or read_lines(self.path))

    def _looked_at(self) -> Iterator[Entry]:
        if self._stream is None:
            return self.entries()
        first = self._stream.first()
        return iter(() if first is None else (Entry(first.number, first.raw, 0),))

    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """One memory."""
        record = parse_object(self.path, Line(entry.number, entry.raw))
        try:
            return [memory_from_record(record, dims)]
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}:{entry.number}: {error}") from error


class DetectionLines(MemoryLines):
    """JSONL with a frame of detections a line."""

    def __init__(
        self, path: Path, options: DetectionOptions | None = None, stream: StreamLines | None = None
    ) -> None:
        super().__init__(path, stream)
        self.options = options or DetectionOptions()
        self._scenes = Scenes()
        #: How far frames with a pose saw free around them.
        self.looks = Looks()
        # Of a stream, which has no folder, the working directory.
        self._crops = Crops(self.options.crops or path.parent, self.options.image_encoder)
        #: Of the frames parsed so far: boxes whose score was too low, frames without a pose, frames whose
        #: time is that of the detector's computer, boxes that have a vector, those whose picture was encoded,
        #: and boxes in all.
        self.left_out = self.without_pose = self.clocked = self.with_vector = self.pictured = self.boxes = 0
        #: Frames whose date the detector assumed, and frames of before any LiDAR: times of a recording.
        self.assumed = self.relative = 0
        # For the log, which stays when all memories of a map are erased: so not by its name.
        self.sort = f"detections of map {hashlib.sha256(self.options.map_id.encode()).hexdigest()[:16]}"

    def _dim(self, entry: Entry) -> int | None:
        record = parse_object(self.path, Line(entry.number, entry.raw))
        try:
            return embedding_dim(record) if self.options.encoder == DEFAULT else None
        except ValueError as error:
            raise DataError(f"{self.path}:{entry.number}: {error}") from error

    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """The boxes of a frame, and its place."""
        record = parse_object(self.path, Line(entry.number, entry.raw))
        try:
            self._check_space(record, dims)
            found = memories_from_frame(record, entry.position, self.options, self._scenes, self._crops)
            look_of_frame(record, entry.position, self.options, self.looks)
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}:{entry.number}: {error}") from error
        objects = sum(memory.kind == "object" for memory in found)
        self.boxes += objects
        self.with_vector += sum(memory.kind == "object" and has_vector(memory) for memory in found)
        self.left_out += len(record["boxes"]) - objects
        self._count_pictures(found)
        self.without_pose += self.options.poses is None and record.get("pose") is None
        assumed = record.get("assumed_ns") is not None and self.options.start_ns is None
        self.assumed += assumed and record.get("assumed_from") != "start"
        self.clocked += not assumed and bool(found) and found[0].time_ns == record.get("detected_ns")
        self.relative += not assumed and any(0 <= memory.time_ns < EARLIEST_NS for memory in found)
        return found

    def _count_pictures(self, found: list[Memory]) -> None:
        encoder = self.options.image_encoder
        pictured = 0 if encoder is None else sum(encoder.name in memory.embeddings for memory in found)
        self.pictured += pictured
        if encoder is not None and pictured:
            self.spaces[encoder.name] = encoder.name

    def _check_space(self, record: Mapping[str, Any], dims: dict[str, int]) -> None:
        """Vectors are compared with those of the store: they must be of one encoder, and as long."""
        pictures = self.options.image_encoder
        if pictures is not None and pictures.dim != dims.setdefault(pictures.name, pictures.dim):
            raise ValueError(
                f"the store's vectors {pictures.name!r} have {dims[pictures.name]} numbers, those of the"
                f" image encoder {pictures.dim}: take a new store, or another --image-encoder"
            )
        name, dim = self.options.encoder, embedding_dim(record)
        if name is None or dim is None:
            return
        fix = "--encoder NAME keeps them beside the store's, --no-vectors leaves them out"
        if dim != dims.setdefault(name, dim):
            raise ValueError(
                f"embeddings have {dim} numbers, the store's vectors {name!r} {dims[name]}: a new store is"
                f" made for them, {fix}"
            )
        said = record.get("encoder")
        if said is None:
            return
        known = (self.expected | self.spaces).get(name, check_text("encoder", said))
        if said != known:
            raise ValueError(
                f"embeddings are of {said!r}, the store's vectors {name!r} of {known!r}, which cannot be"
                f" compared: take a new store, {fix}"
            )
        self.spaces[name] = said


class ParquetRows(Source):
    """Parquet with a memory a row; entries are told apart by the whole file and their number."""

    sort = "parquet"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        _size(path)
        self.size = count_rows(path)
        with path.open("rb") as stream:
            digest = hashlib.sha256()
            while part := stream.read(_PART):
                digest.update(part)
        self._digest = digest.digest()

    def entries(self) -> Iterator[Entry]:
        """Every row."""
        rows = enumerate(read_rows(self.path))
        return (Entry(place + 1, self._digest, place, row) for place, row in rows)

    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """One memory."""
        try:
            return [memory_from_record(entry.row or {}, dims)]
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}: row {entry.number}: {error}") from error

    def weight(self, entry: Entry) -> int:
        """A row is a row."""
        return 1


def has_vector(memory: Memory) -> bool:
    """Whether a memory has a vector of any encoder."""
    return memory.embedding is not None or bool(memory.embeddings)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror})") from error
