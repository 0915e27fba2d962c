"""A store on a PostgreSQL server against one in a folder and pgvector alone: adds, questions, room, recall.

    python -m benchmarks.service.fleet                              # 20,000 and 100,000 rows
    python -m benchmarks.service.fleet --large 1000000 10000000/12  # servers of so many rows, in parts, too

``recall up`` runs the server on this machine, so it shares the cores with the clients. Every side gets the
same rows and the same questions in one run. Adds return when they are durable. Recall is the share of the ten
most similar rows among those that pass the filter. ``months``: the same rows in 12 parts; ``reader``: asked
by a role that row-level security holds for. Several processes write all rows of ``--large`` but the last
20,000 (`fleet_bulk`). ``add`` writes the last 20,000, which are timed. Results so far are in ``--out`` at any
moment.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show, write
from benchmarks.publish.screen import tables
from benchmarks.service.fleet_bulk import load, side_by_side
from benchmarks.service.fleet_sides import (
    BLOCK,
    LENGTH_M,
    STEP_NS,
    Alone,
    Asked,
    Rows,
    Side,
    Store,
    rows_of,
    store_at,
)
from memory import MemoryStore, Query
from memory.persistence.postgres import nearest
from memory.persistence.postgres import server as local
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
    "of --large the last 20,000 rows are added by add, at the full size, before the graph is made; those"
    " before by several processes at once, as add stores them (loaded_per_s)",
)
#: Rows of a large store that are added by ``add``; efforts at which its graph is walked too.
_LAST, _EFFORTS = 20_000, (100, 200, 400, 800)
#: Rows that are compared with all questions at once; so many stretches of them are one process's work.
_STRETCH, _SIDE_BY_SIDE = 10 * BLOCK, 10
#: Seconds after which a filter has been asked enough.
_LONGEST_S = 60.0


class _Run:
    """Results so far.

    Args:
        options: of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.values: dict[str, Any] = {}
        self.cases: list[dict[str, Any]] = []
        self._start = time.perf_counter()

    def say(self, said: str) -> None:
        """Print a line of progress."""
        print(f"[{time.perf_counter() - self._start:6.0f} s] {said}", file=sys.stderr, flush=True)

    def save(self) -> None:
        """Write it: a large store takes long, and what was measured before is not lost with it."""
        settings = asked(self.options, "folder")
        notes = list(_NOTES)
        self.values = result("fleet", torch.device("cpu"), settings, cases=self.cases, notes=notes)
        write(self.values, self.options.out)

    def case(self, side: str, rows: int) -> dict[str, Any]:
        """Another case."""
        self.cases.append({"side": side, "rows": rows})
        return self.cases[-1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    configure(torch.device("cpu"), options.threads)
    run = _Run(options)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="fleet-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Root has another user run the server.
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        server = folder / "server"
        server.mkdir()
        options.server = _settings(options)
        address = local.start(server, settings=options.server)
        run.say(f"the server is up: {options.server}")
        try:
            for size in options.sizes:
                _compared(size, address, folder / str(size), run)
            for size, months in options.large:
                _large(size, months, address, run)
        finally:
            local.stop(server)
    save(run.values, options)
    show(run.values, tables(run.values, "fleet-added", "fleet-questions"), _NOTES, as_json=options.json)
    return 0


def _settings(options: argparse.Namespace) -> dict[str, str]:
    """Settings of the server: memory, and every core for building graphs."""
    cores = os.cpu_count() or 2
    settings = {
        "shared_buffers": options.buffers,
        "maintenance_work_mem": options.maintenance or options.buffers,
        "max_parallel_maintenance_workers": str(max(2, cores - 1)),
        "max_parallel_workers": str(max(8, cores)),
        "max_worker_processes": str(max(8, cores + 4)),
        "max_wal_size": options.wal,
    }
    # Processes that make a graph share that much memory: containers often have 64 MB of this kind.
    shared = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    wanted = _bytes(settings["maintenance_work_mem"])
    if shared is None or shared.f_bavail * shared.f_frsize < 1.1 * wanted:
        settings["dynamic_shared_memory_type"] = "mmap"
    return settings


def _bytes(room: str) -> int:
    """``64MB`` or ``2GB`` as a number."""
    return int(room[:-2]) * {"MB": 2**20, "GB": 2**30}[room[-2:]]


def _compared(size: int, address: str, folder: Path, run: _Run) -> None:
    """All sides with so many rows."""
    options = run.options
    rows = rows_of(0, size + 2 * options.single, options.dim, options.seed)
    asking = _Asking(size, options)
    with store_at(folder, options.dim) as side:
        _measured({"folder": side}, rows, asking, run)
    with store_at(schema(address, f"all_{size}"), options.dim) as side:
        database = side.store.database
        assert isinstance(database, Upkeep)
        reader = database.grant(f"reader_{size}", maps=[rows.memories(range(1))[0].map_id])
        assert reader is not None
        with store_at(reader, options.dim, readonly=True) as guarded:
            _measured({"server": side, "server, a reader of one map": guarded}, rows, asking, run)
    with store_at(schema(address, f"months_{size}"), options.dim) as side:
        for month in range(_MONTHS):
            side.begin_month(month)
            _add(side, rows, size * month // _MONTHS, size * (month + 1) // _MONTHS)
        side.settle()
        asking.ask(run.case(f"server, {_MONTHS} months", size), side, run)
    alone = Alone(address, options.dim, iterative=False)
    iterative = Alone(address, options.dim, iterative=True)
    _measured({"pgvector alone": alone, "pgvector alone, iterative scans": iterative}, rows, asking, run)
    alone.close()
    iterative.close()


def _large(size: int, months: int, address: str, run: _Run) -> None:
    """A server of so many rows, in so many parts."""
    options = run.options
    place = schema(address, f"large_{size}_{months}")
    name = "server" if months == 1 else f"server, {months} months"
    case = run.case(name, size)
    with store_at(place, options.dim) as side:
        last = min(_LAST, size // 10)
        told = [0]

        def progress(done: int) -> None:
            if 10 * done // size > told[0]:
                told[0] = 10 * done // size
                run.say(f"{name}, {size:,}: {done:,} rows are there")

        start = time.perf_counter()
        load(side, place, size - last, options.seed, months=months, progress=progress)
        case["loaded_per_s"] = round((size - last) / (time.perf_counter() - start), 1)
        run.save()
        rows = rows_of(size - last, size + 2 * options.single, options.dim, options.seed)
        start = time.perf_counter()
        _add(side, rows, size - last, size)
        case["added_per_s"] = round(last / (time.perf_counter() - start), 1)
        run.say(f"{name}, {size:,}: loaded {case['loaded_per_s']:,}, added {case['added_per_s']:,} a second")
        asking = _Asking(size, options)
        run.say("what is truly most like is known")
        start = time.perf_counter()
        side.settle()
        case["index_s"] = round(time.perf_counter() - start, 2)
        case["bytes_per_row"] = round(side.bytes() / size, 1)
        run.save()
        run.say(f"{name}, {size:,}: the graph took {case['index_s']:,} s")
        asking.ask(case, side, run)
        case["efforts"] = {}
        for effort in _EFFORTS:
            asking.ask(case, side, run, effort=effort)
        case["words"] = _words(side.store, options)
        _one_by_one(case, side, rows, size, run)


def schema(address: str, name: str) -> str:
    """The address of a separate store in a database."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{address}?options=-csearch_path%3D{name}%2Cpublic"


def _add(side: Side, rows: Rows, first: int, end: int) -> None:
    """Rows of these numbers, in batches."""
    for start in range(first, end, _BATCH):
        side.add(rows, range(start, min(start + _BATCH, end)))


def _measured(sides: Mapping[str, Side], rows: Rows, asking: _Asking, run: _Run) -> None:
    """Time adds in batches, the index, the queries of each side of a store, then single adds and adds by
    threads.

    Rows are added to the first side only.
    """
    (name, side), *_ = sides.items()
    size = asking.size
    run.say(f"{name}, {size:,} rows")
    cases = [run.case(each, size) for each in sides]
    start = time.perf_counter()
    _add(side, rows, 0, size)
    cases[0]["added_per_s"] = round(size / (time.perf_counter() - start), 1)
    start = time.perf_counter()
    side.settle()
    cases[0]["index_s"] = round(time.perf_counter() - start, 2)
    cases[0]["bytes_per_row"] = round(side.bytes() / size, 1)
    for case, asks in zip(cases, sides.values(), strict=True):
        asking.ask(case, asks, run)
    if isinstance(side, Store):
        cases[0]["words"] = _words(side.store, run.options)
    _one_by_one(cases[0], side, rows, size, run)


def _one_by_one(case: dict[str, Any], side: Side, rows: Rows, size: int, run: _Run) -> None:
    """Adds of one memory each, also by threads."""
    single: int = run.options.single
    start = time.perf_counter()
    for row in range(size, size + single):
        side.add(rows, range(row, row + 1))
    case["added_singly_per_s"] = round(single / (time.perf_counter() - start), 1)
    if isinstance(side, Store):
        by_threads = _by_threads(side, rows, size + single, run.options)
        case["added_by_threads_per_s"] = round(by_threads, 1)
    run.save()


def _by_threads(side: Store, rows: Rows, first: int, options: argparse.Namespace) -> float:
    """Memories per second that threads add singly; they share commits."""
    each: int = options.single // _THREADS

    def work(thread: int) -> None:
        for row in range(first + thread * each, first + (thread + 1) * each):
            side.add(rows, range(row, row + 1))

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


class _Asking:
    """Questions of a size, by filter, and what they should find.

    Args:
        size: rows.
        options: of the command line.
    """

    def __init__(self, size: int, options: argparse.Namespace) -> None:
        self.size = size
        random = np.random.default_rng(options.seed + 1)
        like = [
            rows_of(row, row + 1, options.dim, options.seed).vectors[0]
            for row in random.integers(0, size, options.questions).tolist()
        ]
        noise = random.normal(size=(len(like), options.dim)).astype(np.float32)
        self.questions = np.stack(like) + 0.2 * noise
        self.wanted = {name: make(size) for name, make in _FILTERS.items()}
        self.truth = truth(size, options.dim, options.seed, self.questions, self.wanted)

    def ask(self, case: dict[str, Any], side: Side, run: _Run, *, effort: int | None = None) -> None:
        """Times and recall by filter; with an effort only for sides that walk the graph."""
        usual = nearest.effort
        into = case.setdefault("questions", {})
        if effort is not None:
            nearest.effort = lambda rows, k, aim: effort
            into = case["efforts"].setdefault(str(effort), {})
        for filter_ in self.wanted if effort is None else ("all", "time 10 %"):
            into[filter_] = self._asked(side, self.wanted[filter_], self.truth[filter_])
            run.say(f"{case['side']}, {self.size:,}, {effort or 'usual'}, {filter_}: {into[filter_]}")
            run.save()
        nearest.effort = usual

    def _asked(self, side: Side, wanted: Asked, truth: NDArray[np.int64]) -> dict[str, Any]:
        side.like(self.questions[0], wanted, _K)
        times: list[float] = []
        hits, answered, begun = 0, 0, time.perf_counter()
        for question, best in zip(self.questions, truth, strict=True):
            start = time.perf_counter()
            answer = side.like(question, wanted, _K)
            times.append(1e3 * (time.perf_counter() - start))
            hits += len(set(answer) & set(best.tolist()))
            answered += len(answer)
            if time.perf_counter() - begun > _LONGEST_S:
                break
        expected = len(times) * truth.shape[1]
        found: dict[str, Any] = {
            **_quantiles(times),
            "recall": round(hits / expected, 4),
            "answered": round(answered / expected, 4),
        }
        return found if len(times) == len(self.questions) else {**found, "asked": len(times)}


def truth(
    size: int, dim: int, seed: int, questions: NDArray[np.float32], wanted: Mapping[str, Asked]
) -> dict[str, NDArray[np.int64]]:
    """(questions, k) rows that are truly most like, by filter."""
    stretches = [(first, min(first + _STRETCH, size)) for first in range(0, size, _STRETCH)]
    best_of = partial(_best_of, dim=dim, seed=seed, questions=questions, wanted=wanted)
    if len(stretches) > _SIDE_BY_SIDE:
        with side_by_side() as pool:
            found = list(pool.map(best_of, stretches))
    else:
        found = [best_of(stretch) for stretch in stretches]
    best = {}
    for name in wanted:
        scores = np.hstack([each[name][0] for each in found])
        ids = np.hstack([each[name][1] for each in found])
        best[name] = np.take_along_axis(ids, _highest(scores), 1)
    return best


def _best_of(
    stretch: tuple[int, int],
    dim: int,
    seed: int,
    questions: NDArray[np.float32],
    wanted: Mapping[str, Asked],
) -> dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Scores and numbers of the rows of a stretch that are most like, by filter."""
    first, end = stretch
    rows = rows_of(first, end, dim, seed)
    scores: NDArray[np.float32] = questions @ as_stored(rows.vectors).T
    best = {}
    for name, filter_ in wanted.items():
        among = filter_.passes(rows)
        order = _highest(scores[:, among])
        best[name] = np.take_along_axis(scores[:, among], order, 1), among[order] + first
    return best


def _highest(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """(questions, at most k) columns of the highest scores, the first of equal ones first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :_K]


def as_stored(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Halves of unit length, as numbers of unit length."""
    halves = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    numbers: NDArray[np.float32] = halves.astype(np.float32)
    numbers /= np.linalg.norm(numbers, axis=1, keepdims=True)
    return numbers


def _quantiles(times_ms: Sequence[float]) -> dict[str, float]:
    middle, late = np.percentile(times_ms, [50, 99])
    return {"p50_ms": round(float(middle), 3), "p99_ms": round(float(late), 3)}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "fleet", quick="2,000 rows and few questions")
    parser.add_argument("--folder", type=Path, help="where stores are made; decides what a sync costs")
    parser.add_argument("--sizes", nargs="*", type=int, help="rows of all sides (20,000 and 100,000)")
    parser.add_argument(
        "--large", nargs="*", type=_parted, default=[], metavar="ROWS[/PARTS]", help="of servers alone"
    )
    parser.add_argument("--dim", type=int, default=128, help="numbers of a vector")
    parser.add_argument("--questions", type=int, help="of each kind (100)")
    parser.add_argument("--single", type=int, help="memories that are added singly (400)")
    parser.add_argument("--buffers", default="1GB", help="shared_buffers, and maintenance_work_mem")
    parser.add_argument("--maintenance", help="maintenance_work_mem, where it is another")
    parser.add_argument("--wal", default="4GB", help="max_wal_size")
    options = parse(parser, arguments)
    if options.sizes is None:
        options.sizes = [2_000] if options.quick else [20_000, 100_000]
    options.questions = options.questions or (10 if options.quick else 100)
    options.single = options.single or (40 if options.quick else 400)
    numbers = (
        options.dim,
        options.questions,
        *options.sizes,
        *(least for each in options.large for least in each),
    )
    if min(numbers) < 1 or options.single < _THREADS:
        parser.error(f"all sizes must be at least 1, --single at least {_THREADS}")
    return options


def _parted(word: str) -> tuple[int, int]:
    """Rows and parts of ``ROWS`` or ``ROWS/PARTS``."""
    rows, _, parts = word.partition("/")
    return int(rows), int(parts or 1)


if __name__ == "__main__":
    raise SystemExit(main())
