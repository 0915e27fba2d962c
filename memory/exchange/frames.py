"""Frames of detections in Parquet, in one file or several: ``perceive detect --parquet``.

A row is a line of ``detections.jsonl``. ``line`` holds its number, some fields are columns, and ``record``
holds the other fields as JSON, with null in place of the columns.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memory.errors import DataError
from memory.exchange.jsonl import Line
from memory.exchange.parquet import open_parquet
from sparse_core.common.libraries import load_pyarrow

#: Metadata of each file, and the versions that this release reads.
FORMAT, VERSIONS = b"detections", (b"1",)
_FIELDS = ("frame", "source", "timestamp_ns", "boxes", "scores", "labels", "warnings")
_ROWS = 256


def holds_frames(path: Path) -> bool:
    """Return True if a file or folder of Parquet holds frames of detections."""
    if path.is_dir():
        return True
    return (open_parquet(path).schema_arrow.metadata or {}).get(b"sparsight_format") == FORMAT


def read_frames(files: list[Path]) -> Iterator[Line]:
    """Merge the rows of several files into JSON lines ordered by number, with few files open.

    Raises:
        DataError: a file is damaged or is not a table of detections.
    """
    waiting = deque(
        sorted((first, place) for place, file in enumerate(files) for first in _first_number(file))
    )
    running: list[tuple[int, int, bytes, Iterator[tuple[int, bytes]]]] = []
    while waiting or running:
        while waiting and (not running or waiting[0][0] <= running[0][0]):
            _, place = waiting.popleft()
            _push_next(running, place, _rows(files[place]))
        number, place, raw, rows = heapq.heappop(running)
        yield Line(number, raw)
        _push_next(running, place, rows)


def _push_next(
    running: list[tuple[int, int, bytes, Iterator[tuple[int, bytes]]]],
    place: int,
    rows: Iterator[tuple[int, bytes]],
) -> None:
    for number, raw in rows:
        heapq.heappush(running, (number, place, raw, rows))
        return


def files_of(path: Path) -> list[Path]:
    """Return the files of a table, a file or a folder.

    Raises:
        DataError: the folder has none.
    """
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        lines = min(path.glob("*.jsonl"), default=None)
        fix = "the output of perceive detect --parquet" if lines is None else f"its file {lines.name}"
        raise DataError(f"{path}: no .parquet file in this folder. Give {fix}")
    return files


def _first_number(path: Path) -> Iterator[int]:
    """Yield the number of a file's first row, or nothing if it has no rows."""
    with open_parquet(path) as file:
        metadata = file.schema_arrow.metadata or {}
        if metadata.get(b"sparsight_format") != FORMAT or metadata.get(b"sparsight_version") not in VERSIONS:
            raise DataError(f"{path}: not a detections table of this version. Use perceive detect --parquet")
        for row in file.iter_batches(batch_size=1, columns=["line"]):
            yield int(row.column(0)[0].as_py())
            return


def _rows(path: Path) -> Iterator[tuple[int, bytes]]:
    pyarrow = load_pyarrow()
    with open_parquet(path) as file:
        try:
            for batch in file.iter_batches(batch_size=_ROWS):
                for row in batch.to_pylist():
                    yield int(row["line"]), json.dumps(_record(row)).encode()
        except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: damaged ({error})") from error


def _record(row: dict[str, Any]) -> dict[str, Any]:
    """Restore the record with its fields in their order."""
    rest: dict[str, Any] = json.loads(row["record"])
    return {name: row[name] if name in _FIELDS else value for name, value in rest.items()}
