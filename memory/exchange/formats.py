"""Which source a file or a stream is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from memory.errors import DataError
from memory.exchange.detections import DetectionOptions, is_detections
from memory.exchange.frames import DetectionRows, holds_frames
from memory.exchange.jsonl import Line, StreamLines, parse_object, read_lines
from memory.exchange.sources import DetectionLines, MemoryLines, ParquetRows, Source
from memory.exchange.track_lines import TrackLines

SourceFormat = Literal["auto", "memories", "detections", "parquet"]
SOURCE_FORMATS: tuple[SourceFormat, ...] = get_args(SourceFormat)


def open_source(
    path: Path, format: SourceFormat = "auto", detections: DetectionOptions | None = None
) -> Source:
    """A file to import.

    Args:
        path: of the file, or of the folder of a table of detections.
        format: of what it holds; ``"auto"`` goes by the suffix and the first line that is JSON.
        detections: how boxes become memories.

    Raises:
        DataError: it cannot be read.
    """
    if format == "auto":
        format = _guess(path)
    if format == "parquet":
        return DetectionRows(path, detections) if holds_frames(path) else ParquetRows(path)
    if format != "detections":
        return MemoryLines(path)
    return _frames(path, read_lines(path), detections)


def open_stream(
    stream: BinaryIO, name: str, format: SourceFormat = "auto", detections: DetectionOptions | None = None
) -> Source:
    """A stream of lines to import, such as standard input; they are read as they come, once.

    Args:
        stream: of bytes.
        name: what messages and the log call it.
        format: of what it holds; ``"auto"`` waits for the first line.
        detections: how boxes become memories.

    Raises:
        DataError: it is Parquet, which is read from its end, or cannot be read.
    """
    path, lines = Path(name), StreamLines(stream, name)
    if format == "auto":
        first = lines.first()
        format = "memories" if first is None else _kind_of(path, first) or "memories"
    if format == "parquet":
        raise DataError(f"{name}: Parquet cannot be read from a stream; name its file")
    if format != "detections":
        return MemoryLines(path, lines)
    first = lines.first()
    return _frames(path, () if first is None else (first,), detections, lines)


def _frames(
    path: Path, lines: Iterable[Line], options: DetectionOptions | None, stream: StreamLines | None = None
) -> Source:
    """Of detections, or of tracks where the first line that can be read has numbers of them."""
    if options is None or options.tracks:
        for line in lines:
            with contextlib.suppress(DataError):
                if line.raw.strip():
                    tracked = parse_object(path, line).get("track_id") is not None
                    return (TrackLines if tracked else DetectionLines)(path, options, stream)
    return DetectionLines(path, options, stream)


def _guess(path: Path) -> SourceFormat:
    if path.suffix.lower() in (".parquet", ".pq") or path.is_dir():
        return "parquet"
    for line in read_lines(path):
        found = _kind_of(path, line)
        if found is not None:
            return found
    return "memories"


def _kind_of(path: Path, line: Line) -> SourceFormat | None:
    """What a file with such a line holds; ``None`` where it does not tell."""
    if line.raw.startswith(b"PAR1"):
        return "parquet"
    if line.raw.strip():
        # What is no JSON the import names, or leaves out.
        with contextlib.suppress(DataError):
            return "detections" if is_detections(parse_object(path, line)) else "memories"
    return None
