"""What frames on buffers of fixed size have in common, whatever their grid: input, output, suppression."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from perception.config import DetectorConfig
from perception.model.network import Network
from perception.run.program import StageRunner, Steps, at_once, run_frame
from perception.stages.nms import Suppressed, fixed_suppress
from sparse_core.op import Impl

Located = TypeVar("Located")
Levels = TypeVar("Levels")
Map = TypeVar("Map")
Peaks = TypeVar("Peaks")
Boxes = TypeVar("Boxes")


class FixedScans(NamedTuple):
    """A batch of frames.

    Attributes:
        points: (B, P, 4) float32 x, y, z (metres, LiDAR frame), intensity, on the device.
        lengths: (B,) int32 points of each frame.
    """

    points: Tensor
    lengths: Tensor


class FrameBoxes(NamedTuple):
    """What a frame, or a batch of them, gives; all on the device.

    Attributes:
        boxes: (B, M, 7) float32, LiDAR frame, best score first; zeros behind the last.
        scores: (B, M) float32; labels: (B, M) int32, -1 behind the last.
        counts: (B,) int32 boxes of each frame.
        numbers: (4 B + levels + lists,) int32: invalid points of each frame, pillars before each frame,
            active cells of each level and cells of each list near them, of all frames together; of a
            detector without a range then B points of each frame beyond its reach. At last the labels of the
            last peak and of the last proposal of each frame, 2 B, -1 where there was room for more.
        embeddings: (B, M, 128) float32 unit vectors, anything behind the last; (B, M, 0) without the head.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    counts: Tensor
    numbers: Tensor
    embeddings: Tensor


class GraphSteps(Steps[FixedScans, Located, Levels, Map, Peaks, Boxes, FrameBoxes]):
    """Steps that a CUDA graph can hold.

    Args:
        network: folded, on the device to run on.
        batch_size: frames of a call.
        dtype: of the features: float16, bfloat16 or float32.
        impl: of every step: ``"reference"``, ``"triton"`` or ``"auto"``.
        config: the network's own with other thresholds; None: the network's own.
    """

    #: True if there is to be room for active cells of each level of the backbone, not for pillars only.
    sparse: ClassVar[bool]

    def __init__(
        self,
        network: Network,
        *,
        batch_size: int,
        dtype: torch.dtype = torch.float16,
        impl: Impl = "auto",
        config: DetectorConfig | None = None,
    ) -> None:
        self.config, self.batch_size, self.dtype, self.impl = (
            config or network.config,
            batch_size,
            dtype,
            impl,
        )
        self.device = next(network.parameters()).device
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.embedding = None if network.embedding is None else copy.deepcopy(network.embedding).to(dtype)
        #: By class; the kernels keep what is at least this, so it is the next number in single precision.
        least = torch.tensor(self.config.proposal_scores, dtype=torch.float32)
        self.least_scores = torch.nextafter(least, torch.full_like(least, math.inf)).to(self.device)

    def choose_tiles(self, active: Sequence[int]) -> None:
        """Choose tiles for batches like one before; they decide how long a batch takes, not what it gives.

        Args:
            active: cells of each level and list of that batch, as in ``FrameBoxes.numbers``.
        """

    def __call__(self, scans: FixedScans, on_stage: StageRunner = at_once) -> FrameBoxes:
        """Detect objects in a batch of frames."""
        return run_frame(self, scans, on_stage)

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold these steps; plain torch reads sizes back to the host."""
        return self.device.type == "cuda" and self.impl != "reference"

    def _distinct(self, boxes: Tensor, scores: Tensor, labels: Tensor) -> Suppressed:
        """Proposals that are no duplicates."""
        return fixed_suppress(
            boxes,
            scores,
            labels,
            iou_threshold=self.config.nms.proposal_iou,
            score_threshold=0.0,
            max_output=self.config.limits.proposals,
            impl=self.impl,
        )

    def _final(
        self,
        kept: Suppressed,
        fit_logits: Tensor | None,
        features: Tensor | None,
        peaks: Tensor,
        numbers: Tensor,
    ) -> FrameBoxes:
        """What is left of refined boxes that overlap, with vectors where there are features and a head.

        Args:
            kept: proposals, refined.
            fit_logits, features: of the refinement.
            peaks: (B, K) int32 labels of the peaks, -1 behind the last.
            numbers: of the frame, without its last (see :class:`FrameBoxes`).
        """
        settings = self.config.nms
        vectors = None
        # Beside the suppression, which chooses rows.
        with self._beside():
            numbers = torch.cat([numbers, peaks[:, -1], kept.labels[:, -1]])
            if self.embedding is not None and features is not None:
                vectors = self.embedding(features)
        final = fixed_suppress(
            kept.boxes,
            kept.scores,
            kept.labels,
            iou_threshold=settings.iou,
            score_threshold=settings.score_threshold,
            max_output=self.config.limits.boxes,
            fit_logits=fit_logits,
            fit_weight=self.config.head.iou_weight,
            impl=self.impl,
        )
        chosen = final.scores.new_empty((*final.scores.shape, 0))
        self._join()
        if vectors is not None:
            rows = final.indices.clamp_min(0).long()[..., None].expand(-1, -1, vectors.shape[2])
            chosen = vectors.gather(1, rows)
        return FrameBoxes(*final[:4], numbers, chosen)

    def _beside(self) -> AbstractContextManager[Any]:
        """Work on a second stream, after what was asked for so far; see :meth:`_join`."""
        if self._side is None:
            return nullcontext()
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self._side)

    def _join(self) -> None:
        """Wait for the second stream."""
        if self._side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._side)
