"""Reporting rules and memory layout of all implementations."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import Self

from perception.config import DetectorConfig

#: Smallest distance of scores from 0 and 1 before the logit.
LEAST_SHARE = 1e-6
#: Numbers per class in :class:`ReportRules`.
RULES = 8
#: A box keeps at least this share of its size.
LEAST_SIZE = 0.5


class ReportRules(NamedTuple):
    """Reporting rules of each class.

    Attributes:
        table: (classes, 8) float64: 1 if scores are mapped, else 0; scale and bias of the logit; length and
            width of the footprint in metres (0: those of the box); metres added to length, width and height.
    """

    table: Tensor

    @classmethod
    def of(cls, config: DetectorConfig, device: torch.device | None = None) -> Self:
        """Make the rules from ``nms.score_maps``, ``nms.footprints_m`` and ``nms.size_offsets_m``."""
        nms, rows = config.nms, []
        for name in config.head.classes:
            added = nms.size_offsets_m.get(name, (0.0, 0.0, 0.0))
            if name in nms.footprints_m:
                added = (0.0, 0.0, added[2])
            # Round to single precision, like boxes.
            sizes = map(np.float32, (*nms.footprints_m.get(name, (0.0, 0.0)), *added))
            rows.append((float(name in nms.score_maps), *nms.score_maps.get(name, (1.0, 0.0)), *sizes))
        return cls(torch.tensor(rows, dtype=torch.float64, device=device).reshape(-1, RULES))


class Reported(NamedTuple):
    """Reported boxes of a batch, on the host.

    Attributes:
        counts: (B,) int32 boxes of each frame; numbers: (N,) int32 input.
        scores: (B, M) float32, descending; labels: (B, M) int32; boxes: (B, M, 7) float32;
            embeddings: (B, M, E) float32; all undefined after the last box.
    """

    counts: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.float32]
    embeddings: npt.NDArray[np.float32]


class ReportLayout(NamedTuple):
    """Layout of the consecutive parts of :class:`Reported` in a block of words.

    Attributes:
        frames, most: frames of a batch, and capacity for boxes per frame.
        numbers: length of ``numbers``.
        embedding: length of an embedding.
    """

    frames: int
    most: int
    numbers: int
    embedding: int

    @property
    def words(self) -> int:
        """Words of the block, four bytes each."""
        return self.frames + self.numbers + self.frames * self.most * (9 + self.embedding)

    def views(self, words: npt.NDArray[np.int32]) -> Reported:
        """Return views of the parts of (W,) words."""
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
