"""Places out of the lines of ``detections.jsonl``: where a scan was taken, and how it looks there.

A line has what stood around (``structure``), of which :class:`memory.encode.SceneEncoder` makes the vector,
or the vector itself (``place``), by whoever wrote the line: docs/memory-format.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memory.exchange.vectors import rows_of
from memory.types import check_text

if TYPE_CHECKING:
    from memory.encode import SceneEncoder

SCENE_ENCODER = "scene-encoder"
#: A place is remembered anew after so much of any of them since the last one of its map.
APART_M, APART_RAD, APART_NS = 1.0, math.radians(30.0), 60 * 1_000_000_000


class Scenes:
    """Vectors of the places of a file, for as many of its frames as are apart from each other."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[NDArray[np.float64], int]] = {}

    @cached_property
    def _encoder(self) -> SceneEncoder:
        # What has no places does without torch's weights.
        from memory.encode import SceneEncoder

        return SceneEncoder.pretrained()

    def vectors(
        self,
        record: Mapping[str, Any],
        boxes: NDArray[np.float64],
        labels: Sequence[str],
        scores: Sequence[float],
    ) -> dict[str, NDArray[np.float32]]:
        """By the name of the encoder; empty where the line says nothing of the place.

        Args:
            record: the line.
            boxes: (N, 7) in the frame of the sensor, of objects.
            labels, scores: N of them.

        Raises:
            ValueError, TypeError: a field is wrong; names it.
        """
        if record.get("place") is not None:
            said = record["place"]
            (vector,) = rows_of(said, "place", 1)
            return {check_text("place encoder", said.get("encoder")): vector}
        if record.get("structure") is None:
            return {}
        from memory.encode import column_tokens, detection_tokens

        columns = rows_of(record["structure"], "structure")
        if columns.shape[1] != 8:
            raise ValueError(f"structure: dim must be 8, a box and a score, got {columns.shape[1]}")
        tokens = detection_tokens(boxes, labels, scores) + column_tokens(columns[:, :7], columns[:, 7])
        return {SCENE_ENCODER: self._encoder.encode([tokens])[0]}

    def apart(self, map_id: str, map_from_lidar: NDArray[np.float64], time_ns: int) -> bool:
        """Whether a frame is far enough from the last one for which this was so; then it is the last one."""
        before = self._last.get(map_id)
        if before is not None:
            moved = np.linalg.inv(before[0]) @ map_from_lidar
            turned = math.acos(float(np.clip((np.trace(moved[:3, :3]) - 1.0) / 2.0, -1.0, 1.0)))
            waited = abs(time_ns - before[1])
            if np.linalg.norm(moved[:3, 3]) < APART_M and turned < APART_RAD and waited < APART_NS:
                return False
        self._last[map_id] = (map_from_lidar, time_ns)
        return True
