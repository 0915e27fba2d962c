"""Tasks with which workers do well, or end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Numbers:
    """Some numbers; workers end at those below zero."""

    numbers: tuple[int, ...]
    fate: str = ""

    def pieces(self) -> Sequence[Numbers]:
        return [Numbers((number,), self.fate) for number in self.numbers]


@dataclass(frozen=True)
class Doubling:
    """Doubles, and notes in a folder what was done."""

    folder: Path
    load_fails: str = ""

    def load(self, worker: int, threads: int) -> Callable[[Numbers], list[int]]:
        if self.load_fails == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.load_fails:
            raise ValueError(self.load_fails)
        return self._double

    def _double(self, task: Numbers) -> list[int]:
        for number in task.numbers:
            once = self.folder / f"{number}.met"
            if number < 0 and not (task.fate == "killed once" and once.exists()):
                once.touch()
                if task.fate == "raises":
                    raise RuntimeError(f"{number} is below zero")
                os.kill(os.getpid(), signal.SIGKILL)
        return [2 * number for number in task.numbers]
