"""Queries of the service with and without readers, interleaved.

    python -m benchmarks.service.readers

Each side is ``recall serve`` of a copy of one store, with no or several readers. In every round each side
answers eight clients for some seconds: queries by a vector alone, then the same while 41 requests a second
add ten memories each. Clients are processes of their own. Reported: queries per second, times, and CPU time
per query of all processes of the service.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.calls.memory import add_steadily, ask_by_clients
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.memory.measures import filled
from benchmarks.publish.screen import tables
from benchmarks.service.process import Service
from memory.index.evaluation import clustered

CLIENTS, DIM = 8, 256
#: Loads: requests of ten memories per second.
LOADS = {"queries alone": 0, "queries and 41 adds of ten a second": 41}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "readers", quick="2,000 memories, two rounds of a second")
    parser.add_argument("--readers", type=int, nargs="+", default=[0, 1, 2], help="readers of each side")
    parser.add_argument("--rounds", type=int, help="of each side and load (5)")
    parser.add_argument("--seconds", type=float, help="of a round (10)")
    parser.add_argument("--folder", type=Path, help="where stores are made; decides what a sync costs")
    options = parse(parser, arguments)
    configure(torch.device("cpu"), options.threads)
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (1.0 if options.quick else 10.0)
    rows = 2_000 if options.quick else 200_000
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        sides = measure(Path(folder), options, rows)
    settings = {
        "rows": rows, "rounds": options.rounds, "seconds": options.seconds, "clients": CLIENTS,
        "dim": DIM, "seed": options.seed, "quick": options.quick,
    }  # fmt: skip
    notes = ["clients and service share the cores of this machine"]
    values = result("readers", torch.device("cpu"), settings, sides=sides, notes=notes)
    save(values, options)
    show(values, tables(values, "readers"), notes, as_json=options.json)
    return 0


def measure(folder: Path, options: argparse.Namespace, rows: int) -> list[dict[str, Any]]:
    """Rows of figures by side and load."""
    data = clustered(rows, 64, dim=DIM, seed=options.seed)
    filled(folder / "store-0", data.vectors, "lsh")[0].close()
    for at in range(1, len(options.readers)):
        shutil.copytree(folder / "store-0", folder / f"store-{at}")
    texts = [json.dumps([round(float(number), 4) for number in query]) for query in data.queries]
    services = [
        Service(folder / f"store-{at}", folder / f"served-{at}.log", "--readers", str(readers))
        for at, readers in enumerate(options.readers)
    ]
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    try:
        for service in services:
            service.start()
            # Opens the index of every process.
            ask_by_clients(service.port, CLIENTS, 2.0, ["query"], texts)
        for _ in range(options.rounds):
            for load, adds in LOADS.items():
                for readers, service in zip(options.readers, services, strict=True):
                    figures = _round(service, options.seconds, adds, data.vectors, texts)
                    found.setdefault((readers, load), []).append(figures)
        for service in services:
            service.end()
    finally:
        for service in services:
            service.abandon()
    sides = []
    for (readers, load), rounds in sorted(found.items(), key=lambda entry: (entry[0][1], entry[0][0])):
        medians = {name: round(float(np.median([each[name] for each in rounds])), 3) for name in rounds[0]}
        base = found[options.readers[0], load]
        ratios = [each["per_s"] / other["per_s"] for each, other in zip(rounds, base, strict=True)]
        sides.append(
            {"readers": readers, "load": load, **medians, "ratio": round(float(np.median(ratios)), 3)}
        )
    return sides


def _round(
    service: Service, seconds: float, adds: int, vectors: Any, texts: Sequence[str]
) -> dict[str, float]:
    before = cpu_seconds(service.pid)
    adding = None
    if adds:
        begun = threading.Event()
        adding = threading.Thread(target=add_steadily, args=(service, vectors, seconds, begun, adds))
        adding.start()
        begun.wait()
    taken = np.array(ask_by_clients(service.port, CLIENTS, seconds, ["query"], texts)) * 1e3
    if adding is not None:
        adding.join()
    spent = cpu_seconds(service.pid) - before
    p50, p99 = np.percentile(taken, [50, 99])
    return {
        "per_s": len(taken) / seconds, "p50_ms": float(p50), "p99_ms": float(p99),
        "cpu_ms": 1e3 * spent / len(taken),
    }  # fmt: skip


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children, of which none ended meanwhile."""
    found = 0.0
    for task in (pid, *children(pid)):
        fields = Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()
        found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def children(pid: int) -> list[int]:
    """Process ids of the children of a process."""
    tasks = Path(f"/proc/{pid}/task")
    return [int(each) for task in tasks.iterdir() for each in (task / "children").read_text().split()]


if __name__ == "__main__":
    raise SystemExit(main())
