"""Parquet of others, and what is no Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from memory.errors import DataError
from memory.exchange.parquet import count_rows, read_rows, write_parquet
from memory.exchange.records import memory_from_record
from memory.types import Memory


def write(path: Path, **columns: Any) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_few_columns_and_a_timestamp(tmp_path: Path) -> None:
    moments = pyarrow.array([1_500, 2_500], pyarrow.timestamp("ms", "UTC"))
    path = write(tmp_path / "a.parquet", time_ns=moments, x=[1.0, 2.0], y=[0.0, 0.0], label=["Car", None])
    first, second = (memory_from_record(row) for row in read_rows(path))
    assert first == Memory(time_ns=1_500_000_000, position=(1, 0, 0), label="Car")
    assert second.time_ns == 2_500_000_000
    assert second.label == ""


def test_only_vectors(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", embedding=[[1.0, 0.0], None])
    rows = list(read_rows(path))
    assert rows[0]["embedding"].tolist() == [1.0, 0.0]
    assert rows[1]["embedding"] is None


def test_single_precision_is_kept_on_reading(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.parquet",
        time_ns=[1],
        embedding=pyarrow.array([[0.1]], pyarrow.list_(pyarrow.float32())),
    )
    (row,) = read_rows(path)
    assert row["embedding"].dtype == "float32"


def test_visits_as_rows_or_structs(tmp_path: Path) -> None:
    visits = pyarrow.array([[[1, 2, 3], [5, 5, 1]], None], pyarrow.list_(pyarrow.list_(pyarrow.int64())))
    path = write(tmp_path / "a.parquet", time_ns=[5, 6], visits=visits)
    first, second = (memory_from_record(row) for row in read_rows(path))
    assert (first.visits, second.visits) == (((1, 2, 3), (5, 5, 1)), ())
    write_parquet(path, [[first]])
    (row,) = pyarrow.parquet.read_table(path).to_pylist()
    assert row["visits"][0] == {"first_ns": 1, "last_ns": 2, "sights": 3}
    path = write(tmp_path / "b.parquet", time_ns=[5], visits=[[{"first_ns": 1, "until": 2}]])
    with pytest.raises(TypeError, match=r"visits\[0\] must be an integer"):
        memory_from_record(next(read_rows(path)))


def test_an_unknown_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", time_ns=[1], colour=["red"])
    with pytest.raises(DataError, match=r"a\.parquet: unknown column 'colour'"):
        list(read_rows(path))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all", b"PAR1" + bytes(100) + b"PAR1"])
def test_no_parquet(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    for read in (count_rows, lambda file: list(read_rows(file))):
        with pytest.raises(DataError, match=r"a\.parquet: cannot read it as Parquet"):
            read(path)


def test_a_damaged_page(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, [[Memory(time_ns=1, caption="word " * 500)]])
    raw = bytearray(path.read_bytes())
    raw[4:200] = bytes(196)
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"a\.parquet: "):
        list(read_rows(path))


def test_the_table_as_others_see_it(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, [[Memory(time_ns=1, position=(1, 2, 3), id=4, payload={"a": 1})]], vectors=False)
    table = pyarrow.parquet.read_table(path)
    assert table.schema.metadata[b"sparsight_format"] == b"memories"
    assert "embedding" not in table.column_names
    (row,) = table.to_pylist()
    assert (row["id"], row["x"], row["y"], row["z"], row["payload"]) == (4, 1.0, 2.0, 3.0, '{"a": 1}')
