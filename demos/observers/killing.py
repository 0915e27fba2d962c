"""Share a memory by commands that are killed and started again."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from memory import Filter, MemoryStore
from memory.types import Memory
from observers.scenes import Observer
from observers.sharing import ALIGN, write_records


class KilledShare(NamedTuple):
    """A memory that survived.

    Attributes:
        memories: merged memories.
        kills: number of processes that were killed before they ended.
    """

    memories: list[Memory]
    kills: int


def share_by_commands(
    observers: tuple[Observer, ...], folder: Path, *, kills: int = 0, seed: int = 0, most_s: float = 3.0
) -> KilledShare:
    """Share a memory by ``recall`` commands.

    Args:
        observers: the first one's map is the shared one.
        folder: of the new stores.
        kills: how often each command is started and killed with SIGKILL before it may end.
        seed: of the times of the kills.
        most_s: latest time of a kill after the start.

    Raises:
        RuntimeError: a command failed.
    """
    chance, killed, shared = random.Random(seed), 0, folder / "shared"
    commands = [["init", str(shared), "--dim", "2"]]
    for observer in observers:
        store = str(folder / f"{observer.name}-store")
        path = str(write_records(observer, folder))
        commands += [
            ["import", store, path, "--no-free"],
            ["consolidate", store],
            ["sync", store, str(shared), "--robot", observer.name],
        ]
    within = ["--within", str(ALIGN.most_shift_m)]
    commands += [
        ["align", str(shared), "--robot", observers[1].name, *within],
        ["consolidate", str(shared)],
    ]
    for words in commands:
        # A store that exists cannot be created again, so `init` is not disturbed.
        for _ in range(kills * (words[0] != "init")):
            killed += _killed(words, chance.uniform(0.2, most_s))
        done = subprocess.run([sys.executable, "-m", "memory", *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"recall {' '.join(words)} failed: {done.stderr}")
    with MemoryStore.open(shared, readonly=True) as store:
        found = store.find(Filter(kinds=("object", "event")), newest_first=False)
    return KilledShare(found, killed)


def _killed(words: list[str], after_s: float) -> bool:
    """Start a command and kill it; return False if it had ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "memory", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False
