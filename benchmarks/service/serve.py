"""The service under load: clients that add and ask at the same time, a kill in the middle, an hour's replay.

    python -m benchmarks.service.serve --folder FOLDER_ON_THE_DISK_TO_MEASURE

``recall serve`` and each client run in separate processes, over HTTP on the loopback interface. Every
client takes turns: ten memories with vectors, a search by a vector, a read, a search, "where was it last
seen". An add is answered once it is on the disk. In the second run the service is killed with SIGKILL halfway
and restarted. Clients repeat unanswered requests; afterwards every memory whose add was answered is read and
compared. In the third a robot's hour (10 frames a second, 8 things each) is fed as fast as the service takes
it, and the memory of its process is sampled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.service.client import OPERATIONS, caption
from benchmarks.service.process import CLIENT, Service
from benchmarks.service.replay import replay
from memory.store import MemoryStore

#: Errors that a result file quotes.
_QUOTED = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 1 where a request failed or a record was lost."""
    options = _options(arguments)
    configure(torch.device("cpu"), options.threads)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    bar = Progress(console=Console(stderr=True), disable=options.json, transient=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as name, bar as progress:
        folder = Path(name)
        parts = {
            "load": load(folder / "load", options, progress, kill=False),
            "restart": load(folder / "restart", options, progress, kill=True),
            "replay": _replay(folder / "replay", options, progress),
        }
    settings = {
        "clients": options.clients,
        "seconds": options.seconds,
        "batch": options.batch,
        "dim": options.dim,
        "robot_s": options.robot_seconds,
        "seed": options.seed,
        "quick": options.quick,
        "device": "cpu",
    }
    notes = ["clients and service share the cores of this machine; an add holds several memories"]
    values = result("serve", torch.device("cpu"), settings, **parts, bars=_bars(parts), notes=notes)
    save(values, options)
    show(values, _tables(values), notes, as_json=options.json)
    bars = values["bars"]
    return 0 if bars["errors"] == bars["lost"] == 0 else 1


def load(folder: Path, options: argparse.Namespace, progress: Progress, *, kill: bool) -> dict[str, Any]:
    """Run clients concurrently for a while, then check the store.

    Args:
        folder: of a new store.
        options: of the command line.
        progress: that shows how far it is.
        kill: end the service with SIGKILL halfway, and start it again.
    """
    service = _service(folder, options.dim)
    try:
        begun = time.monotonic()
        clients = [_client(service.port, number, options) for number in range(options.clients)]
        killed = _watch(service, options.seconds, progress, kill=kill)
        answers = [_answer_of(client) for client in clients]
        spent = time.monotonic() - begun
        checked = _compare(service.captions(), answers)
        sound = service.get("/api/stats?check=true")["check"]["ok"]
        service.end()
    finally:
        service.abandon()
    errors = [error for answer in answers for error in answer["errors"]]
    return {
        "seconds": round(spent, 2),
        "operations": _operations(answers, options.seconds),
        "errors": len(errors),
        "first_errors": errors[:_QUOTED],
        "unanswered": sum(answer["lost"] for answer in answers),
        "sent_again": sum(answer["repeated"] for answer in answers),
        "longest_away_s": round(max(answer["away_s"] for answer in answers), 3),
        **killed,
        **checked,
        "sound": sound,
    }


def _service(folder: Path, dim: int) -> Service:
    MemoryStore.open(folder, dim=dim).close()
    service = Service(folder, folder.with_suffix(".log"))
    service.start()
    return service


def _client(port: int, number: int, options: argparse.Namespace) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(CLIENT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    task = {
        "port": port,
        "client": number,
        "seconds": options.seconds,
        "batch": options.batch,
        "dim": options.dim,
        "seed": options.seed,
    }
    assert process.stdin is not None
    process.stdin.write(json.dumps(task))
    process.stdin.close()
    return process


def _answer_of(client: subprocess.Popen[str]) -> dict[str, Any]:
    assert client.stdout is not None
    with client:
        text = client.stdout.read()
    if client.returncode != 0:
        raise RuntimeError(f"a client ended with {client.returncode}")
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def _watch(service: Service, seconds: float, progress: Progress, *, kill: bool) -> dict[str, Any]:
    """Wait, with a kill halfway if wanted; the memory of the process at the end."""
    name = "clients, with a kill" if kill else "clients"
    task = progress.add_task(name, total=seconds)
    begun = time.monotonic()
    found: dict[str, Any] = {}
    while (elapsed := time.monotonic() - begun) < seconds:
        progress.update(task, completed=elapsed)
        if kill and not found and elapsed > seconds / 2:
            service.kill()
            service.start()
            found = {"start_s": round(service.start_s, 3)}
        time.sleep(0.1)
    progress.update(task, completed=seconds)
    return {**found, "resident_bytes": service.resident_bytes()}


def _operations(answers: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Rates and times of each sort of request."""
    found = {}
    for name in dict.fromkeys(OPERATIONS):
        times = np.array([time for answer in answers for time in answer["seconds_of"][name]]) * 1e3
        if not len(times):
            found[name] = {"count": 0, "per_s": 0.0, "p50_ms": None, "p99_ms": None, "most_ms": None}
            continue
        p50, p99 = np.percentile(times, [50, 99])
        found[name] = {
            "count": len(times),
            "per_s": round(len(times) / seconds, 1),
            "p50_ms": round(float(p50), 3),
            "p99_ms": round(float(p99), 3),
            "most_ms": round(float(times.max()), 3),
        }
    return found


def _compare(stored: dict[int, str], answers: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Check that every acknowledged memory is stored, and count the others."""
    acknowledged = {
        id: caption(client, number, part)
        for client, answer in enumerate(answers)
        for number, ids in answer["acknowledged"]
        for part, id in enumerate(ids)
    }
    lost = sum(stored.get(id) != expected for id, expected in acknowledged.items())
    # An add whose answer was lost on the way is on the disk, and its repetition too.
    return {"acknowledged": len(acknowledged), "lost": lost, "beyond": len(stored.keys() - acknowledged)}


def _replay(folder: Path, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    service = _service(folder, options.dim)
    try:
        found = replay(
            service, seconds=options.robot_seconds, dim=options.dim, seed=options.seed, progress=progress
        )
        service.end()
    finally:
        service.abandon()
    return found


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "serve", quick="seconds instead of minutes")
    parser.add_argument("--folder", type=Path, help="where stores are made; decides what a sync costs")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, help="of each run with clients")
    parser.add_argument("--batch", type=int, default=10, help="memories of a request to add")
    parser.add_argument("--dim", type=int, default=256, help="numbers of a vector")
    parser.add_argument("--robot-seconds", type=int, help="of the drive that is replayed")
    options = parse(parser, arguments)
    options.seconds = options.seconds or (4.0 if options.quick else 60.0)
    options.robot_seconds = options.robot_seconds or (30 if options.quick else 3600)
    if min(options.clients, options.batch, options.dim) < 1:
        parser.error("--clients, --batch and --dim must be at least 1")
    return options


def _bars(parts: dict[str, Any]) -> dict[str, Any]:
    runs = (parts["load"], parts["restart"])
    operations = parts["load"]["operations"]
    return {
        "requests_per_s": round(sum(entry["per_s"] for entry in operations.values()), 1),
        "worst_p99_ms": max((entry["p99_ms"] or 0.0 for entry in operations.values()), default=None),
        "errors": sum(run["errors"] + run["unanswered"] for run in runs),
        "lost": sum(run["lost"] for run in runs),
        "replay_slope_mb_per_hour": parts["replay"]["slope_mb_per_hour"],
    }


def _tables(values: dict[str, Any]) -> list[Any]:
    runs = {"load": values["load"], "with a kill": values["restart"]}
    rows = [
        [
            f"{name}, {operation}",
            number(entry["count"], 0),
            number(entry["per_s"], 1),
            number(entry["p50_ms"], 2),
            number(entry["p99_ms"], 2),
            number(entry["most_ms"], 1),
        ]
        for name, run in runs.items()
        for operation, entry in run["operations"].items()
    ]
    kept = ("errors", "unanswered", "sent_again", "longest_away_s", "acknowledged", "lost", "beyond", "sound")
    hour = {name: value for name, value in values["replay"].items() if name != "samples"}
    return [
        table(
            f"{values['settings']['clients']} clients",
            ["run and request", "count", "a second", "median, ms", "p99, ms", "most, ms"],
            rows,
        ),
        table(
            "What was kept",
            ["run", *kept],
            [[name, *(str(run[field]) for field in kept)] for name, run in runs.items()],
        ),
        table("A robot's hour", ["figure", "value"], [[name, str(value)] for name, value in hour.items()]),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
