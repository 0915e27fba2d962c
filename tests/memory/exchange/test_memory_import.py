"""Import: nothing doubled, nothing lost, whatever interrupts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.errors import DataError
from memory.exchange import import_source, open_source
from memory.exchange.importing import ImportReport
from memory.exchange.parquet import write_parquet
from memory.persistence.sqlite.database import SqliteDatabase
from memory.types import Memory


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase.open(tmp_path / "store", dim=2) as opened:
        yield opened


def write(path: Path, numbers: list[int], *, bad: dict[int, str] | None = None) -> Path:
    """A line a number, which is its time; ``bad`` replaces lines, counted from 1."""
    lines = [json.dumps({"time_ns": number}) for number in numbers]
    for line, text in (bad or {}).items():
        lines[line - 1] = text
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def bring(database: SqliteDatabase, path: Path, portion: int = 3, **options: bool) -> ImportReport:
    return import_source(database, open_source(path), portion=portion, **options)


def times(database: SqliteDatabase) -> list[int]:
    return [memory.time_ns for memory in database.get(database.ids().tolist())]


def test_a_second_time_nothing_is_doubled(database: SqliteDatabase, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", list(range(10)))
    first = bring(database, path)
    assert (first.memories, first.lines, first.known_lines) == (10, 10, 0)
    assert (len(first.operations), first.first_id, first.last_id) == (4, 1, 10)
    moved = path.rename(tmp_path / "b.jsonl")
    second = bring(database, moved, portion=5)
    assert (second.memories, second.lines, second.known_lines, second.operations) == (0, 0, 10, [])
    assert bring(database, moved, again=True).memories == 10
    assert times(database) == [*range(10), *range(10)]


def test_a_file_that_has_grown(database: SqliteDatabase, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", list(range(7)))
    bring(database, path)
    report = bring(database, write(path, list(range(12))))
    assert (report.known_lines, report.memories) == (7, 5)
    assert times(database) == list(range(12))


def test_an_undone_portion_comes_back(database: SqliteDatabase, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", list(range(9)))
    operations = bring(database, path).operations
    undo = database.undo(operations[1])
    report = bring(database, path)
    assert (report.known_lines, report.memories) == (6, 3)
    assert sorted(times(database)) == list(range(9))
    database.undo(report.operations[0])
    database.undo(undo)
    assert bring(database, path).memories == 0


def test_an_interruption_is_gone_on_from(database: SqliteDatabase, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", list(range(10)))

    def interrupt(done: int, total: int) -> None:
        assert 0 < done <= total == path.stat().st_size
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_source(database, open_source(path), portion=2, progress=interrupt)
    stored = len(times(database))
    assert 0 < stored < 10
    report = bring(database, path)
    assert (report.known_lines, report.memories) == (stored, 10 - stored)
    assert times(database) == list(range(10))


def test_a_bad_line_stops_after_what_was_before_it(database: SqliteDatabase, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", list(range(10)), bad={6: '{"time_ns": "six"}'})
    with pytest.raises(DataError, match=r"a\.jsonl:6: time_ns must be an integer, got str"):
        bring(database, path)
    assert times(database) == list(range(5))
    report = bring(database, write(path, list(range(10))))
    assert (report.known_lines, report.memories) == (5, 5)
    assert times(database) == list(range(10))


def test_bad_lines_can_be_left_out_and_corrected_later(database: SqliteDatabase, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", list(range(8)), bad={1: "{", 5: "[]", 8: '{"label": "Car"}'})
    report = bring(database, path, skip_bad=True)
    assert report.memories == 5
    assert ["a.jsonl:1" in report.problems[0], "a.jsonl:5" in report.problems[1]] == [True, True]
    assert "a.jsonl:8: the time is missing" in report.problems[2]
    corrected = bring(database, write(path, list(range(8))))
    assert (corrected.known_lines, corrected.memories) == (5, 3)
    assert sorted(times(database)) == list(range(8))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff\xfe", "not UTF-8 text"),
        (b"{'time_ns': 1}", "not valid JSON"),
        (b'{"time_ns": 1', "not valid JSON"),
        (b'{"time_ns": NaN}', "NaN"),
        (b"17", "expected one JSON object per line, got int"),
        (b"[]", "got list. Write each object of the list on a line of its own"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"time_ns": 1, "embedding": [1, 2, 3]}', "embedding has 3 numbers"),
        (b'{"time_ns": 1, "label": "\\ud800"}', "label is not valid Unicode"),
        (b'{"time_ns": 99999999999999999999}', "time_ns must fit into 64 bits"),
    ],
)
def test_errors_name_file_and_line(
    database: SqliteDatabase, tmp_path: Path, line: bytes, message: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"time_ns": 1}\n\n' + line + b"\n")
    with pytest.raises(DataError, match=rf"a\.jsonl:3: .*{message}"):
        bring(database, path)
    assert times(database) == [1]


def test_detections(database: SqliteDatabase, tmp_path: Path) -> None:
    frames = [
        {"frame": f"{number:06d}", "timestamp_ns": number, "boxes": [[1, 2, 0, 4, 2, 1, 0]] * 2}
        | {"scores": [0.9, 0.8], "labels": ["Car", "Van"], "source": None}
        for number in range(4)
    ]
    path = tmp_path / "detections.jsonl"
    path.write_text("\n".join(json.dumps(frame) for frame in frames))
    report = bring(database, path)
    assert (report.memories, report.lines) == (8, 4)
    assert bring(database, path).known_lines == 4
    assert database.history(3)[0].detail["reason"] == "imported from detections.jsonl, lines 1 to 2"


def test_parquet(database: SqliteDatabase, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, [[Memory(time_ns=number) for number in range(7)]])
    seen: list[tuple[int, int]] = []
    report = import_source(
        database, open_source(path), portion=3, progress=lambda done, total: seen.append((done, total))
    )
    assert (report.memories, seen[-1]) == (7, (7, 7))
    assert bring(database, path).known_lines == 7
    write_parquet(path, [[Memory(time_ns=0), Memory(time_ns=1, embedding=[1.0, 2.0, 3.0])]])
    with pytest.raises(DataError, match=r"a\.parquet: row 2: embedding has 3 numbers"):
        bring(database, path)


def test_the_format_by_looking(tmp_path: Path) -> None:
    hidden = tmp_path / "table"
    write_parquet(hidden, [[Memory(time_ns=1)]])
    assert open_source(hidden).sort == "parquet"
    assert open_source(write(tmp_path / "a", [1])).sort == "memories"
    (tmp_path / "empty").write_text("\n\n")
    assert open_source(tmp_path / "empty").sort == "memories"
    with pytest.raises(DataError, match=r"missing\.jsonl: cannot read the file \(No such file"):
        open_source(tmp_path / "missing.jsonl")
    with pytest.raises(DataError, match=r"no \.parquet file in this folder"):
        open_source(tmp_path)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5), st.booleans()), min_size=1, max_size=6),
    st.sets(st.integers(1, 12), max_size=3),
)
def test_any_order_of_growing_failing_and_undoing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]], bad: set[int]
) -> None:
    """However a file grew, failed and was undone: in the end each line is there once."""
    folder = tmp_path_factory.mktemp("import")
    path = folder / "a.jsonl"
    with SqliteDatabase.open(folder / "store", dim=2) as database:
        for size, portion, undone in sorted(steps):
            write(path, list(range(size)), bad={line: "{" for line in bad if line <= size})
            report = bring(database, path, portion, skip_bad=True)
            if undone and report.operations:
                database.undo(report.operations[0])
        bring(database, write(path, list(range(12))))
        assert sorted(times(database)) == list(range(12))
