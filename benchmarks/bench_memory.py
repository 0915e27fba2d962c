"""The memory's store against other vector stores: durable inserts, queries, filters, last seen.

    python benchmarks/bench_memory.py --folder FOLDER_ON_THE_DISK_TO_MEASURE

200,000 unit vectors of 256 numbers around 1,000 centres (noise 0.05 a dimension), one thread. Every side's
answers are compared with the exact ones; for each, the least effort that reaches a recall@10 of .99 (.95)
counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.memory_peers import peers
from benchmarks.options import common_parser, configure, parse
from benchmarks.results import RESULTS, number, result, show, table, write
from memory import Memory, MemoryStore, Query, StoreConfig
from memory.index import FlatIndex, LSHIndex, clustered, recall

_SELECTIVITIES = (1.0, 0.1, 0.01, 0.001, 0.0001)
_LABELS = ("Car", "Pedestrian", "Door", "Chair", "Table", "Person", "Bicycle", "Tree", "Sign", "Box")
_NS = 1_000_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    configure(torch.device("cpu"), 1)
    data = clustered(options.rows, options.queries, seed=options.seed)
    truth = _truth(data.vectors, data.queries)
    notes: list[str] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        inserts = _inserts(data.vectors, folder, options, notes)
        store, filling = _filled(folder / "ours", data.vectors, "lsh")
        searches = [*_ours(store, data, truth, options)]
        filtered = _filtered_ours(store, data, options)
        fresh = _freshness(store, data)
        store.close()
        reopened = time.perf_counter()
        store = MemoryStore.open(folder / "ours")
        store.search(data.queries[:1])
        opening = time.perf_counter() - reopened
        store.close()
        try:
            store, _ = _filled(folder / "ours-faiss", data.vectors, "faiss")
            searches += _ours(store, data, truth, options, name="ours, faiss")
            store.close()
        except ImportError as error:
            notes.append(str(error))
        for label, make in peers(folder).items():
            try:
                peer = make()
                start = time.perf_counter()
                peer.build(data.vectors, np.arange(len(data.vectors)))
                built = time.perf_counter() - start
                searches += _searches(label, peer.search, peer.efforts, data, truth, options, built)
                if hasattr(peer, "filtered"):
                    filtered += _filtered_peer(label, peer, data, options)
            except Exception as error:  # a peer that fails is a line, not the end
                notes.append(f"{label}: {type(error).__name__}: {str(error)[:200]}")
        seen = _last_seen(folder / "seen", options)
    settings = {
        "rows": options.rows,
        "dim": 256,
        "queries": options.queries,
        "seen_rows": options.seen_rows,
        "threads": 1,
        "quick": options.quick,
    }
    values = result(
        "memory",
        torch.device("cpu"),
        settings,
        inserts=inserts,
        searches=searches,
        filtered=filtered,
        last_seen=seen,
        fresh_ms=fresh,
        open_s=round(opening, 3),
        filling_s=round(filling, 2),
        bars=_bars(inserts, searches, filtered, seen, fresh),
        notes=notes,
    )
    write(values, options.out)
    show(values, _tables(values), notes, as_json=options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "memory", quick="few rows")
    parser.add_argument("--folder", type=Path, help="where stores are made; decides what a sync costs")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--seen-rows", type=int, help="memories for the last-seen question")
    options = parse(parser, arguments)
    quick = options.quick
    options.rows = options.rows or (3000 if quick else 200_000)
    options.queries = options.queries or (50 if quick else 2000)
    options.seen_rows = options.seen_rows or (2000 if quick else 1_000_000)
    options.out = options.out or RESULTS / "memory-cpu.json"
    return options


def _truth(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> NDArray[np.int64]:
    exact = FlatIndex(vectors.shape[1])
    exact.add(vectors, np.arange(len(vectors)))
    return exact.search(queries, 10).ids


def _memories(vectors: NDArray[np.float32], first: int = 0) -> list[Memory]:
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


def _filled(folder: Path, vectors: NDArray[np.float32], index: str) -> tuple[MemoryStore, float]:
    """A store with all vectors; ids are rows plus one."""
    config = StoreConfig(index=index)  # type: ignore[arg-type]
    store = MemoryStore.open(folder, dim=vectors.shape[1], config=config)
    start = time.perf_counter()
    for first in range(0, len(vectors), 10_000):
        store.add(_memories(vectors[first : first + 10_000], first))
    spent = time.perf_counter() - start
    store.search(vectors[:1])
    return store, spent


def _inserts(
    vectors: NDArray[np.float32], folder: Path, options: argparse.Namespace, notes: list[str]
) -> list[dict[str, Any]]:
    """Durable rows a second: one at a time, eight threads of one row each, and thousands together."""
    singles, grouped = (50, 2000) if options.quick else (500, 50_000)
    batch = min(5000, grouped)
    rows = []

    def measured(side: str, way: str, count: int, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        spent = time.perf_counter() - start
        rows.append({"side": side, "way": way, "rows": count, "rows_s": round(count / spent, 1)})

    rows.append({"side": "the disk", "way": "write and fsync", "rows": 100, "rows_s": _syncs(folder)})
    memories = _memories(vectors[: max(singles, grouped)])
    with MemoryStore.open(folder / "inserts", dim=vectors.shape[1]) as store:
        measured("ours", "one by one", singles, lambda: [store.add([one]) for one in memories[:singles]])

        def together() -> None:
            def work(part: int) -> None:
                for one in memories[part:singles:8]:
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
            lambda: [store.add(memories[first : first + batch]) for first in range(0, grouped, batch)],
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


def _searches(
    name: str,
    search: Callable[[NDArray[np.float32], int, int], NDArray[np.int64]],
    efforts: Sequence[int],
    data: Any,
    truth: NDArray[np.int64],
    options: argparse.Namespace,
    built: float | None = None,
) -> list[dict[str, Any]]:
    """Queries a second and recall for rising efforts, until .995 is reached."""
    rows = []
    search(data.queries[:2], 10, efforts[0])
    for effort in efforts:
        start = time.perf_counter()
        found = search(data.queries, 10, effort)
        spent = time.perf_counter() - start
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


def _ours(
    store: MemoryStore, data: Any, truth: NDArray[np.int64], options: argparse.Namespace, *, name: str = ""
) -> list[dict[str, Any]]:
    """The store's public search for many vectors at once; ids are places plus one."""
    index: Any = store._retriever._index("default")
    knob = "probes"
    usual = getattr(index, knob, 1)
    if isinstance(index, LSHIndex):
        efforts = [usual // 2, usual, 2 * usual, 4 * usual]
    else:
        efforts = [usual // 4, usual // 2, usual, 2 * usual]
    label = name or ("ours, LSH" if isinstance(index, LSHIndex) else "ours, exact")

    def search(queries: NDArray[np.float32], k: int, effort: int) -> NDArray[np.int64]:
        if hasattr(index, knob):
            index.probes = effort
        return store.search(queries, k).ids - 1

    rows = _searches(label, search, [max(1, effort) for effort in efforts], data, truth, options)
    if hasattr(index, knob):
        index.probes = usual
    return rows


def _filtered_ours(store: MemoryStore, data: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    some = data.queries[: 20 if options.quick else 200]
    for selectivity in _SELECTIVITIES:
        below = max(10, round(selectivity * options.rows))
        exact = _truth(data.vectors[:below], some)
        times, found = [], np.full(exact.shape, -1, np.int64)
        for row, query in enumerate(some):
            start = time.perf_counter()
            hits = store.query(Query(embedding=query, between_ns=(0, (below - 1) * _NS), k=10))
            times.append((time.perf_counter() - start) * 1e3)
            ids = [int(hit.memory.id or 0) - 1 for hit in hits]
            found[row, : len(ids)] = ids
        rows.append(_filtered_row("ours", selectivity, found, exact, times))
    return rows


def _filtered_peer(name: str, peer: Any, data: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    some = data.queries[: 20 if options.quick else 200]
    ways: list[tuple[str, dict[str, Any]]] = [(name, {})]
    if name == "LanceDB":
        ways = [("LanceDB, filter first", {}), ("LanceDB, filter after", {"before": False})]
    for label, further in ways:
        for selectivity in _SELECTIVITIES:
            below = max(10, round(selectivity * options.rows))
            exact = _truth(data.vectors[:below], some)
            times, found = [], np.full(exact.shape, -1, np.int64)
            for row in range(len(some)):
                start = time.perf_counter()
                found[row] = peer.filtered(some[row : row + 1], 10, peer.efforts[-1], below, **further)[0]
                times.append((time.perf_counter() - start) * 1e3)
            rows.append(_filtered_row(label, selectivity, found, exact, times))
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


def _freshness(store: MemoryStore, data: Any) -> float:
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


def _last_seen(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
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


def _bars(
    inserts: list[dict[str, Any]],
    searches: list[dict[str, Any]],
    filtered: list[dict[str, Any]],
    seen: dict[str, Any],
    fresh: float,
) -> dict[str, Any]:
    def rate(way: str) -> float | None:
        return next((row["rows_s"] for row in inserts if row["side"] == "ours" and row["way"] == way), None)

    def best(prefix: str, least: float) -> float | None:
        good = [
            row["queries_s"] for row in searches if row["side"].startswith(prefix) and row["recall"] >= least
        ]
        return max(good, default=None)

    ours = [row for row in filtered if row["side"] == "ours"]
    return {
        "inserts_single_s": rate("one by one"),
        "inserts_grouped_s": rate("5,000 together"),
        "queries_s_at_99": best("ours", 0.99),
        "lsh_queries_s_at_95": best("ours, LSH", 0.95),
        "filtered_least_recall": min((row["recall"] for row in ours), default=None),
        "filtered_worst_p99_ms": max((row["p99_ms"] for row in ours), default=None),
        "last_seen_p99_ms": seen["p99_ms"],
        "fresh_ms": fresh,
    }


def _tables(values: dict[str, Any]) -> list[Any]:
    return [
        table(
            "Durable inserts",
            ["side", "way", "rows a second"],
            [[row["side"], row["way"], number(row["rows_s"], 0)] for row in values["inserts"]],
        ),
        table(
            "Queries, one thread, k = 10",
            ["side", "effort", "recall@10", "queries a second", "build, s"],
            [
                [
                    row["side"],
                    str(row["effort"]),
                    number(row["recall"], 4),
                    number(row["queries_s"], 0),
                    number(row["build_s"], 1),
                ]
                for row in values["searches"]
            ],
        ),
        table(
            "Filtered by time",
            ["side", "matching", "recall@10", "median, ms", "p99, ms"],
            [
                [
                    row["side"],
                    f"{100 * row['selectivity']:g} %",
                    number(row["recall"], 4),
                    number(row["median_ms"], 2),
                    number(row["p99_ms"], 2),
                ]
                for row in values["filtered"]
            ],
        ),
        table("Aims", ["figure", "value"], [[name, str(value)] for name, value in values["bars"].items()]),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
