"""Frames of detections as a table in Parquet, in one file or in parts: ``perceive detect --parquet``.

A row is a line of ``detections.jsonl``: its number in ``line``, some fields as columns, and as JSON in
``record`` the rest in the order of the line, with null for these.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memory.errors import DataError
from memory.exchange.detections import DetectionOptions
from memory.exchange.jsonl import Line
from memory.exchange.parquet import load_pyarrow, open_parquet
from memory.exchange.sources import DetectionLines

#: In the metadata of each file, and the versions that are read.
FORMAT, VERSIONS = b"detections", (b"1",)
_FIELDS = ("frame", "source", "timestamp_ns", "boxes", "scores", "labels", "warnings")
_ROWS = 256


class DetectionRows(DetectionLines):
    """Parquet with a frame of detections a row; the same import as that of the lines that it was made of."""

    def __init__(self, path: Path, options: DetectionOptions | None = None) -> None:
        super().__init__(path, options)
        self._files = _files(path)
        self.size = sum(file.stat().st_size for file in self._files)

    def lines(self) -> Iterator[Line]:
        """The rows of all parts, by their numbers."""
        return read_frames(self._files)


def holds_frames(path: Path) -> bool:
    """Whether a file or folder of Parquet holds frames of detections."""
    if path.is_dir():
        return True
    return (open_parquet(path).schema_arrow.metadata or {}).get(b"sparsight_format") == FORMAT


def read_frames(files: list[Path]) -> Iterator[Line]:
    """The rows of some files as lines of JSON, by their numbers; files are open where their rows are.

    Raises:
        DataError: a file is damaged, or no table of detections.
    """
    waiting = deque(sorted((first, place) for place, file in enumerate(files) for first in _first(file)))
    running: list[tuple[int, int, bytes, Iterator[tuple[int, bytes]]]] = []
    while waiting or running:
        while waiting and (not running or waiting[0][0] <= running[0][0]):
            _, place = waiting.popleft()
            _go_on(running, place, _rows(files[place]))
        number, place, raw, rows = heapq.heappop(running)
        yield Line(number, raw)
        _go_on(running, place, rows)


def _go_on(
    running: list[tuple[int, int, bytes, Iterator[tuple[int, bytes]]]],
    place: int,
    rows: Iterator[tuple[int, bytes]],
) -> None:
    for number, raw in rows:
        heapq.heappush(running, (number, place, raw, rows))
        return


def _files(path: Path) -> list[Path]:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: no .parquet file in this folder; name that of perceive detect --parquet")
    return files


def _first(path: Path) -> Iterator[int]:
    """The number of a file's first row; nothing of one without rows."""
    with open_parquet(path) as file:
        said = file.schema_arrow.metadata or {}
        if said.get(b"sparsight_format") != FORMAT or said.get(b"sparsight_version") not in VERSIONS:
            raise DataError(f"{path}: no table of detections of this version (perceive detect --parquet)")
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
    """The record in its order."""
    rest: dict[str, Any] = json.loads(row["record"])
    return {name: row[name] if name in _FIELDS else value for name, value in rest.items()}
