"""Measurements of the memory's benchmark: inserts, searches, filters, freshness, moving tiers, last seen."""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.memory.peers import peers
from memory import Memory, MemoryStore, Query, StoreConfig
from memory.index import FlatIndex, recall

_SELECTIVITIES = (1.0, 0.1, 0.01, 0.001, 0.0001)
_LABELS = ("Car", "Pedestrian", "Door", "Chair", "Table", "Person", "Bicycle", "Tree", "Sign", "Box")
_NS = 1_000_000_000
#: Shares of the true neighbours that the store is asked to find.
_AIMS = (0.9, 0.95, 0.99, 0.995)
#: Searches are timed this often, and the fastest counts: other programs only ever slow them down.
_REPEATS = 3


def truth_of(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> NDArray[np.int64]:
    exact = FlatIndex(vectors.shape[1])
    exact.add(vectors, np.arange(len(vectors)))
    return exact.search(queries, 10).ids


def memories(vectors: NDArray[np.float32], first: int = 0) -> list[Memory]:
    generator = np.random.default_rng(first)
    places = generator.uniform(0, 200, (len(vectors), 2))
    return [
        Memory(
            time_ns=(first + row) * _NS,
            position=(float(x), float(y), 0.0),
            label=_LABELS[row % len(_LABELS)],
            caption="seen on the way",
            embedding=vector,
        )
        for row, (vector, (x, y)) in enumerate(zip(vectors, places, strict=True))
    ]


def filled(
    folder: Path, vectors: NDArray[np.float32], index: str, *, index_from: int = 20_000
) -> tuple[MemoryStore, float]:
    """A store with all vectors; ids are rows plus one.

    Raises:
        ImportError: the index needs a package that is not installed.
    """
    config = StoreConfig(index=index, index_from=index_from)
    store = MemoryStore.open(folder, dim=vectors.shape[1], config=config)
    start = time.perf_counter()
    for first in range(0, len(vectors), 10_000):
        store.add(memories(vectors[first : first + 10_000], first))
    spent = time.perf_counter() - start
    store.search(vectors[:1])
    return store, spent


def inserts(
    vectors: NDArray[np.float32], folder: Path, options: argparse.Namespace, notes: list[str]
) -> list[dict[str, Any]]:
    """Durable rows a second: one at a time, eight threads of one row each, and thousands together."""
    singles, grouped = (50, 2000) if options.quick else (2000, 50_000)
    batch = min(5000, grouped)
    rows = []

    def measured(side: str, way: str, count: int, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        spent = time.perf_counter() - start
        rows.append({"side": side, "way": way, "rows": count, "rows_s": round(count / spent, 1)})

    rows.append({"side": "the disk", "way": "write and fsync", "rows": 100, "rows_s": _syncs(folder)})
    rated = memories(vectors[: max(singles, grouped)])
    with MemoryStore.open(folder / "inserts", dim=vectors.shape[1]) as store:
        store.add(rated[:10])  # As for the peers, creating files is not timed.
        measured("ours", "one by one", singles, lambda: [store.add([one]) for one in rated[:singles]])

        def together() -> None:
            def work(part: int) -> None:
                for one in rated[part:singles:8]:
                    store.add([one])

            threads = [threading.Thread(target=work, args=(part,)) for part in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        measured("ours", "one by one, 8 threads", singles, together)
        measured(
            "ours",
            "5,000 together",
            grouped,
            lambda: [store.add(rated[first : first + batch]) for first in range(0, grouped, batch)],
        )
    for label, make in peers(folder / "peers").items():
        peer = make()
        if not hasattr(peer, "append"):
            continue
        try:
            peer.insert(vectors[:10], np.arange(10))
            few = min(singles, 100)
            measured(label, "one by one", few, partial(_append, peer, vectors[:few], 10, 1))
            measured(label, "5,000 together", grouped, partial(_append, peer, vectors[:grouped], 1000, batch))
        except Exception as error:  # as above
            notes.append(f"{label}, inserts: {type(error).__name__}: {str(error)[:200]}")
    return rows


def _append(peer: Any, vectors: NDArray[np.float32], first: int, batch: int) -> None:
    """Rows in commits of ``batch``, numbered from ``first``."""
    for start in range(0, len(vectors), batch):
        part = vectors[start : start + batch]
        peer.append(part, np.arange(start, start + len(part)), first + start)


def _syncs(folder: Path) -> float:
    """Syncs a second that the disk does."""
    path = folder / "sync"
    with path.open("wb") as file:
        start = time.perf_counter()
        for _ in range(100):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        spent = time.perf_counter() - start
    path.unlink()
    return round(100 / spent, 1)


def searches_of(
    name: str,
    search: Callable[[NDArray[np.float32], int, Any], NDArray[np.int64]],
    efforts: Sequence[float],
    data: Any,
    truth: NDArray[np.int64],
    options: argparse.Namespace,
    built: float | None = None,
) -> list[dict[str, Any]]:
    """Queries a second and recall for rising efforts, until .995 is reached."""
    rows = []
    search(data.queries[:2], 10, efforts[0])
    for effort in efforts:
        spent = float("inf")
        for _ in range(_REPEATS):
            start = time.perf_counter()
            found = search(data.queries, 10, effort)
            spent = min(spent, time.perf_counter() - start)
        reached = recall(found, truth)
        rows.append(
            {
                "side": name,
                "effort": effort,
                "recall": round(reached, 4),
                "queries_s": round(len(data.queries) / spent, 1),
                "build_s": None if built is None else round(built, 1),
            }
        )
        if reached >= 0.995:
            break
    return rows


def ours(
    store: MemoryStore, data: Any, truth: NDArray[np.int64], options: argparse.Namespace, *, name: str
) -> list[dict[str, Any]]:
    """The store's public search for many vectors at once, by what it is to find; ids are places plus one.

    The rows say too what the store did for it: where it compares all rows, it read no buckets.
    """

    def search(queries: NDArray[np.float32], k: int, aim: float) -> NDArray[np.int64]:
        return store.search(queries, k, aim=aim).ids - 1

    rows = searches_of(name, search, _AIMS, data, truth, options)
    long_term = store._retriever.indexes.by_encoder["default"].tiers[1]
    for row in rows:
        if long_term is not None:
            row |= long_term.effort(row["effort"], queries=len(data.queries))._asdict()
    return rows


def filtered_ours(
    store: MemoryStore, data: Any, options: argparse.Namespace, *, name: str
) -> list[dict[str, Any]]:
    """Queries within a time window, through the public API."""
    rows = []
    some = data.queries[: 20 if options.quick else 200]
    for selectivity in _SELECTIVITIES:
        below = max(10, round(selectivity * options.rows))
        exact = truth_of(data.vectors[:below], some)
        times, found = [], np.full(exact.shape, -1, np.int64)
        for row, query in enumerate(some):
            start = time.perf_counter()
            hits = store.query(Query(embedding=query, between_ns=(0, (below - 1) * _NS), k=10))
            times.append((time.perf_counter() - start) * 1e3)
            ids = [int(hit.memory.id or 0) - 1 for hit in hits]
            found[row, : len(ids)] = ids
        rows.append(_filtered_row(name, selectivity, found, exact, times))
    return rows


def filtered_peer(name: str, peer: Any, data: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The same of a peer, with the least of its efforts that reaches a recall of .99, or the largest."""
    rows = []
    some = data.queries[: 20 if options.quick else 200]
    ways: list[tuple[str, dict[str, Any]]] = [(name, {})]
    if name == "LanceDB":
        ways = [("LanceDB, filter first", {}), ("LanceDB, filter after", {"before": False})]
    for label, further in ways:
        for selectivity in _SELECTIVITIES:
            below = max(10, round(selectivity * options.rows))
            exact = truth_of(data.vectors[:below], some)
            for effort in peer.filtered_efforts:
                times, found = [], np.full(exact.shape, -1, np.int64)
                for row in range(len(some)):
                    start = time.perf_counter()
                    found[row] = peer.filtered(some[row : row + 1], 10, effort, below, **further)[0]
                    times.append((time.perf_counter() - start) * 1e3)
                measured = _filtered_row(label, selectivity, found, exact, times)
                if measured["recall"] >= 0.99 or "before" in further:
                    break
            rows.append(measured)
    return rows


def _filtered_row(
    side: str,
    selectivity: float,
    found: NDArray[np.int64],
    exact: NDArray[np.int64],
    times: list[float],
) -> dict[str, Any]:
    return {
        "side": side,
        "selectivity": selectivity,
        "recall": round(recall(found, exact), 4),
        "median_ms": round(float(np.median(times)), 3),
        "p99_ms": round(float(np.percentile(times, 99)), 3),
    }


def freshness(store: MemoryStore, data: Any) -> float:
    """Largest of 20 times from the acknowledgement of a memory to having found it, in milliseconds."""
    generator = np.random.default_rng(1)
    worst = 0.0
    for _ in range(20):
        vector = generator.standard_normal(data.vectors.shape[1]).astype(np.float32)
        new = store.add([Memory(time_ns=0, label="new", embedding=vector)])[0]
        start = time.perf_counter()
        hits = store.query(Query(embedding=vector, k=1))
        worst = max(worst, (time.perf_counter() - start) * 1e3)
        if hits[0].memory.id != new:
            raise AssertionError("a memory that was acknowledged was not found")
    return round(worst, 3)


def while_moving(store: MemoryStore, vectors: NDArray[np.float32], data: Any) -> dict[str, Any]:
    """Single queries while memories come in and move to the long-term tier in the background."""
    stop, added = threading.Event(), [0]

    def add() -> None:
        while not stop.is_set() and added[0] < len(vectors):
            part = vectors[added[0] : added[0] + 100]
            store.add(memories(part, 10_000_000 + added[0]))
            added[0] += len(part)
            stop.wait(0.05)

    def times(count: int) -> NDArray[np.float64]:
        found = []
        for row in range(count):
            start = time.perf_counter()
            store.query(Query(embedding=data.queries[row % len(data.queries)], k=10))
            found.append((time.perf_counter() - start) * 1e3)
        return np.array(found)

    quiet = times(300)
    thread = threading.Thread(target=add)
    before = store.tiers()["default"]
    thread.start()
    start = time.perf_counter()
    busy = []
    while thread.is_alive() and time.perf_counter() - start < 20.0:
        busy.append(times(20))
    stop.set()
    thread.join()
    after = store.tiers()["default"]
    found = np.concatenate(busy)
    return {
        "quiet_median_ms": round(float(np.median(quiet)), 3),
        "quiet_p99_ms": round(float(np.percentile(quiet, 99)), 3),
        "median_ms": round(float(np.median(found)), 3),
        "p99_ms": round(float(np.percentile(found, 99)), 3),
        "worst_ms": round(float(found.max()), 3),
        "added": added[0],
        "moved": after.long_term - before.long_term,
    }


def last_seen(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """When was a thing seen last, among many memories without vectors."""
    generator = np.random.default_rng(0)
    names = [f"thing {number}" for number in range(1000)]
    with MemoryStore.open(folder, dim=8) as store:
        start = time.perf_counter()
        for first in range(0, options.seen_rows, 20_000):
            count = min(20_000, options.seen_rows - first)
            labels = generator.integers(0, len(names), count)
            store.add(
                [
                    Memory(
                        time_ns=(first + row) * _NS, position=(float(row % 200), 1.0, 0.0), label=names[label]
                    )
                    for row, label in enumerate(labels)
                ]
            )
        filling = time.perf_counter() - start
        store.query(Query(labels=[names[0]], k=1))
        times = []
        for name in (names * 2)[: 50 if options.quick else 1000]:
            start = time.perf_counter()
            hits = store.query(Query(labels=[name], map_id="default", k=1))
            times.append((time.perf_counter() - start) * 1e3)
            if hits and hits[0].memory.label != name:
                raise AssertionError("another thing was found")
    return {
        "rows": options.seen_rows,
        "filling_rows_s": round(options.seen_rows / filling, 1),
        "median_ms": round(float(np.median(times)), 3),
        "p99_ms": round(float(np.percentile(times, 99)), 3),
    }
