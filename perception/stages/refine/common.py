"""Results, tiles and buffers of a refinement step, for all implementations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from perception.model.refine import OUTPUTS, apply_residuals, turned
from perception.stages.refine.weights import SPOTS, PackedRefine


class RefinedBoxes(NamedTuple):
    """Result of a refinement step; rows without a box have label -1 and zeros.

    Attributes:
        boxes: (B, M, 7) float32.
        labels: (B, M) int32.
        fit_logits: (B, M) float32 logits of the predicted overlap in [0, 1].
        flip_logits: (B, M) float32, positive if the heading is opposite.
        features: (B, M, H1) output of the first hidden layer, in the dtype of the weights; undefined without
            a box.
    """

    boxes: Tensor
    labels: Tensor
    fit_logits: Tensor
    flip_logits: Tensor
    features: Tensor


class RefineTiles(NamedTuple):
    """Tiles of the GPU kernels; they change results by rounding only. Sizes are powers of two, at least 16.

    Attributes:
        parts: first launch: programs that search the points of a box; 0: by the number of boxes.
        rows, length: first launch: pillar rows per step and points per row; any powers of two.
        samples: first launch: outputs of the first hidden layer per program of map samples.
        warps: first launch: warps per program.
        points: second launch: points per block.
        columns: second launch: outputs of the last point layer per program; 32 for float32.
        programs: second launch: programs that share the blocks of all boxes.
        point_warps: second launch: warps per program.
        registers: second launch: largest number of registers per thread; 0, and for float32: no limit.
        counted: second launch: boxes per step of the count of points.
        head_columns: last launches: outputs of a hidden layer per program.
        head_warps: last launches: warps per program.
    """

    parts: int = 0
    rows: int = 1
    length: int = 256
    samples: int = 32
    warps: int = 4
    points: int = 64
    columns: int = 256
    programs: int = 264
    point_warps: int = 4
    registers: int = 0
    counted: int = 1024
    head_columns: int = 32
    head_warps: int = 2

    def parts_of(self, boxes: int) -> int:
        """Return the number of programs per box for ``boxes`` boxes."""
        # A car is about 30 rows of pillars long, and an idle program costs little.
        return self.parts if self.parts else max(4, min(24, 2304 // max(boxes, 1)))


@dataclass(frozen=True, eq=False)
class RefineWorkspace:
    """Buffers between the launches of a refinement step; all steps of a frame can share one workspace.

    Attributes:
        pooled: (rows, P3) int32 bits of the largest point features of each box; zero between steps.
        counts: (rows,) int32 points of each box; zero between steps.
        arrivals: (rows / 16,) int32 finished programs per group of 16 boxes; zero between steps.
        context: (5, rows, H1) float32 inputs of the first hidden layer without the points: one addend per
            map sample, the first including class and size.
    """

    pooled: Tensor
    counts: Tensor
    arrivals: Tensor
    context: Tensor

    @classmethod
    def make(
        cls, boxes: int, weights: PackedRefine, *, device: torch.device | str | None = None
    ) -> RefineWorkspace:
        """Allocate cleared buffers.

        Args:
            boxes: number of boxes in the batch.
            weights: weights of a step, for the widths.
            device: device of the buffers; None: that of the weights.
        """
        pooled, hidden = weights.joined_points.shape
        device = weights.out.device if device is None else device
        # One buffer, because clearing costs a launch.
        sizes = [boxes * pooled, boxes, (boxes + 15) // 16]
        features, counts, arrivals = torch.zeros(sum(sizes), dtype=torch.int32, device=device).split(sizes)
        context = torch.empty(SPOTS, boxes, hidden, dtype=torch.float32, device=device)
        return cls(features.view(boxes, pooled), counts, arrivals, context)

    def clear(self) -> None:
        """Set the buffers that must be zero between steps to zero."""
        self.pooled.zero_()
        self.counts.zero_()
        self.arrivals.zero_()


def corrected(
    joined: Tensor, boxes: Tensor, weights: PackedRefine, *, turn: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the last two layers; return corrected boxes (R, 7), fit logits (R,) and flip logits (R,).

    Args:
        joined: (R, H1) float32 output of the first hidden layer.
        boxes: (R, 7) boxes to correct.
        turn: add half a turn to boxes with a positive flip logit.
    """
    hidden = torch.relu(joined @ weights.hidden.float() + weights.hidden_bias)
    output = (hidden @ weights.out + weights.out_bias)[:, :OUTPUTS]
    refined = apply_residuals(boxes, output[:, :7])
    return turned(refined, output[:, 8]) if turn else refined, output[:, 7], output[:, 8]
