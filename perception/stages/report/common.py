"""What the implementations share: the rules by which boxes are reported, and where everything lies."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import Self

from perception.config import DetectorConfig

#: Scores are kept so far from 0 and 1 before their logit is taken.
LEAST_SHARE = 1e-6


class ReportRules(NamedTuple):
    """How boxes of each class are reported.

    Attributes:
        table: (classes, 5) float64: whether scores are mapped (1 or 0), the map's scale and bias (of the
            logit), the footprint's length and width in metres (0: the box's own).
    """

    table: Tensor

    @classmethod
    def of(cls, config: DetectorConfig, device: torch.device | None = None) -> Self:
        """Those of ``nms.score_maps`` and ``nms.footprints_m``."""
        nms = config.nms
        rows = [
            (
                float(name in nms.score_maps),
                *nms.score_maps.get(name, (1.0, 0.0)),
                # As the boxes are: in single precision.
                *map(np.float32, nms.footprints_m.get(name, (0.0, 0.0))),
            )
            for name in config.head.classes
        ]
        return cls(torch.tensor(rows, dtype=torch.float64, device=device).reshape(-1, 5))


class Reported(NamedTuple):
    """Boxes of a batch as they are reported, on the host.

    Attributes:
        counts: (B,) int32 boxes of each frame; numbers: (N,) int32 as given.
        scores: (B, M) float32, not increasing; labels: (B, M) int32; boxes: (B, M, 7) float32;
            embeddings: (B, M, E) float32. What stands behind the last box is not defined.
    """

    counts: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.float32]
    embeddings: npt.NDArray[np.float32]


class ReportLayout(NamedTuple):
    """Where the parts of :class:`Reported` lie in one block of words, one after the other.

    Attributes:
        frames, most: frames of a batch, and boxes of a frame that there is room for.
        numbers: so many numbers of the batch.
        embedding: numbers of a vector.
    """

    frames: int
    most: int
    numbers: int
    embedding: int

    @property
    def words(self) -> int:
        """Words of the block, of four bytes."""
        return self.frames + self.numbers + self.frames * self.most * (9 + self.embedding)

    def views(self, words: npt.NDArray[np.int32]) -> Reported:
        """The parts of (W,) words."""
        frames, most, at = self.frames, self.most, 0

        def part(*shape: int) -> npt.NDArray[np.int32]:
            nonlocal at
            start, at = at, at + math.prod(shape)
            return words[start:at].reshape(shape)

        return Reported(
            part(frames),
            part(self.numbers),
            scores=part(frames, most).view(np.float32),
            labels=part(frames, most),
            boxes=part(frames, most, 7).view(np.float32),
            embeddings=part(frames, most, self.embedding).view(np.float32),
        )
