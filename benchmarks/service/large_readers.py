"""Readers in processes of their own beside a writer of one store."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.service.fleet_questions import FILTERS, K, quantiles
from benchmarks.service.fleet_sides import Store, rows_of
from memory.index.neighbours import unit_rows

#: Adds per second, and memories of each.
_ADDS_PER_S, _ADDED = 41, 10
#: Seconds that a reader may take to open the store.
_OPEN_S = 1800.0


def read_beside(
    side: Store, place: Path | str, vectors: NDArray[np.float32], *, readers: int, seconds: float
) -> dict[str, Any]:
    """Add memories steadily while processes ask, and remove them afterwards.

    Args:
        side: open for writing.
        place: of the store.
        vectors: questions.
        readers: number of processes.
        seconds: that they ask.

    Returns:
        Times of all readers by filter, queries and adds per second, and ``missed``: the acknowledged adds
        that a later read of another process did not find.
    """
    context = multiprocessing.get_context("spawn")
    acknowledged = context.Value("q", 0)
    links, processes = [], []
    for _ in range(readers):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_read, args=(place, side.store.dim, vectors, seconds, acknowledged, theirs), daemon=True
        )
        process.start()
        links.append(ours)
        processes.append(process)
    try:
        opened = [_receive(link) for link in links]
        generation = side.store.database.generation
        for link in links:
            link.send("go")
        taken, late = _add(side, seconds, acknowledged)
        found = [_receive(link) for link in links]
    finally:
        for process in processes:
            process.terminate()
            process.join()
    added = [id for entry in side.store.log(after=generation) for id in entry.added]
    side.store.forget(added, reason="measured")
    times = {name: [ms for each in found for ms in each["times"][name]] for name in found[0]["times"]}
    return {
        "open_s": round(max(opened), 1),
        "queries_per_s": round(sum(map(len, times.values())) / seconds, 1),
        "adds_per_s": round(len(taken) / seconds, 1),
        "add": quantiles(taken),
        "late_adds": late,
        "missed": sum(each["missed"] for each in found),
        "questions": {name: quantiles(some) for name, some in times.items()},
    }


def _add(side: Store, seconds: float, acknowledged: Any) -> tuple[list[float], int]:
    """Add memories of similar vectors at a steady rate; return milliseconds, and adds begun late."""
    rows = rows_of(0, 1000 * _ADDED, side.store.dim, seed=99)
    start = time.perf_counter()
    taken: list[float] = []
    late = 0
    for number in range(int(_ADDS_PER_S * seconds)):
        due = start + number / _ADDS_PER_S
        wait = due - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        late += wait < -1 / _ADDS_PER_S
        first = number * _ADDED % 9_000
        begun = time.perf_counter()
        ids = side.store.add(rows.memories(range(first, first + _ADDED)))
        taken.append(1e3 * (time.perf_counter() - begun))
        acknowledged.value = ids[-1]
        if time.perf_counter() - start > seconds:
            break
    return taken, late


def _receive(link: Connection) -> Any:
    if not link.poll(_OPEN_S):
        raise TimeoutError("a reader did not answer")
    return link.recv()


def _read(
    place: Path | str,
    dim: int,
    vectors: NDArray[np.float32],
    seconds: float,
    acknowledged: Any,
    link: Connection,
) -> None:
    """Ask by all filters in turn, and look for what was acknowledged before."""
    start = time.perf_counter()
    side = Store(place, dim, readonly=True)
    size = len(side.store)
    wanted = {name: make(size) for name, make in FILTERS.items()}
    units = unit_rows(vectors, dim)
    for filter_ in wanted.values():
        side.like(units[0], filter_, K)
    link.send(time.perf_counter() - start)
    link.recv()
    times: dict[str, list[float]] = {name: [] for name in wanted}
    missed = turn = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, filter_ in wanted.items():
            latest = acknowledged.value
            begun = time.perf_counter()
            side.like(units[turn % len(units)], filter_, K)
            times[name].append(1e3 * (time.perf_counter() - begun))
            if latest and not side.store.database.present([latest], vectors=False):
                missed += 1
        turn += 1
    link.send({"times": times, "missed": missed})
    side.store.close()
