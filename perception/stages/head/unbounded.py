"""Peaks and boxes of a map of listed cells with fixed shapes, for CUDA graphs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from perception.stages.head.common import boxes_of
from perception.stages.head.types import BoxWeights


class ListedPeaks(NamedTuple):
    """The highest local maxima of each frame, best first.

    Attributes:
        scores: (B, K) float32; 0 after the last peak.
        labels: (B, K) int32 classes; -1 after the last peak.
        rows: (B, K) int64 rows of the map; 0 after the last peak.
    """

    scores: Tensor
    labels: Tensor
    rows: Tensor


def listed_peaks(
    heat: Tensor, around: Tensor, frames: Tensor, top_k: int, batch_size: int, *, minimum: Tensor
) -> ListedPeaks:
    """:func:`~perception.stages.head.fixed_peaks` for listed cells; only these can be peaks.

    Args:
        heat: (classes, M + 4) float32.
        around: (9, M) int64 heat columns around each cell.
        frames: (M,) frame of each cell, -1 for unused rows.
        top_k: peaks per frame.
        batch_size: frames B.
        minimum: (classes,) float32 lowest scores of peaks.
    """
    cells = around.shape[1]
    own = heat[:, :cells]
    nearby = own
    for rows in around:
        nearby = torch.maximum(nearby, heat[:, rows])
    peaks = torch.where((nearby == own) & (own > 0) & (own >= minimum[:, None]), own, 0.0)
    frame = torch.arange(batch_size, device=heat.device)[:, None, None]
    peaks = torch.where(frames == frame, peaks, 0.0).flatten(1)
    # Bits of non-negative floats sort like the floats. The position in the low bits breaks ties.
    places = torch.arange(peaks.shape[1], device=heat.device)
    keys = (peaks.view(torch.int32).long() << 32) | (0xFFFFFFFF - places)
    flat = 0xFFFFFFFF - (torch.topk(keys, min(top_k, keys.shape[1]), dim=1).values & 0xFFFFFFFF)
    flat = torch.nn.functional.pad(flat, (0, top_k - flat.shape[1]))
    scores = peaks.gather(1, flat)
    found = (scores > 0) & (torch.arange(top_k, device=heat.device) < keys.shape[1])
    scores = torch.where(found, scores, 0.0)
    labels = torch.where(found, torch.div(flat, cells, rounding_mode="floor"), -1)
    return ListedPeaks(scores, labels.int(), torch.where(found, flat % cells, 0))


def listed_boxes(
    features: Tensor, around: Tensor, coordinates: Tensor, peaks: ListedPeaks, weights: BoxWeights
) -> Tensor:
    """:func:`~perception.stages.head.fixed_boxes` for rows of a map of listed cells.

    Args:
        features: (M + 4, C).
        around: (9, M) int64 rows around each cell.
        coordinates: (M, 3) integer ``(frame, row, column)`` of each cell.
        peaks: K peaks of B frames.
        weights: from :func:`pack_boxes`.

    Returns:
        (B, K, 7) float32; zeros for label -1.
    """
    rows = peaks.rows.flatten()
    read, cells = around[:, rows], coordinates[rows, 1:].flip(1)
    labels = peaks.labels.flatten().long()
    found = boxes_of(lambda tap: features[read[tap]], cells, labels, weights)
    return found.view(*peaks.labels.shape, 7)
