"""``perceive detect --parquet``: records as a table, partitioned by recording and date.

A row is a record. The column ``record`` holds its other fields as JSON, with null for fields that have a
column, so that a row restores the record (``docs/archives.md``).
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from perception.cli.records import open_records
from perception.errors import DataError
from perception.io.sensors.pcap import is_pcap
from sparse_core.common.files import replacing_folder
from sparse_core.common.libraries import load_pyarrow

#: Folder of the table, next to ``detections.jsonl``.
FOLDER = "detections.parquet"
#: Metadata of each file.
FORMAT = {"sparsight_format": "detections", "sparsight_version": "1"}
#: Rows per write, and most open files.
_ROWS, _OPEN = 256, 32
_COLUMNS = ("frame", "source", "timestamp_ns", "boxes", "scores", "labels", "warnings")
_OF_BAG = re.compile(r"(.+):[^:]*#\d+")


def write_partitions(records: Path, folder: Path) -> int:
    """Write records as a table, which replaces an older one when complete.

    Args:
        records: ``detections.jsonl``.
        folder: folder of the table, with files ``recording=NAME/date=YYYY-MM-DD/NUMBER.parquet``.

    Returns:
        The number of rows.

    Raises:
        DataError: a line is not a record, or the file is a device or pipe.
    """
    pyarrow = load_pyarrow("--parquet")
    rows = 0
    with replacing_folder(folder) as partial, ExitStack() as stack, open_records(records) as lines:
        parts = _Parts(pyarrow, partial)
        stack.callback(parts.close)
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                parts.add(_partition(record), _row(number, record))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError(
                    f"{records}: line {number} is not a record of a frame ({error}). Rerun with --overwrite."
                ) from error
            rows += 1
    return rows


class _Parts:
    """Open partition files; the oldest is closed if there are too many."""

    def __init__(self, pyarrow: Any, folder: Path) -> None:
        self._pyarrow, self._folder = pyarrow, folder
        self._schema = _schema(pyarrow)
        self._open: dict[str, tuple[Any, list[dict[str, Any]]]] = {}

    def add(self, partition: str, row: dict[str, Any]) -> None:
        if partition not in self._open:
            if len(self._open) >= _OPEN:
                self._finish(next(iter(self._open)))
            # Named by its first row, so that files sort like rows.
            path = self._folder / partition / f"{row['line']:09d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            writer = self._pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")
            self._open[partition] = writer, []
        _, rows = self._open[partition]
        rows.append(row)
        if len(rows) >= _ROWS:
            self._write(partition)

    def close(self) -> None:
        for partition in list(self._open):
            self._finish(partition)

    def _write(self, partition: str) -> None:
        writer, rows = self._open[partition]
        if rows:
            writer.write_table(self._pyarrow.Table.from_pylist(rows, schema=self._schema))
            rows.clear()

    def _finish(self, partition: str) -> None:
        try:
            self._write(partition)
        finally:
            writer, _ = self._open.pop(partition)
            writer.close()


def _row(number: int, record: dict[str, Any]) -> dict[str, Any]:
    columns = {name: record[name] for name in _COLUMNS}
    rest = {name: None if name in columns else value for name, value in record.items()}
    return {"line": number, **columns, "record": json.dumps(rest)}


def _schema(pyarrow: Any) -> Any:
    number, text = pyarrow.float64(), pyarrow.string()
    fields = [("line", pyarrow.int64()), ("frame", text), ("source", text), ("timestamp_ns", pyarrow.int64())]
    fields += [("boxes", pyarrow.list_(pyarrow.list_(number))), ("scores", pyarrow.list_(number))]
    fields += [("labels", pyarrow.list_(text)), ("warnings", pyarrow.list_(text)), ("record", text)]
    return pyarrow.schema(fields, metadata=FORMAT)


def _partition(record: dict[str, Any]) -> str:
    """Return the partition of a record, by recording (or folder) and date in UTC."""
    source = str(record["source"])
    bag = _OF_BAG.match(source)
    recording = Path(bag[1] if bag else source)
    name = recording.stem if bag or is_pcap(recording) else recording.parent.name
    time_ns = record.get("timestamp_ns")
    if time_ns is None:
        date = "unknown"
    else:
        date = datetime.fromtimestamp(time_ns // 10**9, timezone.utc).date().isoformat()
    return f"recording={quote(name or 'unknown', safe=' ')}/date={date}"
