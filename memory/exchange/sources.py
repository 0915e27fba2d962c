"""Sources of memories: files and streams, read line by line or row by row."""

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
from memory.exchange.frames import files_of, read_frames
from memory.exchange.jsonl import Line, StreamLines, parse_object, read_lines
from memory.exchange.parquet import count_rows, read_rows
from memory.exchange.records import memory_from_record
from memory.exchange.scenes import Scenes
from memory.observe.free_space import Looks
from memory.types import Memory, check_text

#: Very many memories, and usual bytes of a line with a vector.
MANY, _LINE = 10_000, 1500
#: Bytes of a file read at a time.
_PART = 1 << 20


class Entry(NamedTuple):
    """A line or row that holds memories.

    Attributes:
        number: line or row number, counted from 1.
        raw: bytes that identify its content.
        position: index among the entries; empty lines do not count.
        row: the row of a table, or ``None``.
    """

    number: int
    raw: bytes
    position: int
    row: dict[str, Any] | None = None


class Remainder(NamedTuple):
    """Rest of a source after its last entry.

    Attributes:
        memories: memories that were held back.
        detail: their detail in the log.
    """

    memories: list[Memory]
    detail: dict[str, Any]


class Source(ABC):
    """A file or stream to import.

    Attributes:
        path: the file, or the name of a stream in messages.
        sort: kind of content; the import history is separate for each kind.
        size: approximate sum of all weights, for progress; 0 if unknown.
        streams: True if entries arrive over time and can be read only once.
        many: True if it is known to hold about ``MANY`` memories or more.
        spaces: name of vectors in the store -> their encoder, from the entries read so far.
        expected: the same from earlier imports; vectors of another encoder are an error.
        ended: recording -> lines after which earlier imports had stored all of its tracks.
        early_ns: first time before the year 2000 of a memory, or ``None``.
    """

    path: Path
    sort: str
    size: int
    streams: bool = False
    many: bool = False

    def __init__(self) -> None:
        self.spaces: dict[str, str] = {}
        self.expected: dict[str, str] = {}
        self.ended: dict[str, set[int]] = {}
        self.early_ns: int | None = None

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """Yield the entries in order."""

    @abstractmethod
    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """Return the memories of an entry, or raise ``DataError``."""

    def skip(self, entry: Entry) -> None:  # noqa: B027 (most sources need nothing here)
        """Note an entry that was imported before; later entries may depend on it."""

    def end(self) -> Remainder:
        """Return the memories that remain after the last entry."""
        return Remainder([], {})

    def weight(self, entry: Entry) -> int:
        """Return the weight of an entry, for progress."""
        return len(entry.raw) + 1

    def check_first(self) -> None:
        """Parse the first entry, or raise ``DataError``; call it before a store is created for the source."""
        entry = next(iter(self._preview()), None)
        if entry is not None:
            self.parse(entry, {})

    def is_empty(self) -> bool:
        """True if there is no entry; of a stream, wait for the first line."""
        return next(self._preview(), None) is None

    def find_dim(self) -> int | None:
        """Return the length of the first default vector, or ``None``; of a stream, read one line."""
        for entry in self._preview():
            try:
                dim = self._dim(entry)
            except DataError:
                continue  # The import reports it.
            if dim is not None:
                return dim
        return None

    def _preview(self) -> Iterator[Entry]:
        """Yield the entries that can be read before the import."""
        return self.entries()

    def _read(self, record: Mapping[str, Any], dims: dict[str, int]) -> Memory:
        """Return the memory of a record, and note a time that is probably no count of nanoseconds."""
        memory = memory_from_record(record, dims)
        if self.early_ns is None and memory.time_ns < EARLIEST_NS:
            self.early_ns = memory.time_ns
        return memory

    def _dim(self, entry: Entry) -> int | None:
        return next((len(m.embedding) for m in self.parse(entry, {}) if m.embedding is not None), None)


class MemoryLines(Source):
    """JSONL with one memory per line."""

    sort = "memories"

    def __init__(self, path: Path, stream: StreamLines | None = None) -> None:
        super().__init__()
        self.path = path
        self.size = _size(path) if stream is None else 0
        self.many = self.size >= MANY * _LINE
        self.streams = stream is not None
        self._stream = stream

    def entries(self) -> Iterator[Entry]:
        """Yield every non-empty line."""
        lines = (line for line in self.lines() if line.raw.strip())
        return (Entry(line.number, line.raw, position) for position, line in enumerate(lines))

    def lines(self) -> Iterator[Line]:
        """Yield every line."""
        return iter(self._stream or read_lines(self.path))

    def _preview(self) -> Iterator[Entry]:
        if self._stream is None:
            return self.entries()
        first = self._stream.first()
        return iter(() if first is None else (Entry(first.number, first.raw, 0),))

    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """Return the memory of a line."""
        record = parse_object(self.path, Line(entry.number, entry.raw))
        try:
            return [self._read(record, dims)]
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}:{entry.number}: {error}") from error


class DetectionLines(MemoryLines):
    """Frames of detections, one per line of JSONL or one per row of Parquet; the import is the same.

    Args:
        path: the file, the folder of a table, or the name of a stream.
        options: options for turning boxes into memories.
        stream: lines that arrive over time, instead of those of the file.
        table: True if the path is Parquet.
    """

    def __init__(
        self,
        path: Path,
        options: DetectionOptions | None = None,
        stream: StreamLines | None = None,
        *,
        table: bool = False,
    ) -> None:
        super().__init__(path, stream)
        self._files = files_of(path) if table else []
        if table:
            self.size = sum(_size(file) for file in self._files)
        self.options = options or DetectionOptions()
        self._scenes = Scenes()
        #: Free space around the frames that have a pose.
        self.looks = Looks()
        # A stream has no folder, so its images are relative to the working directory.
        self._crops = Crops(self.options.crops or path.parent, self.options.image_encoder)
        #: Counts of the frames parsed so far: boxes below the minimum score, frames without a pose, frames
        #: that use the time of detection, boxes with a vector, boxes whose image was encoded, and all boxes.
        self.left_out = self.without_pose = self.clocked = self.with_vector = self.pictured = self.boxes = 0
        #: Frames with a date assumed by the detector, and frames with a time since the start of a recording.
        self.assumed = self.relative = 0
        #: Boxes of objects that were seen too seldom to be sure.
        self.unsure = 0
        # The log outlives the memories of an erased map, so it holds a hash of the map's name.
        self.sort = f"detections of map {hashlib.sha256(self.options.map_id.encode()).hexdigest()[:16]}"

    def check_first(self) -> None:
        """Do nothing, because the import checks frames, and parsing them twice would count them twice."""

    def lines(self) -> Iterator[Line]:
        """Yield every line, or the rows of all files of a table by their line numbers."""
        return read_frames(self._files) if self._files else super().lines()

    def _dim(self, entry: Entry) -> int | None:
        record = parse_object(self.path, Line(entry.number, entry.raw))
        try:
            return embedding_dim(record) if self.options.encoder == DEFAULT else None
        except ValueError as error:
            raise DataError(f"{self.path}:{entry.number}: {error}") from error

    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """Return one memory per box of a frame, and one of its place."""
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
        """Raise ``ValueError`` for vectors of another length or encoder than the store's."""
        pictures = self.options.image_encoder
        if pictures is not None and pictures.dim != dims.setdefault(pictures.name, pictures.dim):
            raise ValueError(
                f"the image encoder's vectors have {pictures.dim} numbers, but the store's vectors"
                f" {pictures.name!r} have {dims[pictures.name]}. Use a new store or another --image-encoder"
            )
        name, dim = self.options.encoder, embedding_dim(record)
        if name is None or dim is None:
            return
        fix = "store them under another name with --encoder NAME, or skip them with --no-vectors"
        if dim != dims.setdefault(name, dim):
            raise ValueError(
                f"embeddings have {dim} numbers, but the store's vectors {name!r} have {dims[name]}."
                f" Use a new store, {fix}"
            )
        encoder = record.get("encoder")
        if encoder is None:
            return
        known = (self.expected | self.spaces).get(name, check_text("encoder", encoder))
        if encoder != known:
            raise ValueError(
                f"embeddings of encoder {encoder!r} cannot be compared with the store's vectors {name!r} of"
                f" {known!r}. Use a new store, {fix}"
            )
        self.spaces[name] = encoder


class ParquetRows(Source):
    """Parquet with one memory per row; the hash of the whole file and the row number identify an entry."""

    sort = "parquet"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        _size(path)
        self.size = count_rows(path)
        self.many = self.size >= MANY
        with path.open("rb") as stream:
            digest = hashlib.sha256()
            while part := stream.read(_PART):
                digest.update(part)
        self._digest = digest.digest()

    def entries(self) -> Iterator[Entry]:
        """Yield every row."""
        rows = enumerate(read_rows(self.path))
        return (Entry(place + 1, self._digest, place, row) for place, row in rows)

    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """Return the memory of a row."""
        try:
            return [self._read(entry.row or {}, dims)]
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path}: row {entry.number}: {error}") from error

    def weight(self, entry: Entry) -> int:
        """Count every row as one."""
        return 1


def has_vector(memory: Memory) -> bool:
    """Return True if a memory has a vector of any encoder."""
    return memory.embedding is not None or bool(memory.embeddings)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror})") from error
