"""Options of the protocols: classes, frames without results, and match rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from perception.evaluate.box_table import Float64Array

ProtocolName = Literal["kitti", "nuscenes", "boxes"]
#: Treatment of frames that have labels but no results.
MissingResults = Literal["error", "empty", "skip"]

#: Least overlap of large and small classes.
_LARGE_IOU, _SMALL_IOU = 0.5, 0.3


@dataclass(frozen=True)
class MatchRule:
    """Condition of a match between a detection and a label.

    Attributes:
        by: ``"overlap"``: IoU above the limit; ``"distance"``: centre distance below it.
        limit: IoU in [0, 1), or metres.

    Raises:
        ValueError: the limit is out of range.
    """

    by: Literal["overlap", "distance"]
    limit: float

    def __post_init__(self) -> None:
        if not (0 <= self.limit < (1 if self.by == "overlap" else math.inf)):
            raise ValueError(f"expected an overlap in [0, 1) or a distance in metres, got {self.limit!r}")

    @classmethod
    def parse(cls, text: str) -> MatchRule:
        """Parse an overlap such as ``"0.5"`` or a distance such as ``"2m"``.

        Raises:
            ValueError: the text is neither.
        """
        try:
            if text.endswith("m"):
                return cls("distance", float(text[:-1]))
            return cls("overlap", float(text))
        except ValueError:
            raise ValueError(
                f"expected an overlap such as 0.5 or a distance such as 2m, got {text!r}"
            ) from None

    @classmethod
    def of_size(cls, footprints_m: Float64Array, *, large_m: float) -> MatchRule:
        """Return IoU 0.5 if the median longer side of (N, 2) labels reaches ``large_m``, else 0.3."""
        longer = footprints_m.max(axis=1, initial=0.0)
        large = len(longer) == 0 or float(np.median(longer)) >= large_m
        return cls("overlap", _LARGE_IOU if large else _SMALL_IOU)

    def __str__(self) -> str:
        return f"IoU > {self.limit:g}" if self.by == "overlap" else f"< {self.limit:g} m"


@dataclass(frozen=True)
class JudgeOptions:
    """Options of the protocols.

    Attributes:
        classes: classes to evaluate; None: those of the protocol or of the data.
        missing_results: treatment of frames without results.
        rules: match rules by class (boxes protocol only).
        min_points: labels with fewer points do not count (boxes protocol only).
    """

    classes: Sequence[str] | None = None
    missing_results: MissingResults = "error"
    rules: Mapping[str, MatchRule] = field(default_factory=dict)
    min_points: int = 0
