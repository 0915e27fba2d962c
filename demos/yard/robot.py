"""A robot's process: drives laps when it is told to, remembers, and sends what it may.

Reads lines ``LAP 0|1`` (whether it has a network) and answers each with a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from memory import MemoryStore
from memory.errors import SyncError
from memory.sync import Outbox, sync
from memory.sync.service import ServiceClient
from sparse_core.common.commands import reported_file_errors
from yard.world import DIM, Yard


def main() -> None:
    """Until standard input ends."""
    robot, folder, address = sys.argv[1:]
    yard = Yard()
    with MemoryStore.open(Path(folder), dim=DIM) as store:
        for line in sys.stdin:
            lap, network = map(int, line.split())
            sights = list(yard.sights(robot, lap))
            store.observe(sights)
            store.flush()
            told: dict[str, object] = {"robot": robot, "lap": lap, "sights": len(sights), "own": len(store)}
            if network:
                started = time.perf_counter()
                try:
                    told["sent"] = asdict(sync(Outbox(store.database, robot), ServiceClient(address)))
                except SyncError as error:
                    told["failed"] = str(error)
                told["sync_s"] = time.perf_counter() - started
            print(json.dumps(told), flush=True)
        # One memory a thing, so that what it could say alone is said fairly.
        store.consolidate()


if __name__ == "__main__":
    with reported_file_errors("robot"):
        main()
