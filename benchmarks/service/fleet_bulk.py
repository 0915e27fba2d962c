"""Many rows into a store on a server at once, by several processes, as `add` stores them.

Writers of a store wait for each other, one operation after the other. Here the operations are logged first,
each of `PORTION` rows; then processes write what they add, by the functions of `add`, side by side. The
tables are the same in the end (a test compares them); nobody may read before.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import pairwise
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from benchmarks.service.fleet_sides import Store, rows_of
from memory.persistence.log.journal import write_entry
from memory.persistence.postgres import images, words
from memory.persistence.postgres.connection import PostgresConnection, configure
from memory.persistence.postgres.upkeep import Upkeep
from memory.persistence.rows import DEFAULT_SLOT, Slot, prepare

#: Rows of an operation, and of a transaction.
PORTION = 5_000
#: Worker processes: one core is left for the parent and the server.
PROCESSES = max(1, (os.cpu_count() or 2) - 1)


def side_by_side() -> ProcessPoolExecutor:
    """Processes of their own, as many as work at once."""
    return ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"))


def load(
    side: Store, address: str, size: int, seed: int, *, months: int, progress: Callable[[int], None]
) -> None:
    """Fill an empty store with rows 0 to ``size``.

    Args:
        side: the store, open.
        address: of it.
        size: rows.
        seed: of them.
        months: parts in which they are.
        progress: called with the rows that are there.
    """
    database = side.store.database
    assert isinstance(database, Upkeep)
    stretches = []
    for month in range(months):
        side.begin_month(month)
        first, end = size * month // months, size * (month + 1) // months
        cuts = [*range(first, end, PORTION), end]
        pairs = list(pairwise(cuts))
        stretches += [(at, pair) for at, pair in enumerate(pairs)]

        def log(connection: Any, pairs: list[tuple[int, int]] = pairs) -> None:
            for start, stop in pairs:
                write_entry(connection, database._counters, "add", {}, added=stop - start)

        database._write(log)
    # All months grow at once: processes then seldom wait for each other at a page.
    stretches.sort()
    counts: Counter[str] = Counter()
    shares = [[pair for _, pair in stretches[at::PROCESSES]] for at in range(PROCESSES)]
    done = 0
    with side_by_side() as pool:
        # In rounds, to report progress.
        rounds = [share[at : at + 20] for at in range(0, len(shares[0]), 20) for share in shares]
        futures = {pool.submit(_fill, address, side.store.dim, seed, part): part for part in rounds if part}
        for future in as_completed(futures):
            counts.update(future.result())
            done += sum(end - first for first, end in futures[future])
            progress(done)
    database._write(lambda connection: words.count(connection, counts, 1))
    with psycopg.connect(address, autocommit=True) as connection:
        # The server would do this a minute later.
        for part in database.parts():
            for table in ("memory", "embedding"):
                connection.execute(f"VACUUM (ANALYZE) {table}_{part.first_id}".encode())


def _fill(address: str, dim: int, seed: int, stretches: list[tuple[int, int]]) -> Counter[str]:
    """Write some stretches; returns how many have each word."""
    counts: Counter[str] = Counter()
    slots = {DEFAULT_SLOT: Slot(0, dim)}
    with ConnectionPool(
        address, min_size=1, max_size=1, configure=configure, kwargs={"autocommit": True}
    ) as pool:
        # A separate lock: nothing waits for it.
        connection = PostgresConnection(pool, os.getpid())
        for first, end in stretches:
            rows = rows_of(first, end, dim, seed)
            prepared = prepare(rows.memories(range(first, end)), slots)
            connection.execute("BEGIN IMMEDIATE")
            images.copy_prepared(connection, slots, prepared, first + 1)
            connection.execute("COMMIT")
            counts.update(
                words.counts_of(zip(prepared.scalars["label"], prepared.texts["caption"], strict=True))
            )
    return counts
