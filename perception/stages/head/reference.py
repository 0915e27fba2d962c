"""Head in plain torch, for CPUs and as the oracle, with the rounding and float32 sums of the kernels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from perception.stages.head.common import boxes_of, hidden_of, product
from perception.stages.head.types import BoxWeights, HeatWeights, Peaks, UpWeights
from sparse_core.conv.grid.layout import FixedGrid, padded_width
from sparse_core.conv.grid.reference import row_of


def up(
    coarse: Tensor,
    fine: Tensor,
    grid: FixedGrid,
    weights: UpWeights,
    at: FixedGrid | None,
    out: Tensor | None,
) -> Tensor:
    """See :func:`perception.stages.head.fixed_up`."""
    rows, columns = grid.spatial_shape
    frames, width = grid.batch_size, weights.out_channels
    raised = torch.stack([product(coarse, matrix) for matrix in weights.up])
    if at is None:
        raised = raised.view(2, 2, frames, rows // 2, columns // 2, -1).permute(2, 3, 0, 4, 1, 5)
        axes = [torch.arange(size, device=coarse.device) for size in (frames, rows, columns)]
        frame, y, x = torch.meshgrid(*axes, indexing="ij")
        inside = torch.ones_like(y, dtype=torch.bool)
    else:
        raised = raised.permute(1, 0, 2)
        frame, y, x = (part.repeat_interleave(4) for part in at.coordinates().unbind(1))
        parity = torch.arange(4, device=coarse.device).repeat(at.capacity)
        inside = frame >= 0
        y, x = 2 * y + parity // 2, 2 * x + parity % 2
    raised = raised.reshape(frame.numel(), -1) + weights.up_bias
    cells = (((frame * rows + y) * padded_width(columns)) + x).flatten()
    found = row_of(grid.words, cells, inside.flatten(), grid.capacity).long()
    active = (found >= 0)[:, None]
    # Unused rows may hold NaN, so select by where and do not multiply by zero.
    read = torch.where(active, fine[found.clamp(min=0)], 0)
    lateral = torch.where(active, product(read, weights.lateral) + weights.lateral_bias, 0.0)
    result = torch.relu(raised + lateral)[:, :width].to(coarse.dtype)
    if out is None:
        return result
    return out.copy_(torch.where(inside.flatten()[:, None], result, out))


def heat(
    features: Tensor,
    weights: HeatWeights,
    shape: tuple[int, int],
    cells: Tensor | None,
    out: Tensor | None,
) -> Tensor:
    """See :func:`perception.stages.head.fixed_heat`."""
    if cells is not None:
        features = features[cells.clamp(min=0).long()]
    hidden = hidden_of(product(features, weights.hidden), weights.hidden_bias, features.dtype)
    logits = (product(hidden, weights.heat) + weights.heat_bias)[:, : weights.classes]
    scores = torch.sigmoid(logits)
    if cells is None:
        made = scores.view(-1, *shape, weights.classes).permute(0, 3, 1, 2)
        return made.contiguous() if out is None else out.copy_(made)
    assert out is not None
    listed = cells[cells >= 0].long()
    frame, place = listed // (shape[0] * shape[1]), listed % (shape[0] * shape[1])
    out.flatten(2)[frame, :, place] = scores[cells >= 0]
    return out


def peaks(heat: Tensor, top_k: int, minimum: Tensor) -> Peaks:
    """See :func:`perception.stages.head.fixed_peaks`."""
    rows, columns = heat.shape[2:]
    highest = F.max_pool2d(heat, 3, stride=1, padding=1)
    high = (heat > 0) & (heat >= minimum[:, None, None])
    kept = torch.where((highest == heat) & high, heat, 0.0).flatten(1)
    kept = F.pad(kept, (0, max(0, top_k - kept.shape[1])))
    scores, flat = torch.sort(kept, dim=1, descending=True, stable=True)
    scores, flat = scores[:, :top_k].contiguous(), flat[:, :top_k]
    found = scores > 0
    labels = torch.where(found, torch.div(flat, rows * columns, rounding_mode="floor"), -1)
    cells = torch.where(found, flat % (rows * columns), 0)
    return Peaks(scores, labels.to(torch.int32), cells.to(torch.int32))


def boxes(
    features: Tensor, cells: Tensor, labels: Tensor, weights: BoxWeights, shape: tuple[int, int]
) -> Tensor:
    """See :func:`perception.stages.head.fixed_boxes`."""
    frames, count = cells.shape
    rows, columns = shape
    device = cells.device
    frame = torch.arange(frames, device=device)[:, None].expand(-1, count).flatten()
    y, x = torch.div(cells.flatten().long(), columns, rounding_mode="floor"), cells.flatten().long() % columns
    label = labels.flatten().long()

    def patch(tap: int) -> Tensor:
        tap_y, tap_x = y + tap // 3 - 1, x + tap % 3 - 1
        inside = (tap_y >= 0) & (tap_y < rows) & (tap_x >= 0) & (tap_x < columns)
        at = torch.where(inside, (frame * rows + tap_y) * columns + tap_x, 0)
        return torch.where(inside[:, None], features[at], 0)

    return boxes_of(patch, torch.stack([x, y], dim=1), label, weights).view(frames, count, 7)
