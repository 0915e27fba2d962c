"""Detection of what a file or stream contains."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from memory.errors import DataError
from memory.exchange.detections import DetectionOptions, is_detections
from memory.exchange.frames import files_of, holds_frames, read_frames
from memory.exchange.jsonl import Line, StreamLines, parse_object, read_lines
from memory.exchange.sources import DetectionLines, MemoryLines, ParquetRows, Source
from memory.exchange.track_lines import LinkedLines, TrackLines

SourceFormat = Literal["auto", "memories", "detections", "parquet"]
SOURCE_FORMATS: tuple[SourceFormat, ...] = get_args(SourceFormat)


def open_source(
    path: Path, format: SourceFormat = "auto", detections: DetectionOptions | None = None
) -> Source:
    """Open a file for import.

    Args:
        path: the file, or the folder of a detections table.
        format: the content; ``"auto"`` decides by the suffix and the first line that is valid JSON.
        detections: options for turning boxes into memories.

    Raises:
        DataError: the file cannot be read.
    """
    if format == "auto":
        if path.suffix.lower() in (".csv", ".tsv"):
            raise DataError(
                f"{path}: CSV cannot be imported. Write one JSON object per line, such as"
                ' {"time": "2026-01-02T10:00:00Z", "x": 1.0, "y": 2.0, "label": "mug"}, and rerun'
            )
        format = _guess(path)
    if format == "parquet":
        if not holds_frames(path):
            return ParquetRows(path)
        return _frames(path, read_frames(files_of(path)), detections, table=True)
    if format != "detections":
        return MemoryLines(path)
    return _frames(path, read_lines(path), detections)


def open_stream(
    stream: BinaryIO, name: str, format: SourceFormat = "auto", detections: DetectionOptions | None = None
) -> Source:
    """Open a stream of lines for import, such as standard input; each line is read once, when it arrives.

    Args:
        name: name of the stream in messages and in the log.
        format: the content; ``"auto"`` waits for the first line.
        detections: options for turning boxes into memories.

    Raises:
        DataError: the stream is Parquet, which is read from its end, or cannot be read.
    """
    path, lines = Path(name), StreamLines(stream, name)
    if format == "auto":
        first = lines.first()
        format = "memories" if first is None else _kind_of(path, first) or "memories"
    if format == "parquet":
        raise DataError(f"{name}: Parquet cannot be read from a stream. Give the path of the file")
    if format != "detections":
        return MemoryLines(path, lines)
    first = lines.first()
    return _frames(path, () if first is None else (first,), detections, lines)


def _frames(
    path: Path,
    lines: Iterable[Line],
    options: DetectionOptions | None,
    stream: StreamLines | None = None,
    *,
    table: bool = False,
) -> Source:
    """Return a source of tracks if the first valid line has track numbers, or poses to form tracks with."""
    kind = DetectionLines
    if options is None or options.tracks:
        record = next(_objects(path, lines), {})
        posed = record.get("pose") is not None or (options is not None and options.poses is not None)
        if record.get("track_id") is not None:
            kind = TrackLines
        elif posed:
            kind = LinkedLines
    return kind(path, options, stream, table=table)


def _objects(path: Path, lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    """Yield the objects of valid lines; the import reports lines and files that are not."""
    with contextlib.suppress(DataError):
        for line in lines:
            with contextlib.suppress(DataError):
                if line.raw.strip():
                    yield parse_object(path, line)


def _guess(path: Path) -> SourceFormat:
    if path.suffix.lower() in (".parquet", ".pq") or path.is_dir():
        return "parquet"
    for line in read_lines(path):
        found = _kind_of(path, line)
        if found is not None:
            return found
    return "memories"


def _kind_of(path: Path, line: Line) -> SourceFormat | None:
    """Return the content of a file with this line, or ``None`` if the line does not show it."""
    if line.raw.startswith(b"PAR1"):
        return "parquet"
    if line.raw.strip():
        # The import itself reports invalid JSON.
        with contextlib.suppress(DataError):
            return "detections" if is_detections(parse_object(path, line)) else "memories"
    return None
