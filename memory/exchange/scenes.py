"""Places from the lines of ``detections.jsonl``: the pose of a scan and its place embedding.

A line holds static structure (``structure``), which :class:`memory.encode.SceneEncoder` encodes, or the
finished vector (``place``). docs/memory-format.md describes both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memory.exchange.vectors import rows_of
from memory.types import check_text

if TYPE_CHECKING:
    from memory.encode import SceneEncoder

SCENE_ENCODER = "scene-encoder"
#: Distance, turn or time since the last place of a map after which a new one is stored.
APART_M, APART_RAD, APART_NS = 1.0, math.radians(30.0), 60 * 1_000_000_000


class Scenes:
    """Place embeddings of a file, for frames that are far enough apart."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[NDArray[np.float64], int]] = {}

    def vectors(
        self,
        record: Mapping[str, Any],
        boxes: NDArray[np.float64],
        labels: Sequence[str],
        scores: Sequence[float],
    ) -> dict[str, NDArray[np.float32]]:
        """Return the place embedding by encoder name; empty if the line has none.

        Args:
            boxes: (N, 7) boxes of objects in the sensor frame.
            labels, scores: N of each.

        Raises:
            ValueError, TypeError: a field is wrong.
        """
        if record.get("place") is not None:
            place = record["place"]
            (vector,) = rows_of(place, "place", 1)
            return {check_text("place encoder", place.get("encoder")): vector}
        if record.get("structure") is None:
            return {}
        from memory.encode import column_tokens, detection_tokens

        columns = rows_of(record["structure"], "structure")
        if columns.shape[1] != 8:
            raise ValueError(f"structure: dim must be 8, a box and a score, got {columns.shape[1]}")
        tokens = detection_tokens(boxes, labels, scores) + column_tokens(columns[:, :7], columns[:, 7])
        return {SCENE_ENCODER: _scene_encoder().encode([tokens])[0]}

    def is_new_place(self, map_id: str, map_from_lidar: NDArray[np.float64], time_ns: int) -> bool:
        """Return True, and remember the pose, if a frame is far enough from the last remembered one."""
        before = self._last.get(map_id)
        if before is not None:
            moved = np.linalg.inv(before[0]) @ map_from_lidar
            turned = math.acos(float(np.clip((np.trace(moved[:3, :3]) - 1.0) / 2.0, -1.0, 1.0)))
            waited = abs(time_ns - before[1])
            if np.linalg.norm(moved[:3, 3]) < APART_M and turned < APART_RAD and waited < APART_NS:
                return False
        self._last[map_id] = (map_from_lidar, time_ns)
        return True


@cache
def _scene_encoder() -> SceneEncoder:
    # Import torch only for files with places.
    from memory.encode import SceneEncoder

    return SceneEncoder.pretrained()
