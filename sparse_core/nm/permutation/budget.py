"""How much a search for a permutation may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Effort = Literal["fast", "default", "high"]


class Annealing(NamedTuple):
    """One annealing run.

    Attributes:
        work: weights that all steps of all chains look at together, at most.
        chains: side by side, at most.
        sweeps: rounds of a chain through all pairs of stripes, at most.
        temperatures: first and last, in standard deviations of an exchange's gain; tuned on uniform and
            normal matrices.
    """

    work: int
    chains: int
    sweeps: int
    temperatures: tuple[float, float]


@dataclass(frozen=True)
class SearchBudget:
    """How much a search may do, in work and not in seconds, so that it repeats.

    Attributes:
        annealing: runs one after the other.
        escapes: attempts to leave the local optimum.
        exhaustive: weights that the divisions of all pairs of stripes may hold together.
    """

    annealing: tuple[Annealing, ...]
    escapes: int
    exhaustive: int


_SHORT = Annealing(3 << 26, 8, 225, (0.15, 0.04))
_LONG = Annealing(1 << 30, 16, 1000, (0.12, 0.06))
BUDGETS: dict[Effort, SearchBudget] = {
    "fast": SearchBudget((), escapes=0, exhaustive=1 << 26),
    "default": SearchBudget((_SHORT,), escapes=30, exhaustive=1 << 26),
    "high": SearchBudget((_SHORT, _LONG), escapes=300, exhaustive=1 << 31),
}
