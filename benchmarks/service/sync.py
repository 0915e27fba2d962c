"""Speed of synchronization with the shared store: in a folder, on a server, through a service.

    python -m benchmarks.service.sync --folder FOLDER_ON_THE_DISK_TO_MEASURE

A robot's store of ``--rows`` memories with 128 dimensions is sent whole. Then all memories are sent as
changed (place, confidence and caption), a tenth as gone, and another robot of the same map pulls them.
Sender, receiver and store share the cores of this machine. Each turn has new stores, and goes through the
sides one after another; medians of the turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.service.fleet import schema
from benchmarks.service.fleet_sides import rows_of
from benchmarks.service.process import Service as Process
from memory import MemoryStore
from memory.persistence.database import Database
from memory.persistence.postgres import server as local
from memory.sync import Inbox, Outbox, Receiver, pull, sync
from memory.sync.service import ServiceClient

_DIM = 128
_SIDES = ("folder", "server", "service")
_NOTES = ("sender, receiver and the store between share the cores of this machine with other programs",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    configure(torch.device("cpu"), options.threads)
    cases: dict[str, dict[str, list[float]]] = {side: {} for side in options.sides}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="sync-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Root has another user run the server.
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        (folder / "server").mkdir()
        address = local.start(folder / "server") if "server" in options.sides else ""
        try:
            for turn in range(options.turns):
                for side in options.sides:
                    place = folder / f"{turn}-{side}"
                    place.mkdir()
                    for what, rate in _turn(side, place, address, options).items():
                        cases[side].setdefault(what, []).append(rate)
                    print(f"turn {turn + 1}, {side}: {cases[side]}", file=sys.stderr, flush=True)
        finally:
            local.stop(folder / "server")
    found: list[dict[str, Any]] = [
        {"side": side, **{f"{what}_per_s": round(statistics.median(each), 1) for what, each in rates.items()}}
        for side, rates in cases.items()
    ]
    values = result(
        "sync", torch.device("cpu"), asked(options, "folder"), cases=found, runs=cases, notes=list(_NOTES)
    )
    save(values, options)
    columns = [name for name in found[0] if name != "side"]
    rows = [[case["side"], *(number(case[name], 0) for name in columns)] for case in found]
    show(values, [table("Memories a second", ["into", *columns], rows)], _NOTES, as_json=options.json)
    return 0


def _turn(side: str, place: Path, address: str, options: argparse.Namespace) -> dict[str, float]:
    """Memories a second that were sent, by what had become of them."""
    rows = options.rows
    found: dict[str, float] = {}

    def measured(what: str, count: int, work: Callable[[], Any]) -> None:
        start = time.perf_counter()
        report = work()
        found[what] = count / (time.perf_counter() - start)
        if (report.added, report.changed, report.removed).count(count) != 1 or report.kept:
            raise RuntimeError(f"{side}, {what}: {report}")

    with (
        MemoryStore.open(place / "robot", dim=_DIM) as robot,
        MemoryStore.open(place / "other", dim=_DIM) as other,
        _shared(side, place, address) as (receiver, source),
    ):
        all_rows = rows_of(0, rows, _DIM, options.seed)
        ids = robot.add(all_rows.memories(range(rows)))
        other.add(rows_of(rows, rows + 1, _DIM, options.seed).memories(range(rows, rows + 1)))
        outbox = Outbox(robot.database, "robot-1")
        measured("new", rows, lambda: sync(outbox, receiver))
        changed = [
            dataclasses.replace(
                memory, position=(1.0, 2.0, 0.0), caption=f"{memory.caption} again", confidence=0.5
            )
            for memory in robot.database.get(ids)
        ]
        robot.database.update(changed)
        measured("changed", rows, lambda: sync(outbox, receiver))
        gone = ids[::10]
        robot.forget(gone)
        measured("gone", len(gone), lambda: sync(outbox, receiver))
        measured("pulled", rows - len(gone), lambda: pull(source, other.database))
    return found


@contextmanager
def _shared(side: str, place: Path, address: str) -> Iterator[tuple[Receiver, Database | ServiceClient]]:
    """Addresses to send to and to pull from."""
    if side == "server":
        name = "sync_" + place.name.replace("-", "_")
        with MemoryStore.open(schema(address, name), dim=_DIM) as store:
            yield Inbox(store.database), store.database
        return
    with MemoryStore.open(place / "shared", dim=_DIM) as store:
        if side == "folder":
            yield Inbox(store.database), store.database
            return
    process = Process(place / "shared", place / "log")
    process.start()
    service = ServiceClient(f"http://127.0.0.1:{process.port}")
    try:
        yield service, service
    finally:
        service.close()
        process.end()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "sync", quick="500 memories, one turn")
    parser.add_argument("--folder", type=Path, help="where stores are made; decides what a sync costs")
    parser.add_argument("--rows", type=int, help="memories (5,000)")
    parser.add_argument("--turns", type=int, help="new stores on all sides (3)")
    parser.add_argument("--sides", nargs="+", choices=_SIDES, default=_SIDES)
    options = parse(parser, arguments)
    options.rows = options.rows or (500 if options.quick else 5_000)
    options.turns = options.turns or (1 if options.quick else 3)
    if options.rows < 20 or options.turns < 1:
        parser.error("--rows must be at least 20 and --turns at least 1")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
