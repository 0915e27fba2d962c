"""Centre head (CenterPoint, Yin et al., CVPR 2021): a heat map per class, boxes read at its peaks only."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perception.config import HeadConfig
from perception.geometry import GroundGrid
from perception.model.bands import convolve_map
from perception.model.layers import linear_rows
from perception.model.listed_map import ByteMap, FeatureMap, ListedMap

#: Width of a box code: dx, dy (cells), z (metres), log sizes over the class mean (3), sin yaw, cos yaw.
BOX_CODE = 8
#: Reference length, width, height in metres: KITTI's class means.
MEAN_SIZES_M: dict[str, tuple[float, ...]] = {
    "Car": (3.9, 1.6, 1.56),
    "Van": (5.0, 1.9, 2.2),
    "Truck": (10.0, 2.6, 3.2),
    "Pedestrian": (0.8, 0.6, 1.73),
    "Cyclist": (1.76, 0.6, 1.73),
}
_OTHER_SIZE_M = (2.0, 1.0, 1.6)


class Proposals(NamedTuple):
    """Boxes at the peaks of the heat map.

    Attributes:
        boxes: (B, K, 7) float32, LiDAR frame.
        scores: (B, K) float32, descending.
        labels: (B, K) int64 class indices.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor


class CentreHead(nn.Module):
    """Heat map of the whole map, and box codes at chosen cells.

    Args:
        config: classes and widths.
        in_channels: width of the map.
    """

    def __init__(self, config: HeadConfig, *, in_channels: int, grid: GroundGrid) -> None:
        super().__init__()
        self.config = config
        self.grid = grid
        width = config.channels
        self.heat_hidden = nn.Conv2d(in_channels, width, 1)
        self.heat = nn.Conv2d(width, len(config.classes), 1)
        # Heat starts near 0.01, so that empty cells do not dominate the first steps.
        nn.init.constant_(self.heat.bias, -math.log(99.0))  # type: ignore[arg-type]
        self.box_hidden = nn.Linear(in_channels * 9, width)
        self.box_middle = nn.Linear(width, width)
        self.box = nn.Linear(width, len(config.classes) * BOX_CODE)
        known = MEAN_SIZES_M | config.sizes_m
        sizes = [known.get(name, _OTHER_SIZE_M) for name in config.classes]
        self.register_buffer("mean_sizes", torch.tensor(sizes, dtype=torch.float32), persistent=False)
        self.mean_sizes: Tensor

    def heat_logits(self, features: Tensor) -> Tensor:
        """Compute logits (B, classes, H, W) of a map (B, C, H, W)."""
        return convolve_map(self.heat, convolve_map(self.heat_hidden, features, relu=True))

    def box_codes(self, features: FeatureMap, cells: Tensor, labels: Tensor) -> Tensor:
        """Compute box codes (P, 8) float32 at chosen cells, see ``BOX_CODE``.

        Args:
            features: (B, C, H, W), or another map.
            cells: (P, 3) int64 ``(batch, iy, ix)``.
            labels: (P,) int64.
        """
        # Convert the bfloat16 maps of perception.stages.cpu, but not those of autocast.
        patches = _patches(features, cells)
        if patches.dtype != torch.float32 and not torch.is_autocast_enabled(patches.device.type):
            patches = patches.float()
        hidden = torch.relu(linear_rows(self.box_hidden, patches))
        hidden = torch.relu(linear_rows(self.box_middle, hidden))
        codes = linear_rows(self.box, hidden).reshape(len(cells), len(self.config.classes), BOX_CODE)
        chosen: Tensor = codes[torch.arange(len(cells), device=cells.device), labels]
        return chosen.float()

    def decode(self, codes: Tensor, cells: Tensor, labels: Tensor) -> Tensor:
        """Decode box codes (P, 8) at cells (P, 3) to boxes (P, 7) in the LiDAR frame."""
        return decode_boxes(codes, cells[:, 1:].flip(1), self.mean_sizes[labels], self.grid)

    def encode(self, boxes: Tensor, cells: Tensor, labels: Tensor) -> Tensor:
        """Encode boxes (P, 7) as codes (P, 8): the inverse of :meth:`decode`."""
        offset = self.grid.position_of(boxes[:, :2])
        offset = offset - self.grid.positions_of_cells(cells[:, 1:].flip(1)) - 0.5
        sizes = torch.log(boxes[:, 3:6] / self.mean_sizes[labels])
        yaw = boxes[:, 6:7]
        return torch.cat([offset, boxes[:, 2:3], sizes, torch.sin(yaw), torch.cos(yaw)], dim=1)

    def propose_listed(
        self,
        features: ListedMap,
        heat_logits: Tensor,
        batch_size: int,
        *,
        top_k: int | None = None,
        above: Tensor | None = None,
    ) -> Proposals:
        """:meth:`propose` for a map of listed cells; only these can be peaks.

        Args:
            heat_logits: (M + 4, classes) in the order of its values.
            batch_size: frames B; results are padded to ``top_k`` with scores of zero.
            top_k, above: see :meth:`propose`.
        """
        heat = torch.sigmoid(heat_logits.float())
        frame, row, column = features.cells[:, :, None].unbind(1)
        around = torch.arange(3) - 1
        rows = features.rows_of(
            frame[..., None], (row + around)[:, :, None], (column + around)[:, None]
        ).view(-1, 9)
        nearby = heat.index_select(0, rows[:, 0])
        for tap in range(1, 9):
            torch.maximum(nearby, heat.index_select(0, rows[:, tap]), out=nearby)
        heat = heat[: len(rows)]
        # Transpose so that ties rank by class, then by cell, as in a whole map.
        peaks = torch.where(nearby == heat, heat, 0.0).T
        if above is not None:
            peaks = torch.where(peaks > above[:, None], peaks, 0.0)
        most = self.config.top_k if top_k is None else top_k
        found = [self._highest(features, peaks, frame[:, 0] == number, most) for number in range(batch_size)]
        boxes, scores, labels = (torch.stack(parts) for parts in zip(*found, strict=True))
        return Proposals(boxes, scores, labels)

    def _highest(
        self, features: ListedMap, peaks: Tensor, own: Tensor, most: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the ``most`` highest peaks of a frame: boxes (K, 7), scores (K,), labels (K,)."""
        rows = own.nonzero()[:, 0]
        heights = peaks.index_select(1, rows).flatten()
        count = min(most, int(torch.count_nonzero(heights)))
        scores, flat = torch.topk(heights, count)
        labels, cells = flat // max(1, len(rows)), features.cells[rows[flat % max(1, len(rows))]]
        boxes = self.decode(self.box_codes(features, cells, labels), cells, labels)
        missing = most - count
        return F.pad(boxes, (0, 0, 0, missing)), F.pad(scores, (0, missing)), F.pad(labels, (0, missing))

    def propose(
        self,
        features: Tensor | ByteMap,
        heat_logits: Tensor,
        *,
        top_k: int | None = None,
        above: Tensor | None = None,
        trim: bool = False,
    ) -> Proposals:
        """Decode boxes at the ``top_k`` highest local peaks of the heat map, over all classes.

        Args:
            features: (B, C, H, W), or bytes of that map.
            heat_logits: (B, classes, H, W).
            top_k: number of peaks; None: the configured number.
            above: (classes,) float32 scores that peaks must exceed; None: 0.
            trim: drop trailing columns that are zero in all frames, which reads a size back to the host.
        """
        heat = torch.sigmoid(heat_logits.float()).contiguous()
        highest = _largest_nearby(heat) == heat
        if above is not None:
            highest &= heat > above[:, None, None]
        peaks = torch.where(highest, heat, 0.0)
        batch, classes, rows, columns = heat.shape
        count = min(self.config.top_k if top_k is None else top_k, classes * rows * columns)
        scores, flat = torch.topk(peaks.flatten(1), count, dim=1)
        if trim:
            count = int((scores > 0).sum(1).max())
            scores, flat = scores[:, :count], flat[:, :count]
        labels, cell = flat // (rows * columns), flat % (rows * columns)
        frame = torch.arange(batch, device=heat.device)[:, None].expand(-1, count)
        cells = torch.stack([frame, cell // columns, cell % columns], dim=2).view(-1, 3)
        codes = self.box_codes(features, cells, labels.view(-1))
        boxes = self.decode(codes, cells, labels.view(-1))
        return Proposals(boxes.view(batch, count, 7), scores, labels)


def decode_boxes(
    codes: Tensor, cells: Tensor, mean_sizes: Tensor, grid: GroundGrid, *, limit: float = 2.0
) -> Tensor:
    """Decode box codes to boxes (P, 7) float32 in the LiDAR frame.

    Args:
        codes: (P, 8) float32, see ``BOX_CODE``.
        cells: (P, 2) integer column and row of the map's cells.
        mean_sizes: (P, 3) reference sizes of the boxes' classes, metres.
        limit: largest absolute logarithm of a size.
    """
    centre = grid.metres_of(grid.positions_of_cells(cells) + 0.5 + codes[:, :2])
    sizes = mean_sizes * torch.exp(codes[:, 3:6].clamp(-limit, limit))
    yaw = torch.atan2(codes[:, 6], codes[:, 7])
    return torch.cat([centre, codes[:, 2:3], sizes, yaw[:, None]], dim=1)


def _largest_nearby(heat: Tensor) -> Tensor:
    """Return the maximum over 3x3 cells of (B, K, H, W), not negative."""
    if heat.is_cuda:
        return F.max_pool2d(heat, 3, stride=1, padding=1)
    # On a CPU max_pool2d is twenty times slower than shifted copies.
    padded = F.pad(heat, (1, 1, 1, 1))
    across = torch.maximum(torch.maximum(padded[..., :-2], padded[..., 1:-1]), padded[..., 2:])
    return torch.maximum(torch.maximum(across[..., :-2, :], across[..., 1:-1, :]), across[..., 2:, :])


def _patches(features: FeatureMap, cells: Tensor) -> Tensor:
    """Return 3x3 patches around cells, zero beyond the edge: (P, 9 * C)."""
    offsets = torch.tensor([(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)], device=cells.device)
    position = cells[:, None, 1:] + offsets
    if not isinstance(features, Tensor):
        return features.at(cells[:, :1], *position.unbind(2)).flatten(1)
    channels, rows, columns = features.shape[1:]
    by_cell = features.permute(0, 2, 3, 1)
    limits = torch.tensor([rows, columns], device=cells.device)
    inside = ((position >= 0) & (position < limits)).all(dim=2)
    position = torch.minimum(position.clamp(min=0), limits - 1)
    if by_cell.is_contiguous() and not torch.is_grad_enabled():
        # On a CPU, index_select of rows is faster than indexing with three tensors.
        flat = (cells[:, :1] * rows + position[..., 0]) * columns + position[..., 1]
        gathered = by_cell.view(-1, channels).index_select(0, flat.view(-1)).view(len(cells), 9, channels)
    else:
        gathered = by_cell[cells[:, :1].expand(-1, 9), position[..., 0], position[..., 1]]
    return (gathered * inside[..., None]).view(len(cells), 9 * channels)
