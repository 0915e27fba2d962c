"""Export of memories to JSONL, Parquet and GeoJSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TextIO, get_args

import numpy as np
from numpy.typing import NDArray

from memory.exchange.geojson import Origin, write_geojson
from memory.exchange.parquet import write_parquet
from memory.exchange.records import record_of
from memory.persistence.database import Database
from memory.query import EVERYTHING, Filter
from memory.types import Memory
from sparse_core.common.files import replacing

ExportFormat = Literal["jsonl", "parquet", "geojson"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
_SUFFIXES: dict[str, ExportFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".geojson": "geojson",
    ".json": "geojson",
}
#: Memories read at a time.
PORTION = 1000


def export_format(path: Path) -> ExportFormat:
    """Return the format that belongs to a file suffix.

    Raises:
        ValueError: the suffix is unknown.
    """
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise ValueError(f"{path}: unknown suffix. Use one of {', '.join(_SUFFIXES)}")
    return found


def export_memories(
    database: Database,
    target: Path | TextIO,
    *,
    format: ExportFormat,
    filter: Filter = EVERYTHING,
    ids: NDArray[np.int64] | None = None,
    vectors: bool = True,
    origin: Origin | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write memories, oldest first, and return how many were written.

    Args:
        database: others may write to it meanwhile; memories that they remove before their turn are skipped.
        target: a file, which appears only once it is complete, or a text stream.
        format: ``"jsonl"``, ``"parquet"`` or ``"geojson"``.
        filter: exports only the memories that pass it.
        ids: (n,) ids to export instead of a filter.
        vectors: also write embeddings; GeoJSON never contains them.
        origin: position of the map on Earth, for GeoJSON.
        progress: called with the number of memories written and their total.

    Raises:
        ValueError: Parquet into a stream.
    """
    if ids is None:
        ids = database.ids(filter, order="oldest")
    batches = _batches(database, ids, vectors and format != "geojson", progress)
    if format == "parquet":
        if not isinstance(target, Path):
            raise ValueError("Parquet is binary and needs a file: give a path as the target")
        with replacing(target) as temporary:
            return write_parquet(temporary, batches, vectors=vectors)
    with _text_stream(target) as stream:
        if format == "geojson":
            return write_geojson(stream, batches, origin=origin)
        return write_jsonl(stream, batches, vectors=vectors)


def write_jsonl(stream: TextIO, batches: Iterable[list[Memory]], *, vectors: bool = True) -> int:
    """Write one record per line and return how many were written."""
    count = 0
    for batch in batches:
        for memory in batch:
            stream.write(json.dumps(record_of(memory, vectors=vectors)) + "\n")
        count += len(batch)
    return count


@contextmanager
def _text_stream(target: Path | TextIO) -> Iterator[TextIO]:
    if not isinstance(target, Path):
        yield target
        return
    with replacing(target) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream


def _batches(
    database: Database,
    ids: NDArray[np.int64],
    vectors: bool,
    progress: Callable[[int, int], None] | None,
) -> Iterator[list[Memory]]:
    for start in range(0, len(ids), PORTION):
        yield database.present(ids[start : start + PORTION].tolist(), vectors=vectors)
        if progress is not None:
            progress(min(start + PORTION, len(ids)), len(ids))
