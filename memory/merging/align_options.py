"""Conditions for an alignment of two maps."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Largest clock difference that can be searched; larger ones match other traffic as well.
MOST_CLOCK_S = 10.0


@dataclass(frozen=True, kw_only=True)
class AlignOptions:
    """Conditions for an alignment.

    Attributes:
        tolerance_m: largest distance between matching objects after the motion.
        least_things: smallest number of matching objects.
        least_similarity: smallest cosine between vectors, if both objects have one.
        most_rival: largest share of the best motion's matches that another motion may reach.
        least_turn_sigmas: a rotation of fewer standard deviations is dropped.
        most_uncertain_m: largest position error of the farthest memory that the rotation may cause.
        most_shift_m: largest distance by which an object may be moved. Maps that are almost aligned need a
            small one, because in a row of objects the next one matches as well.
        most_clock_s: largest difference between the clocks of the two robots. 0 trusts the clocks.

    Raises:
        ValueError: a number out of its range.
    """

    tolerance_m: float = 1.0
    least_things: int = 5
    least_similarity: float = 0.7
    most_rival: float = 0.7
    least_turn_sigmas: float = 3.0
    most_uncertain_m: float = 1.0
    most_shift_m: float = math.inf
    most_clock_s: float = 1.5

    def __post_init__(self) -> None:
        for name in ("tolerance_m", "least_turn_sigmas", "most_uncertain_m"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0.0):
                raise ValueError(f"{name} must be finite and above 0, got {getattr(self, name)}")
        if not self.most_shift_m > 0.0:
            raise ValueError(f"most_shift_m must be above 0, got {self.most_shift_m}")
        if not 0.0 <= self.most_clock_s <= MOST_CLOCK_S:
            raise ValueError(f"most_clock_s must be from 0 to {MOST_CLOCK_S:g}, got {self.most_clock_s}")
        if self.least_things < 3:
            raise ValueError(f"least_things must be at least 3, got {self.least_things}")
        for name, least in (("least_similarity", -1.0), ("most_rival", 0.0)):
            if not least <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be from {least:g} to 1, got {getattr(self, name)}")
