"""The memory's store against other vector stores: durable inserts, queries, filters, last seen.

    python -m benchmarks.memory.memory --folder FOLDER_ON_THE_DISK_TO_MEASURE

200,000 unit vectors of 256 numbers around 1,000 centres (noise 0.05 a dimension), one thread. Every side's
answers are compared with the exact ones; for each, the least effort that reaches a recall@10 of .99 (.95)
counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.memory.measures import (
    filled,
    filtered_ours,
    filtered_peer,
    freshness,
    inserts,
    last_seen,
    ours,
    searches_of,
    truth_of,
    while_moving,
)
from benchmarks.memory.peers import peers
from benchmarks.memory.real_embeddings import real_embeddings
from benchmarks.publish.screen import tables
from memory import MemoryStore
from memory.index import Clustered, clustered

_INDEXES = {"ours, LSH": "lsh", "ours, faiss": "faiss", "ours, RaBitQ": "faiss-rabitq"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    configure(torch.device("cpu"), 1)
    notes: list[str] = []
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        values = _clustered(options, folder, notes)
        if options.real is not None:
            values["real"] = _real(options, folder, notes)
    settings = {
        "rows": options.rows,
        "dim": 256,
        "queries": options.queries,
        "seen_rows": options.seen_rows,
        "threads": 1,
        "quick": options.quick,
    }
    values = result("memory", torch.device("cpu"), settings, **values, bars=_bars(values), notes=notes)
    save(values, options)
    show(
        values,
        tables(
            values, "memory-searches", "memory-filtered", "memory-inserts", "memory-moving", "memory-bars"
        ),
        notes,
        as_json=options.json,
    )
    return 0


def _clustered(options: argparse.Namespace, folder: Path, notes: list[str]) -> dict[str, Any]:
    """Everything about the simulated vectors."""
    # The last ones come in while queries are answered.
    coming = 200 if options.quick else 10_000
    every = clustered(options.rows + coming, options.queries, seed=options.seed)
    data = every._replace(vectors=every.vectors[: options.rows])
    truth = truth_of(data.vectors, data.queries)
    written = inserts(data.vectors, folder, options, notes)
    searches, filtered, sizes, moving = [], [], [], {}
    fresh = opening = filling = 0.0
    for label, index in _INDEXES.items():
        try:
            store, spent = filled(folder / index, data.vectors, index)
        except ImportError as error:
            notes.append(str(error))
            continue
        searches += ours(store, data, truth, options, name=label)
        filtered += filtered_ours(store, data, options, name=label)
        tier = store.tiers()["default"]
        sizes.append({"side": label, "bytes_a_vector": round(tier.bytes / options.rows, 1)})
        if index == "lsh":
            filling, fresh = spent, freshness(store, data)
            moving = while_moving(store, every.vectors[options.rows :], data)
            store.close()
            start = time.perf_counter()
            store = MemoryStore.open(folder / index)
            store.search(data.queries[:1])
            opening = time.perf_counter() - start
        store.close()
    for label, make in peers(folder).items():
        try:
            peer = make()
            start = time.perf_counter()
            peer.build(data.vectors, np.arange(len(data.vectors)))
            built = time.perf_counter() - start
            searches += searches_of(label, peer.search, peer.efforts, data, truth, options, built)
            if hasattr(peer, "filtered"):
                filtered += filtered_peer(label, peer, data, options)
        except Exception as error:  # a peer that fails is a line, not the end
            notes.append(f"{label}: {type(error).__name__}: {str(error)[:200]}")
    return {
        "inserts": written,
        "searches": searches,
        "filtered": filtered,
        "sizes": sizes,
        "moving": moving,
        "last_seen": last_seen(folder / "seen", options),
        "fresh_ms": fresh,
        "open_s": round(opening, 3),
        "filling_s": round(filling, 2),
    }


def _real(options: argparse.Namespace, folder: Path, notes: list[str]) -> dict[str, Any]:
    """Searches among embeddings of real sentences."""
    vectors = real_embeddings(300 if options.quick else options.real_rows, options.real)
    chosen = np.random.default_rng(0).permutation(len(vectors))
    asked = min(1000, len(vectors) // 10)
    data = Clustered(vectors[chosen[asked:]], vectors[chosen[:asked]])
    truth = truth_of(data.vectors, data.queries)
    searches = []
    # Up to 20,000 vectors the store needs no index, so these rows show the cost of forcing one.
    ways: dict[str, tuple[str, dict[str, int]]] = {"ours, as it comes": ("lsh", {})}
    ways |= {label: (index, {"index_from": 1000}) for label, index in _INDEXES.items()}
    for place, (label, (index, further)) in enumerate(ways.items()):
        try:
            store, _ = filled(folder / f"real-{place}", data.vectors, index, **further)
        except ImportError:
            continue
        searches += ours(store, data, truth, options, name=label)
        store.close()
    for label, make in peers(folder / "real").items():
        try:
            peer = make()
            peer.build(data.vectors, np.arange(len(data.vectors)))
            searches += searches_of(label, peer.search, peer.efforts, data, truth, options)
        except Exception as error:  # as above
            notes.append(f"{label}, sentences: {type(error).__name__}: {str(error)[:200]}")
    return {"rows": len(data.vectors), "dim": vectors.shape[1], "queries": asked, "searches": searches}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "memory", quick="few rows")
    parser.add_argument("--folder", type=Path, help="where stores are made; decides what a sync costs")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--queries", type=int)
    parser.add_argument("--real", type=Path, help="also embeddings of real sentences, kept in this folder")
    parser.add_argument("--real-rows", type=int, default=15_000, help="sentences")
    parser.add_argument("--seen-rows", type=int, help="memories for the last-seen question")
    options = parse(parser, arguments)
    quick = options.quick
    options.rows = options.rows or (3000 if quick else 200_000)
    options.queries = options.queries or (50 if quick else 2000)
    options.seen_rows = options.seen_rows or (2000 if quick else 1_000_000)
    return options


def _bars(values: dict[str, Any]) -> dict[str, Any]:
    def rate(way: str) -> float | None:
        rows = values["inserts"]
        return next((row["rows_s"] for row in rows if row["side"] == "ours" and row["way"] == way), None)

    def best(prefix: str, least: float) -> float | None:
        good = [
            row["queries_s"]
            for row in values["searches"]
            if row["side"].startswith(prefix) and row["recall"] >= least
        ]
        return max(good, default=None)

    filtered = [row for row in values["filtered"] if row["side"].startswith("ours")]
    return {
        "inserts_single_s": rate("one by one"),
        "inserts_grouped_s": rate("5,000 together"),
        "queries_s_at_99": best("ours", 0.99),
        "lsh_queries_s_at_95": best("ours, LSH", 0.95),
        "filtered_least_recall": min((row["recall"] for row in filtered), default=None),
        "filtered_worst_p99_ms": max((row["p99_ms"] for row in filtered), default=None),
        "last_seen_p99_ms": values["last_seen"]["p99_ms"],
        "fresh_ms": values["fresh_ms"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
