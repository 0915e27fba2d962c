"""Histories of several writers at once, against a model: no update is lost, none is there twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from memory import Memory, MemoryStore

#: Writes with several threads and tells what was acknowledged, a line each.
WRITER = """
import json, random, sys, threading
from memory.store import MemoryStore
from memory.errors import UnknownMemoryError
from memory.types import Memory, Visit
place, name, threads, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
door = threading.Lock()

def tell(**said):
    with door:
        print(json.dumps(said), flush=True)

def work(store, thread):
    dice = random.Random(f"{name} {thread}")
    for step in range(steps):
        id = dice.randint(1, 12)
        # A number that nobody else writes.
        mine = float(int(name) * 10**6 + thread * 10**4 + step)
        what = dice.choice(["move", "move", "mark", "see", "see", "add", "forget"])
        try:
            if what == "move":
                done = store.repose([id], [(mine, 0.0, 0.0)], [0.0])
                tell(what=what, generation=done, id=id, value=mine)
                (found,) = store.database.get([id])
                tell(what="read", after=done, id=id, value=found.position[0])
            elif what == "mark":
                state = dice.choice(["gone", "present", "moved"])
                done = store.mark([id], state, at_ns=10**15)
                tell(what=what, generation=done, id=id, value=state)
            elif what == "see":
                store.database.see({id: [Visit(10**12, 10**12, 3)]})
                store.database.flush()
                tell(what=what, id=id, value=3)
            elif what == "add":
                (new,) = store.add([Memory(time_ns=0, label=str(mine))])
                tell(what=what, id=new, value=str(mine))
            elif id > 8:
                done = store.forget([id])
                tell(what=what, generation=done, id=id)
        except UnknownMemoryError:
            tell(what="unknown", id=id)

with MemoryStore.open(place) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    workers = [threading.Thread(target=work, args=(store, thread)) for thread in range(threads)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
"""


def test_no_update_of_several_writers_is_lost(location: Path | str) -> None:
    with MemoryStore.open(location, dim=4) as store:
        store.add([Memory(time_ns=at, label=f"thing {at}", embedding=np.ones(4)) for at in range(12)])
    # A folder has one process that writes.
    processes, threads = (1, 4) if isinstance(location, Path) else (3, 2)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(location), str(at + 1), str(threads), "40"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for at in range(processes)
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    told: list[dict[str, Any]] = []
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        said, _ = writer.communicate()
        assert writer.returncode == 0
        told += map(json.loads, said.splitlines())
    with MemoryStore.open(location, readonly=True) as store:
        check(store, told)


def check(store: MemoryStore, told: list[dict[str, Any]]) -> None:
    """Replay what was acknowledged in the order of the log, and compare with what is there."""
    log = store.log()
    assert [entry.generation for entry in log] == list(range(1, len(log) + 1))
    operations = {entry.generation: entry.operation for entry in log}
    names = {"move": "repose", "mark": "mark", "forget": "remove"}
    writes = [each for each in told if "generation" in each]
    assert len({each["generation"] for each in writes}) == len(writes) > 20
    assert {each["what"] for each in writes} == set(names)
    places = {id: {1: 0.0} for id in range(1, 13)}
    states = dict.fromkeys(range(1, 13), "present")
    gone: dict[int, int] = {}
    for each in sorted(writes, key=lambda each: each["generation"]):
        id, generation, what = each["id"], each["generation"], each["what"]
        assert operations[generation] == names[what]
        assert id not in gone  # Nothing was done to what had been forgotten.
        if what == "move":
            places[id][generation] = each["value"]
        elif what == "mark":
            states[id] = each["value"]
        else:
            gone[id] = generation
    # Everything of the log is somebody's: adds and sights tell no operation.
    others = Counter(name for name in operations.values() if name not in names.values())
    added = {each["id"]: each["value"] for each in told if each["what"] == "add"}
    assert others["add"] == len(added) + 1
    seen = Counter(each["id"] for each in told if each["what"] == "see")
    assert set(others) == {"add", "seen"}
    memories = {memory.id: memory for memory in store.database.get(store.database.ids().tolist())}
    assert set(memories) == (set(range(1, 13)) - set(gone)) | set(added)
    for id, label in added.items():
        assert memories[id].label == label
    for id in set(range(1, 13)) - set(gone):
        memory = memories[id]
        last = max(places[id])
        assert memory.position[0] == places[id][last]
        assert memory.state == states[id]
        assert memory.count == 1 + 3 * seen[id]
    # Who reads after a write finds that, or one that came later.
    for each in told:
        if each["what"] == "read":
            at = [generation for generation, value in places[each["id"]].items() if value == each["value"]]
            assert at
            assert at[0] >= each["after"]
    assert store.check().ok
