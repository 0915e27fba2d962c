"""Kill a writer again and again and look at what it left: run as a program, prints one JSON line.

Arguments: folder of the store, number of trials, seed. Each trial forks a process that opens the store, adds
memories (in even trials one by one, in odd ones from four threads), moves some, and tells each id through a
pipe once ``add`` returned it. After a random time it is killed. Then every id that was told must be there,
and the store sound.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import sys
import threading
import time

import numpy as np

from memory.persistence.sqlite import places
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory

EVERYWHERE = Filter(box=(-1, -1, 100, 100))


def row_of(token: int) -> Memory:
    """A memory that a reader can tell from its token."""
    return Memory(
        time_ns=token,
        label=f"label {token % 5}",
        caption=f"token {token}",
        position=(token % 97, token % 89, 0),
        embedding=np.random.default_rng(token).standard_normal(16),
    )


def write(folder: str, tell: int, trial: int) -> None:
    """The life of a writer: until it is killed. Blocks of places are made in every few commits."""
    places.TAIL, places.BLOCK, places.RUN, places.SMALL_RUNS = 10, 4, 64, 3
    threads = 1 + 3 * (trial % 2)
    with SqliteDatabase.open(folder, dim=16) as database:
        os.write(tell, struct.pack("<qq", 0, 0))  # It is open.

        def work(thread: int) -> None:
            token = 1_000_000 * (trial * 4 + thread)
            while True:
                rows = [row_of(token + offset) for offset in range(1 + token % 3)]
                ids = database.add(rows)
                for offset, id in enumerate(ids):
                    os.write(tell, struct.pack("<qq", id, token + offset))
                token += len(rows)
                if thread == 0 and token % 7 == 0:
                    database.undo(database.remove(ids))
                if thread == 0 and token % 7 == 1:
                    moved = [(x, y, z + 1.0) for x, y, z in (row.position for row in rows)]
                    database.repose(ids, moved, np.zeros(len(ids)))

        others = [threading.Thread(target=work, args=(thread,)) for thread in range(1, threads)]
        for other in others:
            other.start()
        work(0)


def trial_of(folder: str, trial: int, delay_s: float) -> dict[int, int]:
    """Run a writer, kill it, and return the tokens by the ids that it told."""
    listen, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(listen)
        try:
            write(folder, tell, trial)
        finally:
            os._exit(3)
    os.close(tell)
    data = os.read(listen, 16)
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    while part := os.read(listen, 1 << 16):
        data += part
    os.close(listen)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise RuntimeError(f"the writer of trial {trial} ended by itself")
    whole = data[: len(data) // 16 * 16]
    return {id: token for id, token in struct.iter_unpack("<qq", whole) if id}


def main(folder: str, trials: int, seed: int) -> None:
    """All trials in one store."""
    chance = random.Random(seed)
    SqliteDatabase.open(folder, dim=16).close()
    told: dict[int, int] = {}
    lost = reused = 0
    problems: list[str] = []
    start = 0
    for trial in range(trials):
        found = trial_of(folder, trial, chance.expovariate(1 / 0.015))
        reused += len(found.keys() & told.keys())
        told |= found
        with SqliteDatabase.open(folder) as database:
            problems += database.check().problems
            # A pair of operations, remove and undo, may have been cut in two: then the log has the memories.
            entries = database.log(start)
            undone = {entry.undoes for entry in entries}
            for entry in entries:
                if entry.operation == "remove" and entry.generation not in undone:
                    database.undo(entry.generation)
            there = set(database.ids().tolist())
            if set(database.ids(EVERYWHERE).tolist()) != there:
                problems.append("not everything is found by its place")
            lost += len(told.keys() - there)
            for row in database.get(sorted(found.keys() & there)):
                expected = row_of(told[row.id])
                if (
                    row.caption != expected.caption
                    or np.dot(row.embedding, expected.embedding / np.linalg.norm(expected.embedding)) < 0.99
                ):
                    problems.append(f"memory {row.id} is not what was added")
            if trial % 20 == 19:  # Small again, so that looking stays quick.
                database.remove(sorted(there))
                told.clear()
            start = database.generation
    print(
        json.dumps(
            {"trials": trials, "lost": lost, "reused": reused, "problems": problems[:20], "told": len(told)}
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
