"""Comparison of the robot's memory with simpler stores that get the same observations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drive.questions import BELIEVED, Answer, Question, StoreUnderTest, ask
from drive.truth import Agreement, Truth, agreement
from memory import Memory, MemoryStore
from memory.query import Filter

#: Observations per call of ``add``.
_BATCH = 512


@dataclass(frozen=True)
class StoreEvaluation:
    """Quality of a store.

    Attributes:
        name: of the store.
        memories: how many it holds.
        bytes: of all its files.
        everything: agreement of its claims about the present with the truth, all labels.
        cars: the same for cars only.
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
        """Number of right answers."""
        return sum(answer.right for answer in self.answers)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
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


def evaluate_store(
    name: str, store: MemoryStore, since: int, truth: Truth, questions: Sequence[Question]
) -> StoreEvaluation:
    """Compare the claims of a store with the truth, and ask it questions.

    Args:
        name: of the store.
        store: open.
        since: number of its last operation before the last day.
        truth: of the drive.
        questions: with the right answers.
    """
    claims = store.find(Filter(kinds=("object",), states=BELIEVED), vectors=False)
    cars = [memory for memory in claims if memory.label == "Car"]
    return StoreEvaluation(
        name,
        len(store),
        size_of(store.folder),
        agreement(claims, truth.there()),
        agreement(cars, truth.there(labels=["Car"])),
        ask(StoreUnderTest(store, since), questions),
    )


def fill_store(
    folder: Path, observations: Sequence[Memory], last_day_ns: int, dim: int
) -> tuple[MemoryStore, int]:
    """Add observations to a new store; return it with the number of its last operation before the last
    day.
    """
    store = MemoryStore.open(folder, dim=dim)
    before = [memory for memory in observations if memory.time_ns < last_day_ns]
    since = 0
    for part in (before, observations[len(before) :]):
        for start in range(0, len(part), _BATCH):
            store.add(part[start : start + _BATCH])
        since = store.generation if part is before else since
    return store, since


def size_of(folder: Path) -> int:
    """Return the size of a store's files in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
