"""How much of a stream is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Seconds that 63 bits of nanoseconds hold.
LONGEST_S = 9e9


@dataclass(frozen=True, kw_only=True)
class ReservoirConfig:
    """How much is kept.

    Attributes:
        share: of the memories of a place and window, from 0 to 1.
        least: kept of each thing of a place and window whatever the share.
        most: kept of a place and window whatever the share, or ``None``; unique and marked ones come on top.
        cell_m: side of the squares in x and y that are one place; what is closer than this in x and in y,
            also beyond the edge of a square, can be the same thing.
        window_s: length of a time window in seconds.
        unique_below: a memory is unique when its cosine to every unique memory that is of its kind and label,
            and close enough to be the same thing, is below this.
        event_gap_s: an event after so many seconds without one of its label at its place is another one.

    Raises:
        ValueError: a number out of its range.
    """

    share: float = 0.01
    least: int = 1
    most: int | None = 16
    cell_m: float = 2.0
    window_s: float = 3600.0
    unique_below: float = 0.7
    event_gap_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share must be from 0 to 1, got {self.share}")
        if self.least < 0 or (self.most is not None and self.most < self.least):
            raise ValueError(f"least and most must be 0 <= least <= most, got {self.least} and {self.most}")
        for name in ("cell_m", "window_s", "event_gap_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be finite and above 0, got {value}")
            if name != "cell_m" and value > LONGEST_S:
                raise ValueError(f"{name} must be at most {LONGEST_S:g}, got {value}")
        if not -1.0 <= self.unique_below <= 1.0:
            raise ValueError(f"unique_below must be from -1 to 1, got {self.unique_below}")

    @property
    def window_ns(self) -> int:
        """Length of a window in nanoseconds, at least 1."""
        return max(1, round(self.window_s * 1e9))

    def room(self, seen: int, things: int = 1) -> int:
        """How many of ``seen`` memories of a place and window, which are of so many things, are kept."""
        # A share such as 0.29 of 100 must not come out as 28.999...: round up what is as good as whole.
        wanted = max(self.least * things, math.floor(self.share * seen * (1.0 + 1e-12)))
        return wanted if self.most is None else min(self.most, wanted)
