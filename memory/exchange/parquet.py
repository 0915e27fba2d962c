"""Memories as a Parquet table, by pyarrow.

There is one column per field. Times are int64 nanoseconds, and a position is ``x``, ``y``, ``z`` (null if
unknown). A covariance is nine numbers in row order, and a velocity three. A payload is JSON text, and a
vector is a list of float32. ``visits`` are lists of structs of ``first_ns``, ``last_ns`` and ``sights``.
Tables from other tools may have fewer columns, and their ``time_ns`` may be a timestamp.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from memory.errors import DataError
from memory.types import Memory, Visit
from sparse_core.common.libraries import load_pyarrow

#: Metadata of the table.
FORMAT = {"sparsight_format": "memories", "sparsight_version": "1"}
_TIMES = ("time_ns", "first_seen_ns", "last_seen_ns")
_PLAIN: tuple[str, ...] = ("id", "map_id", "kind", "label", "caption", "evidence", "provenance", "state")
_PLAIN += ("confidence", "reward", "marked", "count", "importance", "yaw", *_TIMES)


def write_parquet(path: Path, batches: Iterable[list[Memory]], *, vectors: bool = True) -> int:
    """Write a table and return the number of rows.

    Args:
        batches: each becomes a row group.
    """
    pyarrow = load_pyarrow()
    schema = _schema(pyarrow, vectors=vectors)
    rows = 0
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            table = [_row(memory, vectors=vectors) for memory in batch]
            writer.write_table(pyarrow.Table.from_pylist(table, schema=schema))
            rows += len(batch)
    return rows


def count_rows(path: Path) -> int:
    """Return the number of rows from the file's metadata, or raise ``DataError``."""
    with open_parquet(path) as file:
        return int(file.metadata.num_rows)


def read_rows(path: Path, *, batch_size: int = 1000) -> Iterator[dict[str, Any]]:
    """Yield the rows as records of :mod:`memory.exchange.records`.

    Raises:
        DataError: not a Parquet file, damaged, or not a table of memories.
    """
    pyarrow = load_pyarrow()
    with open_parquet(path) as file:
        columns = set(file.schema_arrow.names)
        unknown = sorted(columns - known_columns())
        if unknown:
            raise DataError(
                f"{path}: unknown column {unknown[0]!r}. Use {', '.join(sorted(known_columns()))}"
            )
        try:
            for batch in file.iter_batches(batch_size=batch_size):
                yield from _records(pyarrow, batch)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"{path}: {error}") from error


def known_columns() -> set[str]:
    """Return the names that a column may have."""
    names = {entry.name for entry in dataclasses.fields(Memory)} | {"x", "y", "z"}
    return names | {"time", "first_seen", "last_seen"}


def open_parquet(path: Path) -> Any:
    """Open a Parquet file as a context manager, or raise ``DataError``."""
    pyarrow = load_pyarrow()
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot read it as Parquet ({error})") from error


def _schema(pyarrow: Any, *, vectors: bool) -> Any:
    integer, number, text = pyarrow.int64(), pyarrow.float64(), pyarrow.string()
    floats = pyarrow.list_(pyarrow.float32())
    fields = [("id", integer), ("time_ns", integer), ("map_id", text), ("kind", text), ("label", text)]
    fields += [("caption", text), ("x", number), ("y", number), ("z", number), ("yaw", number)]
    fields += [("covariance", pyarrow.list_(number)), ("velocity", pyarrow.list_(number))]
    fields += [("confidence", number), ("reward", number)]
    fields += [("payload", text), ("evidence", text), ("provenance", text), ("marked", pyarrow.bool_())]
    fields += [("count", integer), ("first_seen_ns", integer), ("last_seen_ns", integer), ("state", text)]
    visit = pyarrow.struct([(name, integer) for name in Visit._fields])
    fields += [("importance", number), ("visits", pyarrow.list_(visit))]
    if vectors:
        fields += [("embedding", floats), ("embeddings", pyarrow.map_(text, floats))]
    return pyarrow.schema(fields, metadata=FORMAT)


def _row(memory: Memory, *, vectors: bool) -> dict[str, Any]:
    row = {name: getattr(memory, name) for name in _PLAIN}
    row["x"], row["y"], row["z"] = memory.position or (None, None, None)
    row["covariance"] = None if memory.covariance is None else memory.covariance.reshape(-1).tolist()
    row["velocity"] = memory.velocity
    row["visits"] = [visit._asdict() for visit in memory.visits] or None
    row["payload"] = json.dumps(memory.payload) if memory.payload else None
    if vectors:
        row["embedding"] = memory.embedding
        row["embeddings"] = list(memory.embeddings.items()) or None
    return row


def _records(pyarrow: Any, batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch, with times as integers and vectors as arrays."""
    table = pyarrow.Table.from_batches([batch])
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if name in _TIMES and pyarrow.types.is_timestamp(column.type):
            exact = column.cast(pyarrow.timestamp("ns", column.type.tz)).cast(pyarrow.int64())
            table = table.set_column(place, name, exact)
    embeddings: list[Any] | None = None
    if "embedding" in table.column_names:
        embeddings = [_array(value) for value in table.column("embedding")]
        table = table.drop_columns(["embedding"])
        if not table.num_columns:
            yield from ({"embedding": value} for value in embeddings)
            return
    for row, record in enumerate(table.to_pylist()):
        if embeddings is not None:
            record["embedding"] = embeddings[row]
        if record.get("covariance") is not None:
            flat = np.asarray(record["covariance"], dtype=np.float64)
            record["covariance"] = flat.reshape(3, 3) if flat.size == 9 else flat
        if record.get("visits") is not None:
            record["visits"] = [_visit(value) for value in record["visits"]]
        if isinstance(record.get("payload"), str):
            record["payload"] = _payload(record["payload"])
        if record.get("embeddings") is not None:
            record["embeddings"] = dict(record["embeddings"])
        yield record


def _array(value: Any) -> Any:
    return value.values.to_numpy(zero_copy_only=False) if value.is_valid else None


def _visit(value: Any) -> Any:
    """Return the fields of a struct in order; other values pass unchanged and are checked later."""
    return [value.get(name) for name in Visit._fields] if isinstance(value, dict) else value


def _payload(text: str) -> Any:
    """Return the parsed value, or the text itself, which the record check rejects."""
    try:
        return json.loads(text)
    except ValueError:
        return text
