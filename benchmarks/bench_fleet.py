"""A store on a PostgreSQL server against one in a folder and pgvector alone: adds, questions, room, recall.

    python benchmarks/bench_fleet.py                          # 20,000 and 100,000 rows
    python benchmarks/bench_fleet.py --large 1000000          # a server of so many rows too

The server is that of ``recall up`` on this machine: it shares the cores with who asks. Every side gets the
same rows and the same questions in one run. Adds return when they are durable. Recall is the share of the
ten that are truly most like, of those that pass the filter. ``months``: the same rows in 12 parts;
``reader``: asked by a role that row-level security holds for.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.fleet_sides import LENGTH_M, STEP_NS, Alone, Asked, Rows, Side, Store, rows_of, store_at
from benchmarks.options import asked, common_parser, configure, parse
from benchmarks.results import number, result, save, show, table
from memory import MemoryStore, Query
from memory.persistence.postgres import local
from memory.persistence.postgres.upkeep import Upkeep

_BATCH, _THREADS, _MONTHS, _K = 1000, 8, 12, 10
#: Filters by name, of a street that long and rows of that time.
_FILTERS: dict[str, Callable[[int], Asked]] = {
    "all": lambda count: Asked(),
    "label 2 %": lambda count: Asked(label="label3"),
    "label 0.1 %": lambda count: Asked(label="rare"),
    "place 1 %": lambda count: Asked(x=(0.5 * LENGTH_M, 0.51 * LENGTH_M)),
    "time 10 %": lambda count: Asked(time_ns=(int(0.7 * count) * STEP_NS, int(0.8 * count) * STEP_NS)),
}


_NOTES = (
    "server, who asks and other programs share the cores of this machine",
    "pgvector alone keeps a label, a place and a time beside the vector: no words, no log",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    configure(torch.device("cpu"), options.threads)
    values: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="fleet-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Root has another user run the server.
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        server = folder / "server"
        server.mkdir()
        memory = {"shared_buffers": options.buffers, "maintenance_work_mem": options.buffers}
        address = local.start(server, settings=memory)
        cases: list[dict[str, Any]] = []
        try:
            for size in [*options.sizes, *([options.large] if options.large else [])]:
                if size in options.sizes:
                    cases += _compared(size, address, folder / str(size), options)
                else:
                    cases += _large(size, address, options)
                # After each: a million rows take long, and what was measured before is not lost with them.
                settings = asked(options, "folder")
                values = result("fleet", torch.device("cpu"), settings, cases=cases, notes=list(_NOTES))
                save(values, options)
        finally:
            local.stop(server)
    show(values, _tables(values), _NOTES, as_json=options.json)
    return 0


def _compared(size: int, address: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All sides with so many rows."""
    rows = rows_of(size + 2 * options.single, options.dim, options.seed)
    cases = []
    with store_at(folder, options.dim) as side:
        cases += _cases({"folder": side}, rows, size, options)
    with store_at(schema(address, f"all_{size}"), options.dim) as side:
        database = side.store.database
        assert isinstance(database, Upkeep)
        reader = database.grant(f"reader_{size}", maps=[rows.memories(slice(1))[0].map_id])
        assert reader is not None
        with store_at(reader, options.dim, readonly=True) as guarded:
            cases += _cases({"server": side, "server, a reader of one map": guarded}, rows, size, options)
    with store_at(schema(address, f"months_{size}"), options.dim) as side:
        for month in range(_MONTHS):
            side.begin_month(month)
            first, last = size * month // _MONTHS, size * (month + 1) // _MONTHS
            for start in range(first, last, _BATCH):
                side.add(rows, slice(start, min(start + _BATCH, last)))
        side.settle()
        cases.append(_questions(f"server, {_MONTHS} months", side, rows, size, options))
    alone = Alone(address, options.dim, iterative=False)
    iterative = Alone(address, options.dim, iterative=True)
    sides = {"pgvector alone": alone, "pgvector alone, iterative scans": iterative}
    cases += _cases(sides, rows, size, options)
    alone.close()
    iterative.close()
    return cases


def _large(size: int, address: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A server of so many rows."""
    rows = rows_of(size + 2 * options.single, options.dim, options.seed)
    with store_at(schema(address, f"large_{size}"), options.dim) as side:
        return _cases({"server": side}, rows, size, options)


def schema(address: str, name: str) -> str:
    """The address of a store of its own in a database."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{address}?options=-csearch_path%3D{name}%2Cpublic"


def _cases(
    sides: Mapping[str, Side], rows: Rows, size: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Adds in batches, the index, the questions of each side of a store, then adds one by one and by threads.

    What is added is the first side's.
    """
    (name, side), *_ = sides.items()
    print(f"{name}, {size:,} rows", file=sys.stderr, flush=True)
    start = time.perf_counter()
    for first in range(0, size, _BATCH):
        side.add(rows, slice(first, min(first + _BATCH, size)))
    together = size / (time.perf_counter() - start)
    start = time.perf_counter()
    side.settle()
    settle_s = time.perf_counter() - start
    cases = [_questions(each, asks, rows, size, options) for each, asks in sides.items()]
    if isinstance(side, Store):
        cases[0]["words"] = _words(side.store, options)
    room = side.bytes() / size
    start = time.perf_counter()
    for row in range(size, size + options.single):
        side.add(rows, slice(row, row + 1))
    cases[0] |= {
        "added_per_s": round(together, 1),
        "added_singly_per_s": round(options.single / (time.perf_counter() - start), 1),
        "index_s": round(settle_s, 2),
        "bytes_per_row": round(room, 1),
    }
    if isinstance(side, Store):
        by_threads = _by_threads(side, rows, size + options.single, options)
        cases[0] |= {"added_by_threads_per_s": round(by_threads, 1)}
    return cases


def _by_threads(side: Store, rows: Rows, first: int, options: argparse.Namespace) -> float:
    """Memories a second that threads add one by one; they share commits."""
    each: int = options.single // _THREADS

    def work(thread: int) -> None:
        for row in range(first + thread * each, first + (thread + 1) * each):
            side.add(rows, slice(row, row + 1))

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(_THREADS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _THREADS * each / (time.perf_counter() - start)


def _words(store: MemoryStore, options: argparse.Namespace) -> dict[str, float]:
    times = []
    for number_ in range(options.questions + 1):
        start = time.perf_counter()
        store.query(Query(text=f"word{37 * number_ % 997}", k=_K))
        times.append(1e3 * (time.perf_counter() - start))
    return _quantiles(times[1:])


def _questions(name: str, side: Side, rows: Rows, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Times and recall by filter."""
    known = Rows(rows.vectors[:size], rows.labels[:size], rows.x[:size], rows.time_ns[:size])
    random = np.random.default_rng(options.seed + 1)
    questions = known.vectors[random.integers(0, size, options.questions)]
    questions = questions + 0.2 * random.normal(size=questions.shape).astype(np.float32)
    found = {}
    for filter_, make in _FILTERS.items():
        wanted = make(size)
        truth = nearest(known, wanted.passes(known), questions)
        side.like(questions[0], wanted, _K)
        times, hits, answered = [], 0, 0
        for question, best in zip(questions, truth, strict=True):
            start = time.perf_counter()
            answer = side.like(question, wanted, _K)
            times.append(1e3 * (time.perf_counter() - start))
            hits += len(set(answer) & set(best.tolist()))
            answered += len(answer)
        found[filter_] = {
            **_quantiles(times),
            "recall": round(hits / truth.size, 4),
            "answered": round(answered / truth.size, 4),
        }
    return {"side": name, "rows": size, "questions": found}


def nearest(rows: Rows, among: NDArray[np.int64], questions: NDArray[np.float32]) -> NDArray[np.int64]:
    """(questions, k) rows that are truly most like, of vectors as they are stored: halves of unit length."""
    vectors = rows.vectors[among]
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = questions @ vectors.T
    best: NDArray[np.int64] = among[np.argsort(-scores, axis=1, kind="stable")[:, :_K]]
    return best


def _quantiles(times_ms: Sequence[float]) -> dict[str, float]:
    middle, late = np.percentile(times_ms, [50, 99])
    return {"p50_ms": round(float(middle), 3), "p99_ms": round(float(late), 3)}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "fleet", quick="2,000 rows and few questions")
    parser.add_argument("--folder", type=Path, help="where stores are made; decides what a sync costs")
    parser.add_argument("--sizes", nargs="+", type=int, help="rows (20,000 and 100,000)")
    parser.add_argument("--large", type=int, default=0, help="rows of a server that is measured alone")
    parser.add_argument("--dim", type=int, default=128, help="numbers of a vector")
    parser.add_argument("--questions", type=int, help="of each kind (100)")
    parser.add_argument("--single", type=int, help="memories that are added one by one (400)")
    parser.add_argument("--buffers", default="1GB", help="shared_buffers and maintenance_work_mem")
    options = parse(parser, arguments)
    options.sizes = options.sizes or ([2_000] if options.quick else [20_000, 100_000])
    options.questions = options.questions or (10 if options.quick else 100)
    options.single = options.single or (40 if options.quick else 400)
    if min(*options.sizes, options.dim, options.questions) < 1 or options.single < _THREADS:
        parser.error(f"all sizes must be at least 1, --single at least {_THREADS}")
    return options


def _tables(values: dict[str, Any]) -> list[Any]:
    cases = values["cases"]
    added = ("added_per_s", "added_singly_per_s", "added_by_threads_per_s", "index_s", "bytes_per_row")
    return [
        table(
            "Added, a second",
            ["side", "rows", *added],
            [
                [case["side"], number(case["rows"], 0), *(number(case.get(name), 1) for name in added)]
                for case in cases
                if "added_per_s" in case
            ],
        ),
        table(
            "Like a vector",
            ["side", "rows", "among", "p50, ms", "p99, ms", "recall", "answered"],
            [
                [
                    case["side"], number(case["rows"], 0), name, number(each["p50_ms"], 2),
                    number(each["p99_ms"], 2), number(each["recall"], 3), number(each["answered"], 3),
                ]
                for case in cases
                for name, each in case["questions"].items()
            ],
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
