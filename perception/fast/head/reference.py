"""The last map and what is read from it in plain torch: the oracle, and what runs on a CPU.

Layers round to the features' type where the kernels do, and sum in float32 as they do.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from perception.fast.head.layout import BoxWeights, HeatWeights, Peaks, UpWeights
from perception.head import BOX_CODE
from sparse_core.conv.grid.layout import FixedGrid, padded_width
from sparse_core.conv.grid.reference import row_of

__all__ = ["boxes", "heat", "peaks", "up"]


def up(coarse: Tensor, fine: Tensor, grid: FixedGrid, weights: UpWeights) -> Tensor:
    """See :func:`perception.fast.head.fixed_up`."""
    rows, columns = grid.spatial_shape
    frames, width = grid.batch_size, weights.out_channels
    raised = torch.stack([_layer(coarse, matrix) for matrix in weights.up])
    raised = raised.view(2, 2, frames, rows // 2, columns // 2, -1).permute(2, 3, 0, 4, 1, 5)
    raised = raised.reshape(frames * rows * columns, -1) + weights.up_bias
    axes = [torch.arange(size, device=coarse.device) for size in (frames, rows, columns)]
    frame, y, x = torch.meshgrid(*axes, indexing="ij")
    cells = (((frame * rows + y) * padded_width(columns)) + x).flatten()
    found = row_of(grid.words, cells, torch.ones_like(cells, dtype=torch.bool), grid.capacity).long()
    active = (found >= 0)[:, None]
    # Rows behind the last may hold anything: chosen by where, never multiplied by zero.
    read = torch.where(active, fine[found.clamp(min=0)], 0)
    lateral = torch.where(active, _layer(read, weights.lateral) + weights.lateral_bias, 0.0)
    return torch.relu(raised + lateral)[:, :width].to(coarse.dtype)


def heat(features: Tensor, weights: HeatWeights, shape: tuple[int, int]) -> Tensor:
    """See :func:`perception.fast.head.fixed_heat`."""
    hidden = _hidden(_layer(features, weights.hidden), weights.hidden_bias, features.dtype)
    logits = (_layer(hidden, weights.heat) + weights.heat_bias)[:, : weights.classes]
    return torch.sigmoid(logits).view(-1, *shape, weights.classes).permute(0, 3, 1, 2).contiguous()


def peaks(heat: Tensor, top_k: int, minimum: float) -> Peaks:
    """See :func:`perception.fast.head.fixed_peaks`."""
    rows, columns = heat.shape[2:]
    highest = F.max_pool2d(heat, 3, stride=1, padding=1)
    kept = torch.where((highest == heat) & (heat > 0) & (heat >= minimum), heat, 0.0).flatten(1)
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
    """See :func:`perception.fast.head.fixed_boxes`."""
    frames, count = cells.shape
    rows, columns = shape
    device = cells.device
    frame = torch.arange(frames, device=device)[:, None].expand(-1, count).flatten()
    y, x = torch.div(cells.flatten().long(), columns, rounding_mode="floor"), cells.flatten().long() % columns
    label = labels.flatten().long()
    sums = torch.zeros(len(frame), weights.hidden.shape[2], device=device)
    for tap, matrix in enumerate(weights.hidden):
        beside_y, beside_x = y + tap // 3 - 1, x + tap % 3 - 1
        inside = (beside_y >= 0) & (beside_y < rows) & (beside_x >= 0) & (beside_x < columns)
        at = torch.where(inside, (frame * rows + beside_y) * columns + beside_x, 0)
        sums += _layer(torch.where(inside[:, None], features[at], 0), matrix)
    hidden = _hidden(sums, weights.hidden_bias, features.dtype)
    hidden = _hidden(_layer(hidden, weights.middle), weights.middle_bias, features.dtype)
    codes = _layer(hidden, weights.box) + weights.box_bias
    known = label.clamp(min=0)
    codes = codes.gather(1, known[:, None] * BOX_CODE + torch.arange(BOX_CODE, device=device))
    centres = [
        (cell + 0.5 + codes[:, axis]) * weights.cell_m + weights.origin_m[axis]
        for axis, cell in enumerate((x.float(), y.float()))
    ]
    sizes = weights.mean_sizes[known] * torch.exp(codes[:, 3:6].clamp(-2.0, 2.0))
    yaw = torch.atan2(codes[:, 6], codes[:, 7])
    decoded = torch.cat([torch.stack([*centres, codes[:, 2]], dim=1), sizes, yaw[:, None]], dim=1)
    return torch.where(label[:, None] >= 0, decoded, 0.0).view(frames, count, 7)


def _layer(rows: Tensor, matrix: Tensor) -> Tensor:
    """(N, C) times a packed matrix in float32."""
    return rows.float() @ matrix[: rows.shape[1]].float()


def _hidden(sums: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Bias, ReLU and rounding of a layer in between."""
    return torch.relu(sums + bias).to(dtype)
