"""What a level of sparsity leaves out."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Level", "default_levels"]


@dataclass(frozen=True)
class Level:
    """How much of a frame, and of the network, is computed. None: all of it; so is more than there is.

    Attributes:
        name: shown in records and tables.
        pillar_share: share of the pillars that is kept, the most important ones; see
            :func:`~perception.budget.important_points`. Levels that differ in nothing else use one
            network.
        reach_m: how far ahead or behind, and how far to the sides: what lies beyond is not looked at, and the
            maps become smaller. Rounded up to whole cells of the coarsest map.
        backbone_blocks: residual blocks of each stage of the backbone, the first ones.
        neck_blocks: residual blocks of the neck, the first ones.
        refinements: steps of the second stage.
        proposals: boxes that the second stage refines, best first.

    Raises:
        ValueError: a value out of range, named.
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
            raise ValueError("a level needs a name")
        if not 0 < self.pillar_share <= 1:
            raise ValueError(
                f"level {self.name!r}: pillar_share must be above 0, at most 1, got {self.pillar_share}"
            )
        if self.reach_m is not None and not all(0 < side < math.inf for side in self.reach_m):
            self._refuse("reach_m", "two positive numbers of metres")
        if self.backbone_blocks is not None and min(self.backbone_blocks, default=-1) < 0:
            self._refuse("backbone_blocks", "a count of each stage, not negative")
        for field, least in (("neck_blocks", 0), ("refinements", 0), ("proposals", 1)):
            value = getattr(self, field)
            if value is not None and value < least:
                self._refuse(field, f"at least {least}")

    def _refuse(self, field: str, expected: str) -> None:
        raise ValueError(f"level {self.name!r}: {field} must be {expected}, got {getattr(self, field)}")


def default_levels(*, fast: bool) -> tuple[Level, ...]:
    """Levels measured to be worth having with the shipped weights, best first; see docs/budget.md.

    Args:
        fast: for frames that run as CUDA graphs, where time goes with the number of kernels; otherwise it
            goes with the number of pillars.
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
