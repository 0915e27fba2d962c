"""A store on a real PostgreSQL server: as a file's, written by many, durable, and clear where it fails."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from robot_processes import start_again

from memory import Memory, MemoryStore, Query, StoreConfig
from memory.errors import (
    DimensionError,
    NotAStoreError,
    StoreClosedError,
    StoreError,
    StoreReadOnlyError,
    StoreVersionError,
)
from memory.persistence.postgres import nearest, server
from memory.persistence.postgres.address import is_address, without_password
from memory.persistence.postgres.database import PostgresDatabase
from memory.persistence.rows import DEFAULT_SLOT
from memory.query import Filter
from memory.types import Visit

DIM = 8


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of stores on a server stay within the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def address(postgresql: Callable[[], str]) -> str:
    return postgresql()


def rows(count: int, seed: int = 0) -> list[Memory]:
    random = np.random.default_rng(seed)
    return [
        Memory(
            time_ns=int(random.integers(0, 2**62)),
            position=tuple(random.normal(0, 10, 3).tolist()),
            yaw=float(random.uniform(-3, 3)),
            covariance=np.diag(random.uniform(0.1, 2, 3)) if number % 3 else None,
            label=str(random.choice(["cup", "Straße", "fork-lift", "%s ? x'y"])),
            caption=str(random.choice(["red cups", "a café's \\table", "'quoted': 1", "naïve\ttab", ""])),
            payload={"number": number, "text": "\u0001\u20ac"} if number % 2 else {},
            confidence=float(random.uniform()),
            importance=float(random.uniform()) if number % 2 else None,
            marked=bool(number % 5 == 0),
            map_id=f"map {number % 2}",
            embedding=random.normal(size=DIM) if number % 7 else None,
            embeddings={"other": random.normal(size=3)} if number % 4 == 0 else {},
            visits=(Visit(1, 5, 2), Visit(9, 9, 1)) if number % 6 == 0 else (),
            count=3 if number % 6 == 0 else 1,
        )
        for number in range(count)
    ]


def comparable(memories: list[Memory]) -> list[dict]:
    """All fields, comparable."""
    return [
        {
            name: value.tobytes() if isinstance(value, np.ndarray) else value
            for name, value in dataclasses.asdict(memory).items()
            if name != "embeddings"
        }
        | {name: vector.tobytes() for name, vector in memory.embeddings.items()}
        for memory in memories
    ]


def test_what_is_read_is_what_a_file_gives_to_the_bit(address: str, tmp_path: Path) -> None:
    found = []
    for place in (tmp_path / "store", address):
        with MemoryStore.open(place, dim=DIM) as store:
            ids = store.add(rows(60))
            store.add([rows(1, seed=5)[0]])
            taken = store.forget(ids[:9])
            store.undo(taken)
            moved = store.repose(
                [3, 2], np.ones((2, 3)), [0.5, 0.25], covariances=np.tile(np.eye(3), (2, 1, 1))
            )
            store.repose([4], np.zeros((1, 3)), [0.0])
            store.undo(moved)
            store.mark([7], "gone", at_ns=2**62)
        with MemoryStore.open(place, readonly=True) as store:
            seen, total = store.find_seen(Filter(between_ns=(2, 8)))
            log = [(entry.generation, entry.operation, entry.undoes, entry.added) for entry in store.log()]
            answers = [
                [memory.id for memory in store.find(filter, newest_first=False)]
                for filter in (
                    Filter(text="cup"), Filter(text="STRASSE"), Filter(text="fork-lift"),
                    Filter(text="cafe table"), Filter(text="!!"), Filter(labels=["cup", "no"]),
                    Filter(marked=True, map_id="map 1"),
                    Filter(circle=(0.0, 0.0, 9.0)), Filter(box=(-5.0, -5.0, 5.0, 5.0), min_confidence=0.5),
                    Filter(polygon=[(0, 0), (20, 0), (0, 20)], text="red"), Filter(labels=[]),
                    Filter(states=["gone"]), Filter(labels=[f"l{n}" for n in range(300)] + ["cup"]),
                )
            ]  # fmt: skip
            near = [hit.memory.id for hit in store.query(Query(like=5, k=8))]
            told = [
                (hit.memory.id, hit.score)
                for text in (
                    "Who has the red cups of the cafe?",
                    "is there a naïve tab?",
                    "cups on the Straße",
                )
                for hit in store.query(Query(text=text, k=100))
            ]
            words = store.maps(), store.label_counts(), store.encoders(), store.corrections("cupp")
            kept = comparable(store.get(range(1, 62)))
            found.append(
                (kept, [each.id for each in seen], total, log, answers, near, told, words, store.check().ok)
            )
    assert any(found[0][4])
    assert found[0][6]
    for one, other in zip(*found, strict=True):
        assert one == other


def test_many_write_at_the_same_time_and_lose_nothing(address: str) -> None:
    with MemoryStore.open(address, dim=DIM):
        pass
    stores = [MemoryStore.open(address) for _ in range(3)]
    ids: list[int] = []

    def work(store: MemoryStore, name: str) -> None:
        for number in range(12):
            ids.extend(
                store.add([Memory(time_ns=number, position=(0, 0, 0), label=name, caption="same words")])
            )

    threads = [
        threading.Thread(target=work, args=(store, f"robot {at}")) for at, store in enumerate(stores * 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == list(range(1, 73))
    for store in stores:
        assert len(store) == 72
        assert [entry.generation for entry in store.log()] == list(range(1, 73))
        assert store.label_counts()["robot 2"] == 12
        assert store.count(Filter(text="same words")) == 72
        assert store.check().ok
        store.close()


def test_what_is_not_right_is_refused_and_said(address: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="new store"):
        MemoryStore.open(address)
    with pytest.raises(NotAStoreError, match="holds no store"):
        MemoryStore.open(address, readonly=True)
    with pytest.raises(StoreError, match=r"me@127\.0\.0\.1"):
        MemoryStore.open("postgresql://me:secret@127.0.0.1:1/none", dim=4)
    with MemoryStore.open(address, dim=DIM) as store:
        with pytest.raises(DimensionError, match="holds vectors of 8 numbers"):
            MemoryStore.open(address, dim=9)
        with pytest.raises(DimensionError):
            store.add([Memory(time_ns=0, position=(0, 0, 0), embedding=np.ones(3))])
        assert len(store) == 0
        assert store.log() == []
        with pytest.raises(StoreError, match="pg_dump"):
            store.backup(tmp_path / "copy")
        with MemoryStore.open(address, readonly=True) as reader, pytest.raises(StoreReadOnlyError):
            reader.add([Memory(time_ns=0, position=(0, 0, 0))])
        store.database._write(
            lambda connection: connection.execute("UPDATE meta SET value = 99 WHERE name = 'schema'")
        )
        with pytest.raises(StoreVersionError, match="99"):
            MemoryStore.open(address)
    with pytest.raises(StoreClosedError):
        len(store)


def test_a_server_that_does_not_wait_for_the_disk_is_told_of(address: str) -> None:
    with MemoryStore.open(address, dim=DIM) as store:
        (said,) = store.database.remarks  # That of the tests.
        assert "fsync" in said


def test_addresses_are_told_from_folders_and_shown_without_passwords() -> None:
    assert is_address("postgresql://u@h/d")
    assert is_address("postgres://h")
    assert not is_address("postgresql")
    assert not is_address(Path("postgresql://u@h/d"))
    assert without_password("postgresql://u:se:cret@h:1/d?x=1") == "postgresql://u@h:1/d?x=1"
    assert without_password("postgresql://h/d?password=secret&x=1") == "postgresql://h/d?x=1"


def test_an_index_of_the_server_finds_what_is_rare_too(address: str) -> None:
    random = np.random.default_rng(3)
    vectors = random.normal(size=(600, DIM)).astype(np.float32)
    with MemoryStore.open(address, dim=DIM, config=StoreConfig(index_from=500)) as store:
        store.add([
            Memory(
                time_ns=at, position=(at, 0, 0), embedding=vector,
                label="rare" if at % 100 == 7 else "common",
            )
            for at, vector in enumerate(vectors)
        ])  # fmt: skip
        asked = {
            "all": Query(embedding=vectors[7], k=5),
            "rare": Query(embedding=-vectors[7], labels=["rare"], k=10),
            "place": Query(embedding=vectors[300], near=(300.0, 0.0), radius_m=2.5, k=9),
            "recent": Query(embedding=vectors[9], order="recency", k=3),
        }
        exact = {name: [hit.memory.id for hit in store.query(query)] for name, query in asked.items()}
        assert store.explain(asked["all"]).method == "all"
        store.settle()
        assert store.explain(asked["all"]).method == "index"
        assert len(exact["rare"]) == 6
        assert sorted(exact["place"]) == [299, 300, 301, 302, 303]
        for name, query in asked.items():
            assert [hit.memory.id for hit in store.query(query)] == exact[name], name
        best = store.search(vectors[:40], 1)
        assert (best.ids[:, 0] == np.arange(1, 41)).mean() > 0.95
        np.testing.assert_allclose(best.scores[:, 0], 1.0, atol=2e-3)
        assert store.search(np.ones((1, DIM)), 700, aim=1.0).ids.shape == (1, 600)
        assert store.database.stats().vectors == {"default": 600}


def test_walks_through_the_graph_answer_as_comparing_all_does(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(3)
    vectors = random.normal(size=(600, DIM)).astype(np.float32)
    vectors[100:130] = vectors[100]  # As like as each other.
    places = random.uniform(0.0, 100.0, (600, 2))
    thin = [(0.0, 0.0), (100.0, 99.0), (100.0, 100.0)]
    with MemoryStore.open(address, dim=DIM, config=StoreConfig(index_from=500)) as store:
        store.add([
            Memory(
                time_ns=at, position=(*place, 0), embedding=vector,
                label="rare" if at % 9 == 7 else "common",
            )
            for at, (place, vector) in enumerate(zip(places, vectors, strict=True))
        ])  # fmt: skip
        asked = {
            "equal ones": Query(embedding=vectors[100], k=5),
            "equal ones, a label": Query(embedding=vectors[100], labels=["common"], k=5),
            "equal ones, all of them": Query(embedding=vectors[100], k=30),
            "label": Query(embedding=vectors[7], labels=["rare"], k=10),
            "time": Query(embedding=vectors[7], between_ns=(100, 400), k=10),
            "circle": Query(embedding=vectors[7], near=(50.0, 50.0), radius_m=30.0, k=10),
            "circle, all of it": Query(embedding=vectors[7], near=(50.0, 50.0), radius_m=30.0, k=400),
            "thin": Query(embedding=vectors[7], polygon=thin, k=3),
        }
        exact = {name: [hit.memory.id for hit in store.query(query)] for name, query in asked.items()}
        assert exact["equal ones"] == [101, 102, 103, 104, 105]
        store.settle()
        monkeypatch.setattr(nearest, "FEW", 0)
        monkeypatch.setattr(nearest, "effort", lambda rows, k, aim: 1000)
        walked = []
        whole = nearest._walk
        monkeypatch.setattr(nearest, "_walk", lambda *given: walked.append(1) or whole(*given))
        for name, query in asked.items():
            assert [hit.memory.id for hit in store.query(query)] == exact[name], name
        assert len(walked) == len(asked)


def test_an_aim_is_a_matter_of_effort(address: str) -> None:
    # Of few rows the least, of more with the root of their number, and more for a higher aim.
    assert nearest.effort(1_000, 10, 0.95) == nearest.effort(0, 10, 0.5) == nearest.LEAST_EFFORT
    assert nearest.effort(nearest.EFFORT_ROWS, 10, 0.95) == nearest.EFFORT
    assert nearest.effort(4 * nearest.EFFORT_ROWS, 10, 0.95) == 2 * nearest.EFFORT
    assert nearest.effort(nearest.EFFORT_ROWS, 10, 0.99) == math.ceil(nearest.EFFORT * math.sqrt(5))
    assert nearest.effort(1_000, 200, 0.95) == 400
    assert nearest.effort(10**9, 10, 0.999) == nearest.effort(10, 900, 0.95) == nearest.MOST_EFFORT
    random = np.random.default_rng(3)
    vectors = random.normal(size=(600, DIM)).astype(np.float32)
    with MemoryStore.open(address, dim=DIM, config=StoreConfig(index_from=500)) as store:
        store.add([Memory(time_ns=0, position=(0, 0, 0), embedding=vector) for vector in vectors])
        store.settle()
        database = store.database
        assert isinstance(database, PostgresDatabase)
        with database._read() as connection:
            slot = database._counters.slots[DEFAULT_SLOT]
            for k, aim in ((10, 0.95), (300, 0.95)):
                assert nearest.prepare(connection, slot, k, aim)
                (set_to,) = connection.execute("SELECT current_setting('hnsw.ef_search')").fetchone()
                assert int(set_to) == nearest.effort(600, k, aim)
            sql = "SELECT reloptions FROM pg_class WHERE relname = 'embedding_hnsw_0_1' AND relnamespace = "
            sql += "current_schema()::regnamespace"
            (options,) = connection.execute(sql).fetchone()
        assert options == [f"m={nearest.NEIGHBOURS}", f"ef_construction={nearest.CHOSEN_FROM}"]
        for wrong in (0.0, 1.1, True):
            with pytest.raises(ValueError, match="aim must be above 0 and at most 1"):
                store.search(vectors[:1], 1, aim=wrong)


def test_what_was_erased_is_in_no_table(address: str) -> None:
    with MemoryStore.open(address, dim=DIM) as store:
        ids = store.add([Memory(time_ns=0, position=(0, 0, 0), label="Zanzibar", embedding=np.ones(DIM))])
        store.mark(ids, "moved")
        store.forget(ids, secure=True)
        assert store.check().ok
        with store.database._read() as connection:
            for table in ("memory", "embedding", "vocabulary", "log_row", "log"):
                (text,) = connection.execute(
                    f"SELECT coalesce(string_agg(t::text, ' '), '') FROM {table} AS t"
                ).fetchone()
                assert "anzibar" not in text


@pytest.mark.slow
def test_servers_that_start_at_the_same_moment_have_ports_of_their_own(
    server_folder: Callable[[], Path],
) -> None:
    folders = [server_folder() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        addresses = list(pool.map(server.start, folders))
    for folder, address in zip(folders, addresses, strict=True):
        with MemoryStore.open(address, dim=DIM) as store:
            store.add(rows(2))
        server.stop(folder)
        assert server.start(folder) == address  # And keep them.
        with MemoryStore.open(address, readonly=True) as store:
            assert len(store) == 2
        server.stop(folder)


@pytest.mark.slow
def test_a_killed_server_loses_nothing_that_was_acknowledged(server_folder: Callable[[], Path]) -> None:
    folder = server_folder()
    address = server.start(folder)
    try:
        with MemoryStore.open(address, dim=DIM) as store:
            assert store.database.remarks == []  # It waits for the disk.
            acknowledged: list[int] = []
            stopped = threading.Event()

            def work() -> None:
                row = Memory(time_ns=0, position=(0, 0, 0), embedding=np.ones(DIM))
                while not stopped.is_set():
                    with contextlib.suppress(StoreError):  # What was under way when the server died.
                        acknowledged.extend(store.add([row]))

            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            for trial in range(3):
                time.sleep(0.3 + 0.2 * trial)
                known = len(acknowledged)
                os.kill(int(server.info(folder)["pid"]), signal.SIGKILL)
                assert start_again(folder, tries=20) == address
                while len(acknowledged) == known:
                    time.sleep(0.02)  # The same handle goes on.
            stopped.set()
            thread.join()
            assert len(store.get(acknowledged)) == len(acknowledged) == len(set(acknowledged))
            assert store.check().ok
    finally:
        server.stop(folder)
