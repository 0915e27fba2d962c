"""Levels of sparsity of a budgeted detector."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Level", "default_levels"]


@dataclass(frozen=True)
class Level:
    """Part of a frame and of the network to compute. None, or a number too large, means all.

    Attributes:
        name: name in records and tables.
        pillar_share: share of the pillars to keep, most important first; see
            :func:`~perception.budget.important_points`. Levels that differ only here share a network.
        reach_m: range ahead and behind, and range to the sides, rounded up to cells of the coarsest map.
        backbone_blocks: residual blocks of each stage of the backbone.
        neck_blocks: residual blocks of the neck.
        refinements: steps of the second stage.
        proposals: boxes that the second stage refines, best first.

    Raises:
        ValueError: a value out of range.
    """

    name: str
    pillar_share: float = 1.0
    reach_m: tuple[float, float] | None = None
    backbone_blocks: tuple[int, ...] | None = None
    neck_blocks: int | None = None
    refinements: int | None = None
    proposals: int | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("level: name must not be empty")
        if not 0 < self.pillar_share <= 1:
            self._refuse("pillar_share", "in (0, 1]")
        if self.reach_m is not None and not all(0 < side < math.inf for side in self.reach_m):
            self._refuse("reach_m", "two positive numbers of metres")
        if self.backbone_blocks is not None and min(self.backbone_blocks, default=-1) < 0:
            self._refuse("backbone_blocks", "one count per stage, not negative")
        for field, least in (("neck_blocks", 0), ("refinements", 0), ("proposals", 1)):
            value = getattr(self, field)
            if value is not None and value < least:
                self._refuse(field, f"at least {least}")

    def _refuse(self, field: str, expected: str) -> None:
        raise ValueError(f"level {self.name!r}: {field} must be {expected}, got {getattr(self, field)}")


def default_levels(*, fast: bool) -> tuple[Level, ...]:
    """Return the levels that pay with the shipped weights, best first; see docs/budget.md.

    Args:
        fast: for CUDA graphs, where time depends on the number of kernels; otherwise it depends on the number
            of pillars.
    """
    return _FAST if fast else _EAGER


_EAGER = (
    Level("all"),
    Level("pillars 50 %, refine once", pillar_share=0.5, refinements=1),
    Level("pillars 35 %, refine once", pillar_share=0.35, refinements=1),
    Level("pillars 25 %, refine once, reach 51 m", pillar_share=0.25, reach_m=(51.2, 25.6), refinements=1),
)
_FAST = (
    Level("all"),
    Level("refine once", refinements=1),
    Level("refine once, a block less", refinements=1, backbone_blocks=(1, 2, 2)),
)
