"""The robot's memory beside two simpler ones that are given the same observations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drive.asking import BELIEVED, Answer, Memories, Question, ask
from drive.truth import Agreement, Truth, agreement
from memory import Memory, MemoryStore
from memory.query import Filter

#: Observations that are added at once.
_BATCH = 512


@dataclass(frozen=True)
class Judged:
    """A store and how good it is.

    Attributes:
        name: of the store.
        memories: how many it holds.
        bytes: of all its files.
        everything: what it says is there now, of all labels, against the truth.
        cars: the same of cars only.
        answers: to the questions.
    """

    name: str
    memories: int
    bytes: int
    everything: Agreement
    cars: Agreement
    answers: list[Answer]

    @property
    def right(self) -> int:
        """Answers that are."""
        return sum(answer.right for answer in self.answers)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        kinds = Counter(answer.kind for answer in self.answers)
        right = Counter(answer.kind for answer in self.answers if answer.right)
        times = [answer.ms for answer in self.answers] or [0.0]
        return {
            "memories": self.memories,
            "bytes": self.bytes,
            "what_is_where_now": {"all": self.everything.to_json(), "cars": self.cars.to_json()},
            "questions": {
                "asked": len(self.answers),
                "right": self.right,
                "by_kind": {kind: {"asked": kinds[kind], "right": right[kind]} for kind in kinds},
                "median_ms": float(np.median(times)),
                "p95_ms": float(np.percentile(times, 95)),
                "answers": [asdict(answer) for answer in self.answers],
            },
        }


def judged(name: str, store: MemoryStore, since: int, truth: Truth, questions: Sequence[Question]) -> Judged:
    """Compare what a store holds with the truth, and ask it.

    Args:
        name: of the store.
        store: open.
        since: number of its last operation before the last day.
        truth: of the drive.
        questions: with the right answers.
    """
    claims = store.find(Filter(kinds=("object",), states=BELIEVED), vectors=False)
    cars = [memory for memory in claims if memory.label == "Car"]
    return Judged(
        name,
        len(store),
        size_of(store.folder),
        agreement(claims, truth.there()),
        agreement(cars, truth.there(labels=["Car"])),
        ask(Memories(store, since), questions),
    )


def added(
    folder: Path, observations: Sequence[Memory], last_day_ns: int, dim: int
) -> tuple[MemoryStore, int]:
    """A store that just adds; and the number of its last operation before the last day."""
    store = MemoryStore.open(folder, dim=dim)
    before = [memory for memory in observations if memory.time_ns < last_day_ns]
    since = 0
    for part in (before, observations[len(before) :]):
        for start in range(0, len(part), _BATCH):
            store.add(part[start : start + _BATCH])
        since = store.generation if part is before else since
    return store, since


def size_of(folder: Path) -> int:
    """Bytes of the files of a store."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
