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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show, write
from benchmarks.publish.screen import tables
from benchmarks.service.fleet_bulk import load
from benchmarks.service.fleet_questions import Questions, ask_words
from benchmarks.service.fleet_sides import (
    Alone,
    Rows,
    Side,
    Store,
    rows_of,
    server_at,
    server_settings,
    store_at,
)
from memory.persistence.postgres.upkeep import Upkeep

_BATCH, _THREADS, _MONTHS = 1000, 8, 12
_NOTES = (
    "server, who asks and other programs share the cores of this machine",
    "pgvector alone keeps a label, a place and a time beside the vector: no words, no log",
    "of --large the last 20,000 rows are added by add, at the full size, before the graph is made; those"
    " before by several processes at once, as add stores them (loaded_per_s)",
)
#: Rows of a large store that are added by ``add``; efforts at which its graph is walked too.
_LAST, _EFFORTS = 20_000, (100, 200, 400, 800)


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
        options.server = server_settings(options.buffers, options.maintenance, options.wal)
        run.say(f"the server starts: {options.server}")
        with server_at(folder / "server", options.server) as address:
            for size in options.sizes:
                _compared(size, address, folder / str(size), run)
            for size, months in options.large:
                _large(size, months, address, run)
    save(run.values, options)
    show(run.values, tables(run.values, "fleet-added", "fleet-questions"), _NOTES, as_json=options.json)
    return 0


def _compared(size: int, address: str, folder: Path, run: _Run) -> None:
    """All sides with so many rows."""
    options = run.options
    rows = rows_of(0, size + 2 * options.single, options.dim, options.seed)
    questions = Questions.of(size, options.questions, options.dim, options.seed)
    with store_at(folder, options.dim) as side:
        _measured({"folder": side}, rows, questions, run)
    with store_at(schema(address, f"all_{size}"), options.dim) as side:
        database = side.store.database
        assert isinstance(database, Upkeep)
        reader = database.grant(f"reader_{size}", maps=[rows.memories(range(1))[0].map_id])
        assert reader is not None
        with store_at(reader, options.dim, readonly=True) as guarded:
            _measured({"server": side, "server, a reader of one map": guarded}, rows, questions, run)
    with store_at(schema(address, f"months_{size}"), options.dim) as side:
        for month in range(_MONTHS):
            side.begin_month(month)
            _add(side, rows, size * month // _MONTHS, size * (month + 1) // _MONTHS)
        side.settle()
        _ask(questions, run.case(f"server, {_MONTHS} months", size), side, run)
    alone = Alone(address, options.dim, iterative=False)
    iterative = Alone(address, options.dim, iterative=True)
    _measured({"pgvector alone": alone, "pgvector alone, iterative scans": iterative}, rows, questions, run)
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
        questions = Questions.of(size, options.questions, options.dim, options.seed)
        run.say("what is truly most like is known")
        start = time.perf_counter()
        side.settle()
        case["index_s"] = round(time.perf_counter() - start, 2)
        case["bytes_per_row"] = round(side.bytes() / size, 1)
        run.save()
        run.say(f"{name}, {size:,}: the graph took {case['index_s']:,} s")
        _ask(questions, case, side, run)
        case["efforts"] = {}
        for effort in _EFFORTS:
            _ask(questions, case, side, run, effort=effort)
        case["words"] = ask_words(side.store, options.questions)
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


def _measured(sides: Mapping[str, Side], rows: Rows, questions: Questions, run: _Run) -> None:
    """Time adds in batches, the index, the queries of each side of a store, then single adds and adds by
    threads.

    Rows are added to the first side only.
    """
    (name, side), *_ = sides.items()
    size = questions.size
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
        _ask(questions, case, asks, run)
    if isinstance(side, Store):
        cases[0]["words"] = ask_words(side.store, run.options.questions)
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


def _ask(
    questions: Questions, case: dict[str, Any], side: Side, run: _Run, *, effort: int | None = None
) -> None:
    """Times and recall by filter; with an effort only for sides that walk the graph."""
    into = case.setdefault("questions", {})
    if effort is not None:
        into = case["efforts"].setdefault(str(effort), {})
    for name in questions.wanted if effort is None else ("all", "time 10 %"):
        into[name] = questions.ask(side, name, effort=effort)
        run.say(f"{case['side']}, {questions.size:,}, {effort or 'usual'}, {name}: {into[name]}")
        run.save()


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
