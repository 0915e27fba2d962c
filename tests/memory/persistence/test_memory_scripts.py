"""Captions in every script are found, by words and by parts of them; stores of before learn it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from memory import Memory, MemoryStore, Query
from memory.errors import StoreVersionError
from memory.persistence.sql import Migration
from memory.persistence.sqlite import migrations
from memory.persistence.sqlite.migrations import VERSION_1
from memory.query import Filter

CAPTIONS = (
    "赤い自転車が停まっている",
    "一辆红色的汽车停在路边",
    "รถยนต์สีแดง",
    "Große Straße",
    "a red car",
    "빨간 자동차가 있다",
    "ガラス",
    "カラス",
    "लाल गाड़ी",
)
#: What is asked, and the places of the captions that have it.
QUERIES: tuple[tuple[str, Sequence[int]], ...] = (
    ("車", [0]),
    ("自転車", [0]),
    ("車 赤い", [0]),
    ("转", []),
    ("汽车", [1]),
    ("车", [1]),
    ("汽车 红色", [1]),
    ("车汽", []),
    ("รถ", [2]),
    ("แดง", [2]),
    ("strasse", [3]),
    ("STRASSE", [3]),
    ("GROẞE", [3]),
    ("cars", [4]),
    ("자동차", [5]),
    ("차", [5]),
    ("ガ", [6]),
    ("カ", [7]),
    ("ﾗｽ", [6, 7]),
    ("गाड़ी", [8]),
    ("गाड", []),
    ("where is the 車", [0]),
    ("\"車\" OR x* NOT (", []),
)  # fmt: skip


def memories() -> list[Memory]:
    return [Memory(time_ns=at, caption=caption) for at, caption in enumerate(CAPTIONS)]


def check_found(store: MemoryStore) -> None:
    for text, places in QUERIES:
        hits = store.query(Query(text=text))
        assert sorted(hit.memory.caption for hit in hits) == sorted(CAPTIONS[at] for at in places), text
        if " the " not in text:
            assert store.count(Filter(text=text)) == len(places), text


def test_captions_of_every_script_are_found(location: Path | str) -> None:
    with MemoryStore.open(location, dim=4) as store:
        ids = store.add(memories())
        check_found(store)
        assert store.check().ok
        store.undo(store.forget(ids[:4]))
        check_found(store)
        # A text that changes leaves nothing of the old one.
        store.mark([ids[0]], "gone")
        store.forget([ids[0]])
        assert store.query(Query(text="車")) == []
        assert store.check().ok


def test_long_queries_are_refused_in_every_script() -> None:
    Query(text="車" * 512)
    with pytest.raises(ValueError, match="got 513"):
        Query(text="車" * 513)
    Query(text="गाड़ी " * 100)
    with pytest.raises(ValueError, match="at most 64 different words, got 65"):
        Query(text=" ".join(f"गाड़ी{number}" for number in range(65)))


def test_a_wrong_row_of_terms_is_found_and_mended(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=4) as store:
        store.add(memories())
    with sqlite3.connect(tmp_path / "memory.db") as connection:
        connection.execute("UPDATE folded SET caption = 'x' WHERE id = 1")
        connection.execute("DELETE FROM folded WHERE id = 2")
    connection.close()
    with MemoryStore.open(tmp_path) as store:
        assert store.check().problems == tuple(
            f"words: memory {id} does not match the table" for id in (1, 2)
        )
        assert store.check(repair=True).ok
        check_found(store)


def test_nothing_of_an_erased_caption_stays(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=4) as store:
        ids = store.add(memories())
        store.forget(ids[:1], secure=True)
        assert store.query(Query(text="車")) == []
    data = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert "自転車".encode() not in data
    assert "自 転 車".encode() not in data
    assert "汽 车".encode() in data


def age(folder: Path) -> None:
    """Make a store one of version 4."""
    connection = sqlite3.connect(folder / "memory.db", isolation_level=None)
    connection.execute("BEGIN")
    later = "ALTER TABLE memory DROP COLUMN velocity"
    for statement in (later, "DROP TABLE words", "DROP VIEW text_source", "DROP TABLE folded"):
        connection.execute(statement)
    for statement in VERSION_1.statements:
        if "text_source" in statement or "INTO words" in statement:
            connection.execute(statement)
    connection.execute("INSERT INTO words (words) VALUES ('rebuild')")
    connection.execute("PRAGMA user_version = 4")
    connection.execute("COMMIT")
    connection.close()


def test_a_store_of_before_is_migrated_when_it_is_opened_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MemoryStore.open(tmp_path, dim=4) as store:
        store.add(memories())
    age(tmp_path)
    with pytest.raises(StoreVersionError, match=r"schema version 4"):
        MemoryStore.open(tmp_path, readonly=True)
    # A migration that is interrupted leaves the store as it was, and is made again.
    last = migrations.MIGRATIONS[4]
    broken = Migration(last.summary, (*last.statements[:-1], "SELECT nonsense"))
    monkeypatch.setattr(migrations.migrate, "__defaults__", ((*migrations.MIGRATIONS[:4], broken),))
    with pytest.raises(Exception, match="nonsense"):
        MemoryStore.open(tmp_path)
    monkeypatch.undo()
    with sqlite3.connect(tmp_path / "memory.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (4,)
    connection.close()
    with MemoryStore.open(tmp_path) as store:
        check_found(store)
        assert store.check().ok
        store.forget([1, 3])
        assert store.check().ok
    with MemoryStore.open(tmp_path, readonly=True) as store:
        assert [hit.memory.id for hit in store.query(Query(text="汽车"))] == [2]


def test_ascii_captions_rank_as_before(tmp_path: Path) -> None:
    """Terms, their counts and lengths are what the index of version 4 had, so BM25 gives the same."""
    texts = ["a red car", "red red cars, red_car", "the car of x-y 3", *["blue"] * 6]
    with MemoryStore.open(tmp_path, dim=4) as store:
        store.add([replace(memory, caption=text) for memory, text in zip(memories(), texts, strict=False)])
        found = store.database.search_text("red car")
    age(tmp_path)
    connection = sqlite3.connect(tmp_path / "memory.db")
    sql = "SELECT rowid, -bm25(words) FROM words WHERE words MATCH ? ORDER BY 2 DESC"
    before = connection.execute(sql, ('"red" AND ("car" OR "cars")',)).fetchall()
    connection.close()
    assert list(zip(found.ids.tolist(), found.scores.tolist(), strict=True)) == before
    assert len(before) == 2


@pytest.mark.slow
def test_a_store_on_a_server_is_migrated_too(
    postgresql: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    address = postgresql()
    with MemoryStore.open(address, dim=4) as store:
        store.add(memories())
    with psycopg.connect(address) as connection:
        # As the words of version 4 were: cut at spaces.
        for id, caption in enumerate(CAPTIONS, 1):
            old = " ".join(f"'{word}':{at}" for at, word in enumerate(caption.lower().split(), 1))
            connection.execute("UPDATE memory SET words = %s::tsvector WHERE id = %s", (old, id))
        connection.execute("DELETE FROM vocabulary")
        connection.execute(
            "INSERT INTO vocabulary SELECT word, ndoc FROM ts_stat('SELECT words FROM memory')"
        )
        connection.execute("DROP TRIGGER own_only ON memory")
        connection.execute("ALTER TABLE memory DROP COLUMN velocity")
        connection.execute(
            "CREATE TRIGGER own_only BEFORE DELETE ON memory FOR EACH ROW"
            " WHEN (OLD.writer <> session_user) EXECUTE FUNCTION own_only()"
        )
        connection.execute("UPDATE meta SET value = '4' WHERE name = 'schema'")
    with pytest.raises(StoreVersionError, match="once"):
        MemoryStore.open(address, readonly=True)
    with MemoryStore.open(address) as store:
        check_found(store)
        assert store.check().ok
