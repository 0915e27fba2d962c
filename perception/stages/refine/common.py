"""What the implementations of a refinement step share."""

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
        fit_logits: (B, M) float32: sigmoid estimates the overlap quality in [0, 1].
        flip_logits: (B, M) float32: positive when the heading points the other way.
        features: (B, M, H1) what the first hidden layer makes of points, map, class and size, in the type of
            the weights; anything in rows without a box.
    """

    boxes: Tensor
    labels: Tensor
    fit_logits: Tensor
    flip_logits: Tensor
    features: Tensor


class RefineTiles(NamedTuple):
    """How the work is cut up for the GPU; it changes no result beyond rounding.

    Attributes:
        parts: programs that look for the points of a box; 0: by the number of boxes.
        rows, length: pillar rows that such a program looks at together, and points of each; powers of two.
        samples: outputs of the first hidden layer that a program makes of map samples, a power of two of at
            least 16.
        warps: of the programs of this first launch.
        points: points of a block that goes through the layers, a power of two of at least 16.
        columns: outputs of the last of these layers that a program computes, a power of two of at least 16;
            float32 takes 32.
        programs: that share the blocks of all boxes.
        point_warps, registers: of the programs of this second launch, and most registers of a thread; 0: as
            many as the compiler likes, as always for float32.
        counted: boxes whose points such a program counts at a time, a power of two of at least 16.
        head_columns: outputs of a hidden layer that a program computes, a power of two of at least 16.
        head_warps: of the programs of the last launches.
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
        """Programs that share the pillar rows of each of ``boxes`` boxes."""
        # A car is some 30 rows of pillars long; an idle program costs little.
        return self.parts if self.parts else max(4, min(24, 2304 // max(boxes, 1)))


@dataclass(frozen=True, eq=False)
class RefineWorkspace:
    """Buffers between the launches of a refinement step, which leaves them as it found them.

    One serves all steps of a frame, one after the other. Made anew for every step it costs a launch more.

    Attributes:
        pooled: (rows, P3) int32 bits of the largest feature of each box's points; all zeros between steps.
        counts: (rows,) int32 points of each box; all zeros between steps.
        arrivals: (rows / 16,) int32 programs that finished a group of 16 boxes; all zeros between steps.
        context: (5, rows, H1) float32 what the first hidden layer makes of everything but the points, in
            five addends: one for each spot of the map, the first of them with class and size.
    """

    pooled: Tensor
    counts: Tensor
    arrivals: Tensor
    context: Tensor

    @classmethod
    def make(
        cls, boxes: int, weights: PackedRefine, *, device: torch.device | str | None = None
    ) -> RefineWorkspace:
        """Cleared buffers for ``boxes`` boxes of all frames together.

        Args:
            boxes: number of rows.
            weights: a step of the cascade, for its widths.
            device: where they lie; None: where the weights are.
        """
        pooled, hidden = weights.joined_points.shape
        device = weights.out.device if device is None else device
        # One buffer, because clearing costs a launch.
        sizes = [boxes * pooled, boxes, (boxes + 15) // 16]
        features, counts, arrivals = torch.zeros(sum(sizes), dtype=torch.int32, device=device).split(sizes)
        context = torch.empty(SPOTS, boxes, hidden, dtype=torch.float32, device=device)
        return cls(features.view(boxes, pooled), counts, arrivals, context)

    def clear(self) -> None:
        """Make what must be zero between steps zero again."""
        self.pooled.zero_()
        self.counts.zero_()
        self.arrivals.zero_()


def corrected(
    joined: Tensor, boxes: Tensor, weights: PackedRefine, *, turn: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return corrected boxes (R, 7), fit logits (R,) and flip logits (R,) by the last two layers.

    Args:
        joined: (R, H1) float32 what the first hidden layer makes.
        boxes: (R, 7) to be corrected.
        weights: of the step.
        turn: add half a turn to boxes whose flip logit is positive.
    """
    hidden = torch.relu(joined @ weights.hidden.float() + weights.hidden_bias)
    output = (hidden @ weights.out + weights.out_bias)[:, :OUTPUTS]
    refined = apply_residuals(boxes, output[:, :7])
    return turned(refined, output[:, 8]) if turn else refined, output[:, 7], output[:, 8]
