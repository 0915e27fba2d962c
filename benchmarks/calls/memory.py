"""Calls of the memory: commands in fresh processes, the service, vector queries, inserts."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calls.rows import rated, timed
from benchmarks.lib.environment import ROOT
from benchmarks.memory.measures import filled, memories
from benchmarks.service.process import CLIENT, Service
from memory.index import FlatIndex, LSHIndex, calibrate
from memory.index.evaluation import clustered
from memory.query import Query
from memory.store import MemoryStore

_DIM = 256
_NS = 10**9


def commands(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time ``--help`` of both programs and a query of a store, each in a fresh process."""
    count = 500 if options.quick else 10_000
    store, _ = filled(folder / "asked", clustered(count, 1, dim=_DIM, seed=options.seed).vectors, "lsh")
    store.close()
    programs = {
        "recall --help": (["memory.cli", "--help"], 300.0),
        "perceive --help": (["perception.cli", "--help"], 300.0),
        f"recall query --like, {count:,} memories": (
            ["memory.cli", "query", str(folder / "asked"), "--like", "7"],
            1000.0,
        ),
    }
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(options.rounds):
        for name, (words, _aim) in programs.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            taken[name].append((time.perf_counter() - start) * 1e3)
    return [timed(name, taken[name], aim) for name, (_, aim) in programs.items()]


def vectors(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One query at a time over 20,000 x 64 numbers, alone and with a program that spins on a core."""
    rows = 2_000 if options.quick else 20_000
    data = clustered(rows, 50, dim=64, seed=options.seed)
    index = FlatIndex(64)
    index.add(data.vectors, np.arange(rows))
    found: dict[str, list[float]] = {"alone": [], "one core taken": []}
    for round_ in range(options.rounds):
        for state, samples in found.items():
            other = _spinning() if state != "alone" else None
            try:
                for query in data.queries[:10] if round_ else data.queries[:1]:
                    start = time.perf_counter()
                    index.search(query[None], 10)
                    samples.append((time.perf_counter() - start) * 1e3)
            finally:
                if other is not None:
                    other.kill()
                    other.wait()
    return [
        timed(f"vector query, {rows:,} x 64, {state}", samples[1:] or samples, 2.0)
        for state, samples in found.items()
    ]


def _spinning() -> subprocess.Popen[bytes]:
    """A program that takes a core."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    time.sleep(0.1)
    return other


def store(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Durable inserts one at a time, LSH at .95, and the worst of filtered queries."""
    rows, singles = (2_000, 50) if options.quick else (200_000, 2_000)
    data = clustered(rows, 200, dim=_DIM, seed=options.seed)
    with MemoryStore.open(folder / "inserts", dim=_DIM) as opened:
        each = memories(data.vectors[:singles])
        start = time.perf_counter()
        for one in each:
            opened.add([one])
        inserted = rated("durable insert, one at a time", singles / (time.perf_counter() - start), 4000.0)
    index = LSHIndex(_DIM, expected=rows)
    index.add(data.vectors, np.arange(rows))
    calibrate(index)
    index.search(data.queries, 10, aim=0.95)
    start = time.perf_counter()
    index.search(data.queries, 10, aim=0.95)
    searched = rated(
        f"LSH at .95, 200 queries together, {rows:,} x {_DIM}", 200 / (time.perf_counter() - start), 5000.0
    )
    with filled(folder / "filtered", data.vectors, "lsh")[0] as opened:
        worst: list[float] = []
        for share in (0.001, 0.01, 0.1, 0.5):
            within = (0, max(10, round(share * rows)) * _NS)
            times = []
            for query in data.queries[: 20 if options.quick else 200]:
                start = time.perf_counter()
                opened.query(Query(embedding=query, between_ns=within, k=10))
                times.append((time.perf_counter() - start) * 1e3)
            if not worst or np.percentile(times, 99) > np.percentile(worst, 99):
                worst = times
    filtered = timed(f"filtered query, {rows:,} memories, worst of four windows", worst)
    filtered |= {"aim": 5.0, "aim_of": "p99", "met": filtered["p99"] <= 5.0}
    return [inserted, searched, filtered]


def service(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Queries per second of clients on the cores of ``recall serve``, alone and during adds of ten."""
    rows = 2_000 if options.quick else 200_000
    seconds = 2.0 if options.quick else 20.0
    data = clustered(rows, 64, dim=_DIM, seed=options.seed)
    opened, _ = filled(folder / "served", data.vectors, "lsh")
    opened.close()
    served = Service(folder / "served", folder / "served.log")
    served.start()
    texts = [json.dumps([round(float(number), 4) for number in query]) for query in data.queries]
    try:
        ask_by_clients(served.port, 1, 1.0, ["query"], texts)  # Opens the index.
        alone = ask_by_clients(served.port, 8, seconds, ["query"], texts)
        begun = threading.Event()
        adds = threading.Thread(target=add_steadily, args=(served, data.vectors, seconds, begun))
        adds.start()
        begun.wait()
        beside_adds = ask_by_clients(served.port, 8, seconds, ["query"], texts)
        adds.join()
        served.end()
    finally:
        served.abandon()
    name = f"service, 8 clients, {rows:,} memories"
    return [
        _served(f"{name}: queries alone", alone, seconds, 1500.0),
        _served(f"{name}: queries beside 41 adds of ten a second", beside_adds, seconds, 500.0),
    ]


def _served(name: str, seconds_of: Sequence[float], seconds: float, aim: float) -> dict[str, Any]:
    p50, p99 = np.percentile(np.array(seconds_of) * 1e3, [50, 99])
    row = rated(name, len(seconds_of) / seconds, aim, p50_ms=round(float(p50), 2), p99=round(float(p99), 2))
    row["met"] = row["met"] and row["p99"] <= 20.0
    return row


def add_steadily(
    served: Service, rows: Any, seconds: float, begun: threading.Event, per_second: int = 41
) -> None:
    """Add ten memories so many times a second, or as often as they are taken."""
    texts = [json.dumps([round(float(number), 4) for number in row]) for row in rows[:10]]
    listed = ",".join(f'{{"time_ns":{_NS},"label":"thing","embedding":{text}}}' for text in texts)
    end = time.monotonic() + seconds
    begun.set()
    due = time.monotonic()
    while time.monotonic() < end:
        served.ask("POST", "/api/memories", f'{{"memories":[{listed}]}}')
        due += 1 / per_second
        time.sleep(max(0.0, due - time.monotonic()))


def ask_by_clients(
    port: int, count: int, seconds: float, operations: Sequence[str], vectors: Sequence[str]
) -> list[float]:
    """Seconds of each request of clients in processes of their own.

    Raises:
        RuntimeError: a request failed.
    """
    processes = []
    for number in range(count):
        task: dict[str, Any] = {
            "port": port,
            "client": number,
            "seconds": seconds,
            "batch": 10,
            "dim": _DIM,
            "seed": 0,
        }
        task |= {"operations": list(operations), "vectors": list(vectors)}
        process = subprocess.Popen(
            [sys.executable, str(CLIENT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(task))
        process.stdin.close()
        processes.append(process)
    found: list[float] = []
    for process in processes:
        assert process.stdout is not None
        with process:
            answer = json.loads(process.stdout.read())
        if answer["errors"] or answer["lost"]:
            raise RuntimeError(f"requests failed: {answer['errors'][:3]}, {answer['lost']} unanswered")
        found += [each for name in operations for each in answer["seconds_of"][name]]
    return found
