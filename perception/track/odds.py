"""Conversion between probabilities and log-odds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from perception.track.state import Float64Array


def log_odds(scores: npt.NDArray[np.floating[Any]]) -> Float64Array:
    """Return (M,) log-odds of probabilities, clipped to what single precision distinguishes from 0 and 1."""
    likely = np.clip(scores.astype(np.float64), 1e-7, 1 - 6e-8)
    return np.asarray(np.log(likely / (1.0 - likely)))


def probability(odds: Float64Array) -> Float64Array:
    """Return (M,) probabilities of log-odds."""
    return np.asarray(1.0 / (1.0 + np.exp(-odds)))
