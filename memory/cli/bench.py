"""``recall bench``: time inserts and queries on a temporary store."""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from memory.cli.console import UsageError, add_command, output, print_json, progress, say
from memory.query import Filter, Query
from memory.store import MemoryStore
from memory.types import Memory
from sparse_core.common.machine import processor_name
from sparse_core.common.table import Table

_GROUP = 1000
_SINGLE_S = 1.0
_QUERIES = 200
_K = 10
_LABELS = ("Car", "Pedestrian", "Cyclist", "door", "chair", "shelf")
_START_NS = 1_767_225_600_000_000_000
_SIDE_M = 200.0
_NOTE = (
    "One short run with random clustered vectors. Use it to check this disk and processor, not to compare"
    " systems."
)


@dataclass(frozen=True)
class Timing:
    """Times of one kind of work.

    Attributes:
        name: of the work.
        count: memories added or queries run.
        per_s: ``count`` divided by the total time in seconds.
        median_ms, p99_ms: times of one call.
        recall: share of the exact answers that were found, or ``None``.
    """

    name: str
    count: int
    per_s: float
    median_ms: float
    p99_ms: float
    recall: float | None = None


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "bench", run, store=False)
    parser.add_argument("--count", type=int, default=20_000, help="number of memories (default: 20000)")
    parser.add_argument("--dim", type=int, default=256, help="vector length (default: 256)")
    parser.add_argument(
        "--folder", type=Path, help="folder on the disk to test (default: the temporary folder)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of the data (default: 0)")


def run(options: argparse.Namespace) -> int:
    """Measure and print the times."""
    if options.count < _GROUP or options.dim < 2:
        raise UsageError(f"--count must be at least {_GROUP} and --dim at least 2")
    with tempfile.TemporaryDirectory(prefix="recall-bench-", dir=options.folder) as folder:
        machine = describe_machine(Path(folder))
        timings = measure(Path(folder), count=options.count, dim=options.dim, seed=options.seed)
    settings = {"memories": options.count, "dim": options.dim, "seed": options.seed}
    if options.json:
        print_json({"settings": settings, "machine": machine, "timings": [asdict(one) for one in timings]})
        return 0
    columns = {
        "work": "name",
        "count": "count",
        "per second": "per_s:,.0f",
        "median ms": "median_ms:.3f",
        "p99 ms": "p99_ms:.3f",
        f"recall@{_K}": "recall:.3f",
    }
    title = f"{options.count:,} memories, vectors of {options.dim} numbers"
    output().print(Table.of(timings, columns, title=title))
    say("; ".join(f"{name}: {value}" for name, value in machine.items()))
    say(_NOTE)
    return 0


def measure(folder: Path, *, count: int, dim: int, seed: int) -> list[Timing]:
    """Fill a store in an empty folder and query it."""
    rng = np.random.default_rng(seed)
    vectors = _clustered(rng, count, dim)
    memories = [_memory(rng, row, vectors[row]) for row in range(count)]
    questions = vectors[rng.integers(0, count, _QUERIES)] + rng.normal(0.0, 0.02, (_QUERIES, dim))
    questions = (questions / np.linalg.norm(questions, axis=1, keepdims=True)).astype(np.float32)
    with MemoryStore.open(folder, dim=dim) as store, progress("measuring") as report:
        single = _add_one_by_one(store, memories)
        grouped = _add_in_groups(store, memories[single.count :], lambda done: report(done, count))
        return [single, grouped, *_ask(store, memories, vectors, questions)]


def _clustered(rng: np.random.Generator, count: int, dim: int) -> NDArray[np.float32]:
    """Return unit vectors around centres, ten per centre."""
    centres = rng.normal(size=(max(count // 10, 1), dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    vectors = centres[rng.integers(0, len(centres), count)] + rng.normal(0.0, 0.05, (count, dim))
    unit: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _memory(rng: np.random.Generator, row: int, vector: NDArray[np.float32]) -> Memory:
    x, y = rng.uniform(0.0, _SIDE_M, 2)
    label = _LABELS[row % len(_LABELS)]
    moment = _START_NS + row * 100_000_000
    caption = f"{label} number {row} in aisle {row % 97}"
    return Memory(time_ns=moment, position=(x, y, 0.0), label=label, caption=caption, embedding=vector)


def _add_one_by_one(store: MemoryStore, memories: list[Memory]) -> Timing:
    """Add single memories for about a second, at most half of them."""
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < len(memories) // 2 and time.perf_counter() - started < _SINGLE_S:
        before = time.perf_counter()
        store.add([memories[len(times)]])
        times.append(time.perf_counter() - before)
    return _timing("durable insert, single", times)


def _add_in_groups(store: MemoryStore, memories: list[Memory], report: Callable[[int], None]) -> Timing:
    times = []
    for start in range(0, len(memories), _GROUP):
        before = time.perf_counter()
        store.add(memories[start : start + _GROUP])
        times.append(time.perf_counter() - before)
        report(start)
    return _timing(f"durable insert, batches of {_GROUP:,}", times, things=len(memories))


def _ask(
    store: MemoryStore, memories: list[Memory], vectors: NDArray[np.float32], questions: NDArray[np.float32]
) -> list[Timing]:
    exact = np.argsort(-(questions @ vectors.T), axis=1, kind="stable")[:, :_K]
    store.query(Query(embedding=questions[0], k=_K))  # Builds the index.
    last_ns = memories[-1].time_ns
    found: list[list[int]] = []

    def similar(row: int) -> None:
        hits = store.query(Query(embedding=questions[row], k=_K))
        found.append([int(hit.memory.id or 0) - 1 for hit in hits])

    def near(row: int) -> None:
        place = memories[row].position
        window = (last_ns // 2 + _START_NS // 2, last_ns)
        store.query(Query(embedding=questions[row], near=place, radius_m=20.0, between_ns=window, k=_K))

    timings = [_each("query: similar", similar)]
    hits = [len(set(row) & set(truth)) for row, truth in zip(found, exact.tolist(), strict=True)]
    timings[0] = Timing(**{**asdict(timings[0]), "recall": sum(hits) / exact.size})
    return [
        *timings,
        _each("query: similar, within 20 m and half of the time range", near),
        _each("query: words", lambda row: store.query(Query(text=f"door aisle {row % 97}", k=_K))),
        _each("last seen, by label", lambda row: store.find(Filter(labels=[_LABELS[row % 6]]), limit=1)),
    ]


def _each(name: str, ask: Callable[[int], object]) -> Timing:
    times = []
    for row in range(_QUERIES):
        before = time.perf_counter()
        ask(row)
        times.append(time.perf_counter() - before)
    return _timing(name, times)


def _timing(name: str, times: list[float], things: int | None = None) -> Timing:
    things = len(times) if things is None else things
    median, high = (float(value) * 1e3 for value in np.quantile(times, [0.5, 0.99]))
    return Timing(name, things, things / sum(times), median, high)


def describe_machine(folder: Path) -> dict[str, str]:
    """Return the processor, file system and versions as texts."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": f"{processor_name()}, {cores} cores, load {os.getloadavg()[0]:.1f}",
        "file system": _file_system(folder),
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
        "SQLite": sqlite3.sqlite_version,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds a folder."""
    best, kind = "", "unknown"
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return kind
    place = str(folder.resolve())
    for line in lines:
        words = line.split()
        mounted = words[1].rstrip("/")
        if (place == mounted or place.startswith(f"{mounted}/")) and len(mounted) >= len(best):
            best, kind = mounted, words[2]
    return f"{kind} (in RAM, so syncing takes no time)" if kind == "tmpfs" else kind
