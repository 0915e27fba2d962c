"""What a store reports of itself: sizes, findings of a check, and progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from sparse_core.common.table import Report

#: Called with how much is done, and of how much.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Stats:
    """Sizes of a store.

    Attributes:
        memories: how many there are.
        by_map, by_kind: the same for each.
        vectors: by encoder.
        generation: of the last operation.
        next_id: of the next memory.
        file_bytes, log_bytes: of the database and its write-ahead log.
        free_bytes: within the file, to be used again.
    """

    memories: int
    by_map: dict[str, int]
    by_kind: dict[str, int]
    vectors: dict[str, int]
    generation: int
    next_id: int
    file_bytes: int
    log_bytes: int
    free_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class CheckReport(Report):
    """What a check found.

    Attributes:
        memories: rows that were looked at.
        problems: sentences; after a repair those that remain.
        repaired: what was rebuilt or dropped.
        lost: what the store had, and no repair brings back.
    """

    memories: int
    problems: tuple[str, ...]
    repaired: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    derived: ClassVar = ("ok",)

    @property
    def ok(self) -> bool:
        """Nothing is wrong (any more)."""
        return not self.problems

    def __str__(self) -> str:
        """One line for each finding."""
        lines = [f"{self.memories} memories: {'sound' if self.ok else f'{len(self.problems)} problems'}"]
        lines += [f"  repaired: {line}" for line in self.repaired]
        lines += [f"  lost: {line}" for line in self.lost]
        return "\n".join(lines + [f"  {line}" for line in self.problems])
