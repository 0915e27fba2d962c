"""Captions of detected objects, so that text search finds them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory.wording.words import listed

#: Two objects are near each other if the gap between them is at most this; each counts as a circle of its
#: length.
NEAR_M = 3.0
_SIDES = ("ahead", "to the left", "behind", "to the right")


def captions_of(boxes: NDArray[np.float64], labels: Sequence[str]) -> list[str]:
    """Return one caption per box: ``car, 4.2 x 1.8 x 1.5 m, 12 m ahead, near a cyclist and 2 pedestrians``.

    Args:
        boxes: (N, 7) in the sensor frame: x forward, y left, metres and radians.
        labels: N class names.
    """
    apart = np.hypot(*(boxes[:, None, axis] - boxes[None, :, axis] for axis in (0, 1)))
    near = apart - (boxes[:, None, 3] + boxes[None, :, 3]) / 2 <= NEAR_M
    np.fill_diagonal(near, False)
    found = []
    for row, (box, label) in enumerate(zip(boxes.tolist(), labels, strict=True)):
        x, y, _, length, width, height, _ = box
        side = _SIDES[round(math.atan2(y, x) / (math.pi / 2)) % 4]
        parts = [label.lower() or "object", f"{length:.1f} x {width:.1f} x {height:.1f} m"]
        parts.append(f"{math.hypot(x, y):.0f} m {side}")
        if near[row].any():
            parts.append(
                f"near {counted_words([labels[other] for other in np.flatnonzero(near[row]).tolist()])}"
            )
        found.append(", ".join(parts))
    return found


def place_caption(labels: Sequence[str]) -> str:
    """Return ``place with 2 cars and a cyclist in view``."""
    return f"place with {counted_words(labels) if labels else 'no known object'} in view"


def counted_words(labels: Sequence[str]) -> str:
    """Return ``2 cars and a cyclist``, the most frequent first."""
    counts = sorted(
        Counter(label.lower() or "object" for label in labels).items(), key=lambda c: (-c[1], c[0])
    )
    words = [f"{count} {label}s" if count > 1 else f"{_article(label)} {label}" for label, count in counts]
    return listed(words, most=len(words))


def _article(word: str) -> str:
    return "an" if word[:1] in "aeiou" else "a"
