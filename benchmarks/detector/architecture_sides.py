"""Variants of the detector that newer ones have: where heat maps peak, and how far features spread."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.detector.trained_sides import PLAIN, Side
from perception.config import DetectorConfig
from perception.model.pillars import Pillars
from perception.train.data.batches import Batch
from perception.train.losses import network_losses
from perception.train.trainer import Trainer


class OccupiedTrainer(Trainer):
    """Heat maps peak where something was measured: at the point nearest to each centre, seen from above.

    No laser reaches many object centres, so a sparse head has no cell there (VoxelNeXt, Chen et al., CVPR
    2023).
    """

    def losses(self, pillars: Pillars, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """All losses of a batch, unweighted."""
        peaks = measured_peaks(batch)
        return network_losses(self.network, pillars, batch, generator, self.ranks, peaks=peaks)


def measured_peaks(batch: Batch) -> Tensor:
    """x and y of the point nearest to each box's centre in bird's-eye view: (B, M, 2) metres.

    Use the centre where a frame has no point.
    """
    peaks = batch.boxes[..., :2].clone()
    for frame, cloud in enumerate(batch.clouds):
        if len(cloud):
            nearest = torch.cdist(peaks[frame].double(), cloud[:, :2].double()).argmin(dim=1)
            peaks[frame] = cloud[nearest, :2]
    return peaks


def undilated(config: DetectorConfig) -> DetectorConfig:
    """Strided layers create cells only under active ones, so features do not spread in the backbone."""
    return replace(config, backbone=replace(config.backbone, dilating=False))


def without_neck_blocks(config: DetectorConfig) -> DetectorConfig:
    """No blocks on the whole coarse map, which is where features reach empty centres (as in SAFDNet)."""
    return replace(config, neck=replace(config.neck, blocks=0))


def with_more_neck_blocks(config: DetectorConfig) -> DetectorConfig:
    """Twice the blocks: features spread twice as far before the head."""
    return replace(config, neck=replace(config.neck, blocks=2 * config.neck.blocks))


SIDES = {
    PLAIN: Side(),
    "peaks at points": Side(trainer=OccupiedTrainer),
    "no dilation": Side(undilated),
    "no neck blocks": Side(without_neck_blocks),
    "twice the neck blocks": Side(with_more_neck_blocks),
}
