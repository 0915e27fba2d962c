"""Evidence of the similarity of place vectors, calibrated by the places of the store itself.

Similarities depend on sensor and surroundings: in a street of one sensor, places far apart have a cosine of
0.85, in another one 0.4. The places of the store tell: pairs far apart show how similar different places are,
and pairs of neighbours how fast similarity falls with distance. Cosines are compared as ``-log(1 - cosine)``,
in which both distributions are about normal.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.types import Memory

#: Places at least this far apart, or turned by more than ``_TURNED_RAD``, are different; neighbours are
#: within ``_NEIGHBOUR_M`` and turned by less than ``_SAME_RAD``.
_APART_M, _TURNED_RAD, _NEIGHBOUR_M, _SAME_RAD = 10.0, 1.0, 8.0, 0.2
#: Fewest pairs of each kind for a calibration.
_LEAST_PAIRS = 20
#: Standard deviation of the similarity of a revisit, and its loss compared with neighbours of one drive:
#: light, traffic and parked cars differ.
_REVISIT_SIGMA = 0.9
#: Least standard deviation of similarities of different places.
_LEAST_SIGMA = 0.45
#: Standard deviation of the similarities of one scan to equally close places.
_RELATIVE_SIGMA = 0.45
#: Largest evidence of a place vector, as a log likelihood ratio.
_MOST = 7.0
#: Standard deviation of the heading of a revisit, in radians, and of its position at best, in metres.
HEADING_RAD, _CLOSEST_M = math.radians(2.5), 0.7


class PlaceCalibration(NamedTuple):
    """Meaning of similarities in one map.

    Attributes:
        here: expected similarity at the place itself, as ``-log(1 - cosine)``.
        slope_per_m: by which it falls per metre.
        apart, apart_sigma: mean and standard deviation between different places.
    """

    here: float
    slope_per_m: float
    apart: float
    apart_sigma: float

    def evidence(self, cosine: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log likelihood ratios of "a revisit of this place" versus "a different place"."""
        shown = spread(cosine)
        # A higher similarity than expected is not evidence against a revisit.
        short = np.minimum(shown - self.here, 0.0) / _REVISIT_SIGMA
        above = np.maximum(shown - self.apart, 0.0) / self.apart_sigma
        ratio = 0.5 * above**2 - 0.5 * short**2 + math.log(self.apart_sigma / _REVISIT_SIGMA)
        # Light and traffic lower all similarities of a scan together: compare places with the best one.
        behind = (shown.max() - shown) / _RELATIVE_SIGMA
        return np.asarray(np.clip(ratio, -_MOST, _MOST).max() - 0.5 * behind**2)

    def distance_m(self, cosine: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard deviations of the position along one axis, in metres."""
        away = np.maximum(self.here - spread(cosine), 0.0) / self.slope_per_m
        return np.hypot(_CLOSEST_M, np.minimum(away, _NEIGHBOUR_M) / math.sqrt(2.0))


#: Calibration for maps with too few places, from a real street (docs/ask.md). There, 95 % of scan pairs
#: within 1.5 m have a cosine above 0.975, and 1 % of pairs more than 8 m apart.
USUAL = {"scene-encoder": PlaceCalibration(here=4.2, slope_per_m=0.35, apart=1.9, apart_sigma=0.77)}


def spread(cosine: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return similarities on a scale on which they are about normal."""
    return np.asarray(-np.log(np.maximum(1.0 - cosine, 1e-4)))


def vector_of(memory: Memory, encoder: str) -> NDArray[np.float32] | None:
    """Return the vector of a memory by the encoder's name; None if it has none."""
    return memory.embedding if encoder == "default" else memory.embeddings.get(encoder)


def calibrate(
    poses: NDArray[np.float64], vectors: NDArray[np.float64], usual: PlaceCalibration | None = None
) -> PlaceCalibration | None:
    """Return the meaning of similarities in a map; ``usual`` if it has too few places to tell.

    Args:
        poses: (N, 3) float64 x, y in metres and yaw in radians.
        vectors: (N, dim) float64 unit vectors.
        usual: of the encoder, or None.
    """
    one, other = np.triu_indices(len(poses), 1)
    away = np.hypot(*(poses[one, :2] - poses[other, :2]).T)
    turned = np.abs(np.remainder(poses[one, 2] - poses[other, 2] + math.pi, math.tau) - math.pi)
    shown = spread((vectors @ vectors.T)[one, other])
    apart = shown[(away > _APART_M) | (turned > _TURNED_RAD)]
    near = (away < _NEIGHBOUR_M) & (turned < _SAME_RAD)
    if len(apart) < _LEAST_PAIRS or near.sum() < _LEAST_PAIRS:
        return usual
    # Neighbours in the same direction lie on a line: similarity against distance.
    slope, here = np.polyfit(away[near], shown[near], 1)
    if slope >= -0.02:
        return usual
    sigma = max(float(apart.std()), _LEAST_SIGMA)
    return PlaceCalibration(float(here), float(-slope), float(apart.mean()), sigma)
