"""Reports of a store: sizes, findings of a check, and progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from memory.wording.words import plural
from sparse_core.common.table import Report

#: Callback with the work done and the total.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Stats:
    """Sizes of a store.

    Attributes:
        memories: number of memories.
        by_map, by_kind: the same per map and kind.
        vectors: number of vectors per encoder.
        generation: number of the last operation.
        next_id: id of the next memory.
        file_bytes, log_bytes: bytes of the database and its write-ahead log.
        free_bytes: reusable bytes within the file.
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
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True)
class CheckReport(Report):
    """Result of a check.

    Attributes:
        memories: rows checked.
        problems: sentences; after a repair, the remaining ones.
        repaired: what was rebuilt or dropped.
        lost: what no repair restores.
    """

    memories: int
    problems: tuple[str, ...]
    repaired: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    derived: ClassVar = ("ok",)

    @property
    def ok(self) -> bool:
        """True if there are no problems left."""
        return not self.problems

    def __str__(self) -> str:
        """Return one line per finding."""
        found = "sound" if self.ok else plural(len(self.problems), "problem")
        lines = [f"{plural(self.memories, 'memory', 'memories')}: {found}"]
        lines += [f"  repaired: {line}" for line in self.repaired]
        lines += [f"  lost: {line}" for line in self.lost]
        return "\n".join(lines + [f"  {line}" for line in self.problems])
