"""Parts of a store on a real server: begun by month, searched as one, written to files and dropped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memory import Memory, MemoryStore, Query, StoreConfig
from memory.archive import archive
from memory.cli import main
from memory.errors import StoreError, StoreLockedError, StoreVersionError, UndoError, UnknownMemoryError
from memory.exchange import sources
from memory.exchange.formats import open_source
from memory.exchange.importing import import_source
from memory.persistence.postgres import schema
from memory.persistence.postgres.connection import PostgresConnection
from memory.persistence.postgres.database import PostgresDatabase
from memory.persistence.postgres.engine import PostgresEngine
from memory.persistence.postgres.images import copy_vectors
from memory.persistence.postgres.upkeep import Upkeep
from memory.persistence.sqlite.engine import SqliteEngine
from memory.query import Filter

DIM = 8
#: 2026-01-15, and so many nanoseconds to the middle of the next month.
JANUARY, MONTH = 1_768_435_200_000_000_000, 2_629_800_000_000_000


@pytest.fixture
def address(postgresql: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return postgresql()


def fill(store: MemoryStore, months: int, each: int) -> list[list[int]]:
    """So many memories a month, from January; their ids by month."""
    database = store.database
    assert isinstance(database, Upkeep)
    random = np.random.default_rng(0)
    # The first part began when the store was made, just now: as if that had been in January.
    database._write(lambda connection: connection.execute("UPDATE part SET begun_ns = ?", (JANUARY,)))
    found = []
    for month in range(months):
        now = JANUARY + month * MONTH
        assert database.begin_part(now) == bool(month)
        found.append(
            store.add([
                Memory(
                    time_ns=now + at, position=(at, month, 0), label=f"month{month}",
                    caption="word common", embedding=random.normal(size=DIM),
                )
                for at in range(each)
            ])
        )  # fmt: skip
        assert not database.begin_part(now)
    return found


def upkeep(store: MemoryStore) -> Upkeep:
    assert isinstance(store.database, Upkeep)
    return store.database


def test_parts_are_searched_as_one(address: str) -> None:
    with MemoryStore.open(address, dim=DIM, config=StoreConfig(index_from=100)) as store:
        ids = [id for month in fill(store, 3, 150) for id in month]
        vectors = np.random.default_rng(1).normal(size=(20, DIM)).astype(np.float32)
        exact = store.search(vectors, 10, aim=1.0).ids
        upkeep(store).make_indexes(100)
        assert store.explain(Query(embedding=vectors[0], k=5)).method == "index"
        found = store.search(vectors, 10).ids
        assert np.mean([len({*one} & {*other}) / 10 for one, other in zip(exact, found, strict=True)]) > 0.98
        for part in range(3):  # Of each.
            assert ((exact > 150 * part) & (exact <= 150 * part + 150)).any()
        assert store.find(Filter(text="month1"), newest_first=False)[0].id == 151
        assert [hit.memory.id for hit in store.query(Query(near=(7, 1), radius_m=0.5, k=3))] == [158]
        assert store.forget([ids[0], ids[200]])
        assert store.undo(store.database.generation)
        with store.database._read() as connection:
            plan = connection.execute("EXPLAIN SELECT * FROM memory WHERE id = ANY('{7,8}')").fetchall()
        assert not any("memory_151" in line for (line,) in plan)  # One part is looked at.
        assert store.check().ok


def test_a_filter_by_time_leaves_other_parts_alone(address: str) -> None:
    with MemoryStore.open(address, dim=DIM) as store:
        ids = fill(store, 3, 40)
        february = (JANUARY + MONTH, JANUARY + MONTH + 40)
        found = store.query(Query(embedding=np.ones(DIM), between_ns=february, k=60))
        assert sorted(hit.memory.id for hit in found) == ids[1]
        assert store.query(Query(embedding=np.ones(DIM), between_ns=(1, 2), k=60)) == []
        everything = store.query(Query(embedding=np.ones(DIM), k=200))
        assert len({hit.memory.id for hit in everything}) == 120


def test_a_month_is_archived_and_comes_back_by_import(address: str, tmp_path: Path) -> None:
    with MemoryStore.open(address, dim=DIM) as store:
        ids = fill(store, 3, 20)
        marked = store.mark(ids[0][:2], "gone", at_ns=JANUARY + 10**9)
        forgotten = store.forget(ids[0][2:4])
        moved = store.repose([ids[0][5], ids[1][0]], [(9, 9, 9), (8, 8, 8)], [0, 0])
        kept = store.get(ids[0][:2] + ids[0][4:])
        end = JANUARY + 2 * MONTH
        assert archive(upkeep(store), tmp_path / "old", before_ns=JANUARY) == []
        (done,) = archive(upkeep(store), tmp_path / "old", before_ns=end)
        assert done == ("2026-01", tmp_path / "old/2026-01-from-1.jsonl", 18)
        assert store.check().ok
        assert len(store) == 40
        assert store.query(Query(text="month0", k=3)) == []
        assert len(store.query(Query(text="common", k=99))) == 40
        assert store.corrections("month0") != ["month0"]
        with pytest.raises(UnknownMemoryError):
            store.get([ids[0][7]])
        assert store.log()[-1].operation == "archive"
        assert store.log()[-1].detail["memories"] == 18
        for operation in (marked, forgotten, moved, len(store.log())):
            with pytest.raises((UndoError, UnknownMemoryError)):
                store.undo(operation)
        assert store.get([ids[1][0]])[0].position == (8, 8, 8)
    with MemoryStore.open(address, readonly=True) as reader:  # Caches made anew.
        assert len(reader.query(Query(between_ns=(0, 2**62), k=99))) == 40
    assert main(["import", address, str(done.file)]) == 0
    with MemoryStore.open(address) as store:
        back = store.find(Filter(labels=["month0"]), newest_first=False)
        assert [m.embedding.tobytes() for m in back] == [m.embedding.tobytes() for m in kept]
        (tmp_path / "old/2026-02-from-21.jsonl").touch()
        with pytest.raises(FileExistsError, match="2026-02-from-21"):
            archive(upkeep(store), tmp_path / "old", before_ns=end + MONTH)


def test_what_changed_meanwhile_is_not_dropped(address: str, tmp_path: Path) -> None:
    with MemoryStore.open(address, dim=DIM) as store:
        ids = fill(store, 2, 5)

        def meddle(done: int, total: int) -> None:
            store.mark([ids[0][0]], "gone", at_ns=JANUARY + 10**9)

        with pytest.raises(StoreLockedError, match="2026-01 "):
            archive(upkeep(store), tmp_path, before_ns=JANUARY + 2 * MONTH, progress=meddle)
        assert list(tmp_path.glob("*.jsonl")) == []
        assert len(store.get(ids[0])) == 5
        part = upkeep(store).parts()[0]
        assert upkeep(store).drop_part(part, store.database.generation, "x") == 5
        with pytest.raises(StoreLockedError):
            upkeep(store).drop_part(part, store.database.generation, "x")
        with pytest.raises(ValueError, match="suffix"):
            archive(upkeep(store), tmp_path, before_ns=0, suffix=".csv")
        assert store.check().ok


def test_a_store_of_the_first_release_becomes_a_part(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as old:
        old.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        old.setattr(PostgresEngine, "last_log_row", SqliteEngine.last_log_row)
        old.setattr(PostgresDatabase, "_prepare", lambda *_: (1, False))
        with PostgresDatabase.open(address) as first:
            connection = PostgresConnection(first._pool, 1)
            connection.execute("BEGIN")
            first._make(connection, DIM)
            connection.execute(
                "INSERT INTO memory SELECT at, at, 'hall', 'object', 'cup', 1, 0, 0, 1, NULL, NULL,"
                " 'present', NULL, 0, NULL, 0, at, 0, 0, 0, NULL, '', '{}', '', '', 'cup:1'"
                " FROM generate_series(1, 9) AS at"
            )
            connection.execute("INSERT INTO vocabulary VALUES ('cup', 9)")
            connection.execute("INSERT INTO log VALUES (1, 5, 'add', 1, 10, NULL, '{}', 1, NULL)")
            halves = np.eye(DIM, dtype="<f2")
            copy_vectors(connection, range(1, DIM + 1), 0, [half.tobytes() for half in halves], DIM)
            connection.execute(
                "CREATE INDEX embedding_hnsw_0 ON embedding"
                " USING hnsw ((half::halfvec(8)) halfvec_cosine_ops) WHERE slot = 0"
            )
            connection.execute("COMMIT")
    with pytest.raises(StoreVersionError, match="once"):
        MemoryStore.open(address, readonly=True)
    with MemoryStore.open(address) as store:
        assert store.check().ok
        assert store.explain(Query(embedding=np.eye(DIM)[2], k=1)).method == "index"
        assert store.query(Query(embedding=np.eye(DIM)[2], k=1))[0].memory.id == 3
        assert len(store.query(Query(text="cups", k=20))) == 9
        (part,) = upkeep(store).parts()
        assert (part.first_id, part.begun_ns, part.end_id) == (1, 5, None)
        assert upkeep(store).begin_part()  # Nothing was added since 1970.
        assert store.add([Memory(time_ns=0, position=(0, 0, 0))]) == [10]
        store.undo(store.mark([9, 10], "gone"))
        assert [each.first_id for each in upkeep(store).parts()] == [1, 10]


def test_commands_archive_and_grant(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MemoryStore.open(address, dim=DIM) as store:
        fill(store, 2, 3)
    assert main(["archive", address, str(tmp_path / "old"), "--before", "2025-01-01"]) == 0
    assert "no month ended" in capsys.readouterr().out
    assert main(["archive", address, str(tmp_path / "old"), "--before", "2026-03-01"]) == 0
    assert "2026-01: 3 memories in" in capsys.readouterr().out
    assert main(["grant", address, "commands robot", "--write", "--map", "hall"]) == 0
    said = capsys.readouterr()
    assert "shown only once" in said.err
    with MemoryStore.open(said.out.strip()) as robot, pytest.raises(StoreError):
        robot.add([Memory(time_ns=0, position=(0, 0, 0), map_id="yard")])
    assert main(["grant", address]) == 0
    assert "writer" in capsys.readouterr().out
    assert main(["grant", address, "commands robot", "--revoke"]) == 0
    assert main(["grant", address, "commands robot", "--revoke", "--write"]) == 2
    assert main(["grant", address, "--write"]) == 2
    assert main(["init", str(tmp_path / "folder"), "--dim", "4"]) == 0
    assert main(["grant", str(tmp_path / "folder")]) == 2
    assert main(["archive", str(tmp_path / "folder"), str(tmp_path), "--before", "2026-03-01"]) == 2
    assert "recall export" in capsys.readouterr().err


def test_a_large_import_goes_into_a_part_without_an_index(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MANY", 1)
    with MemoryStore.open(address, dim=DIM, config=StoreConfig(index_from=20)) as store:
        fill(store, 2, 30)
        database = upkeep(store)
        database.make_indexes(20)
        (done,) = archive(database, tmp_path, before_ns=JANUARY + MONTH + 1)
        before = database.parts()
        report = import_source(database, open_source(done.file))
        assert report.memories == 30
        added = database.parts()[-1]
        assert added not in before
        assert database.part_ids(added) == list(range(report.first_id or 0, (report.last_id or 0) + 1))
        # The other part keeps its index, a repeated import begins no part, and all memories are found.
        assert import_source(database, open_source(done.file)).known_lines == 30
        assert database.parts()[-1] == added
        assert indexed_parts(database) == [before[-1].first_id]
        exact = store.search(np.eye(DIM, dtype=np.float32), 10, aim=1.0).ids
        assert (store.search(np.eye(DIM, dtype=np.float32), 10).ids == exact).mean() > 0.9
        store.settle()
        assert indexed_parts(database) == [before[-1].first_id, added.first_id]
        # Small files are added where the others are.
        monkeypatch.setattr(sources, "MANY", 10_000)
        import_source(database, open_source(done.file), again=True)
        assert database.parts()[-1].first_id == added.first_id
        for operation in report.operations:
            store.undo(operation)
        assert len(store) == 60
        assert store.check().ok


@pytest.mark.parametrize("k", [1, 7, 500])
def test_the_server_finds_the_newest_as_columns_do(address: str, k: int) -> None:
    with MemoryStore.open(address, dim=DIM) as store:
        random = np.random.default_rng(0)
        store.add([
            Memory(
                time_ns=int(random.integers(30)), position=(*random.integers(0, 9, 2).tolist(), 0),
                label=str(random.choice(["cup", "car"])), embedding=random.normal(size=DIM),
            )
            for _ in range(300)
        ])  # fmt: skip
        store.label_counts()  # Reads the columns.
        for where in (
            {}, {"labels": ["cup"]}, {"between_ns": (3, 12)}, {"labels": ["none"]},
            {"polygon": [(1.0, 1.0), (7.0, 2.0), (2.0, 7.0)]}, {"near": (4.0, 4.0), "radius_m": 2.5},
        ):  # fmt: skip
            query = Query(k=k, order="recency", **where)  # type: ignore[arg-type]
            with MemoryStore.open(address, readonly=True) as other:
                found = [hit.memory.id for hit in other.query(query)]
            assert found == [hit.memory.id for hit in store.query(query)]


def indexed_parts(database: Upkeep) -> list[int]:
    """First ids of the parts with a vector index."""
    sql = (
        "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()"
        " AND starts_with(indexname, 'embedding_hnsw_')"
    )
    with database._read() as connection:
        return sorted(int(name.rpartition("_")[2]) for (name,) in connection.execute(sql).fetchall())
