"""Lines out of a pipe: imported as they come, once, with little held."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.errors import DataError
from memory.exchange import importing, jsonl
from memory.exchange.formats import open_source, open_stream
from memory.exchange.history import mark_known
from memory.exchange.importing import import_source
from memory.exchange.sources import Entry
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import EVERYTHING


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase.open(tmp_path / "store", dim=3) as opened:
        yield opened


def lines(*times: int) -> bytes:
    return b"".join(json.dumps({"time_ns": time}).encode() + b"\n" for time in times)


def test_every_line_is_stored_before_the_next_is_waited_for(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "WAIT_S", -1.0)
    held: list[int] = []

    class Pipe(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            held.append(database.count())
            return super().readline(size)

    report = import_source(database, open_stream(Pipe(lines(*range(5))), "standard input"))
    assert (report.memories, report.lines) == (5, 5)
    # The first was looked at for its sort.
    assert held == [0, 1, 2, 3, 4, 5]


def test_a_stream_and_a_file_know_each_others_lines(database: SqliteDatabase, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(*range(7)))
    import_source(database, open_source(path), portion=3)
    report = import_source(database, open_stream(io.BytesIO(lines(*range(9))), "standard input"))
    assert (report.known_lines, report.memories) == (7, 2)
    path.write_bytes(lines(*range(9)))
    assert import_source(database, open_source(path)).known_lines == 9


def test_the_first_line_tells_sort_and_length(database: SqliteDatabase) -> None:
    vector = json.dumps({"time_ns": 1, "embedding": [1.0, 0.0]}).encode()
    stream = open_stream(io.BytesIO(b"\n" + vector + b"\n" + lines(2)), "standard input")
    assert stream.find_dim() == 2
    assert [entry.number for entry in stream.entries()] == [2, 3]
    assert open_stream(io.BytesIO(b""), "standard input").find_dim() is None
    with pytest.raises(DataError, match="standard input: Parquet cannot be read from a stream"):
        open_stream(io.BytesIO(b"PAR1..."), "standard input")


def test_a_line_without_end_is_not_held(monkeypatch: pytest.MonkeyPatch, database: SqliteDatabase) -> None:
    monkeypatch.setattr(jsonl, "MOST_BYTES", 30)
    source = open_stream(io.BytesIO(lines(1) + b'"' + b"x" * 100), "standard input")
    with pytest.raises(DataError, match=r"standard input:2: .*30 bytes"):
        import_source(database, source)
    assert database.count(EVERYTHING) == 1


def test_a_line_that_was_cut_off_leaves_those_before(database: SqliteDatabase) -> None:
    with pytest.raises(DataError, match="standard input:3: not valid JSON"):
        import_source(database, open_stream(io.BytesIO(lines(1, 2) + b'{"time_'), "standard input"))
    assert database.count(EVERYTHING) == 2


def test_no_more_is_held_back_than_the_longest_stretch() -> None:
    taken: list[int] = []

    def entries() -> Iterator[Entry]:
        for number in range(1, 101):
            taken.append(number)
            yield Entry(number, str(number).encode(), number - 1)

    behind = []
    for entry, known in mark_known(entries(), {10: {14: {"other"}}, 50: {52: {"other"}}}):
        assert not known
        behind.append(len(taken) - entry.number)
    assert len(behind) == 100
    assert max(behind) == 4
    assert sum(behind) == 4 + 3 + 2 + 1 + 2 + 1
