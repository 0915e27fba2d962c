"""A variant of the detector: attention between cells at the end of the sparse backbone.

Sort the occupied cells of the coarsest level by windows of the map and attend within groups of equal size,
after FlatFormer (Liu et al., CVPR 2023). Equal groups make the pattern a block diagonal for every scene.
:func:`register` puts the variant into the table of detectors as ``backbone: {kind: attended}``; trained and
run like any other, it is no part of what ships.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perception.config import BackboneConfig, DetectorConfig, from_dict, to_dict
from perception.errors import ConfigError
from perception.model.backbone import BackboneMaps, SparseBackbone
from perception.model.layers import linear_rows
from perception.model.network import Network
from perception.registry import DetectorKind
from perception.registry import register as add_kind
from perception.run.eager import EagerSteps
from perception.stages.cpu import PlannedLevels, PlannedMaps
from sparse_core.attention import BlockPattern, from_block_mask, sparse_attention
from sparse_core.conv import SparseTensor

#: Name in the table of detectors.
KIND = "attended"
#: Cells of the slowest turn of the position encoding, over 2 pi; the fastest has one cell.
_SLOWEST = 16.0
#: More cells than there are along a side of any map, or frames in a batch.
_SIDE = 1 << 20


@dataclass(frozen=True)
class AttentionConfig:
    """Attention between cells, ``backbone.attention`` of the configuration.

    Attributes:
        blocks: of attention and feed-forward; 0: none. Windows of every second one are shifted by half their
            side, and sorted by columns.
        heads: of each, as many as divide the channels into multiples of four.
        window: cells along a side of a window.
        group: cells that attend to each other, a multiple of 16 from 16 to 128.
        hidden: width of the feed-forward.
    """

    blocks: int = 2
    heads: int = 4
    window: int = 8
    group: int = 64
    hidden: int = 256

    def __post_init__(self) -> None:
        for name, least in (("blocks", 0), ("heads", 1), ("window", 1), ("hidden", 1)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"backbone.attention.{name} must be at least {least}, got {getattr(self, name)}"
                )
        if self.group % 16 or not 16 <= self.group <= 128:
            raise ConfigError(
                f"backbone.attention.group must be a multiple of 16 from 16 to 128, got {self.group}"
            )


@dataclass(frozen=True)
class AttendedConfig(BackboneConfig):
    """The section ``backbone`` of such a detector.

    Attributes:
        attention: what the cells of the coarsest level are given.
    """

    kind: str = KIND
    attention: AttentionConfig = field(default_factory=AttentionConfig)


class CellAttention(nn.Module):
    """Attention of occupied cells to those near them, then a feed-forward; the identity before training.

    Scores depend on relative positions only: queries and keys are rotated by angles proportional to row and
    column (RoPE, Su et al. 2021, along two axes).

    Args:
        channels: width of the cells' features.
        config: sizes.
        odd: whether windows are shifted and sorted by columns.
    """

    turns: Tensor

    def __init__(self, channels: int, config: AttentionConfig, *, odd: bool) -> None:
        super().__init__()
        if channels % (4 * config.heads):
            raise ConfigError(
                f"backbone.attention.heads must divide {channels} channels into multiples of four,"
                f" got {config.heads}"
            )
        self.config, self.odd = config, odd
        self.attention_norm, self.hidden_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.inputs = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, config.hidden), nn.Linear(config.hidden, channels)
        for last in (self.out, self.down):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
        quarter = channels // config.heads // 4
        turns = _SLOWEST ** -(torch.arange(quarter) / quarter)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, rows: Tensor, cells: Tensor, batch_size: int) -> Tensor:
        """Features of occupied cells.

        Args:
            rows: (N, C) floating.
            cells: (N, 3) ``(frame, row, column)``, integers, not negative, each once, in any order.
            batch_size: frames.

        Returns:
            (N, C); but for rounding, a cell's own does not depend on other frames, nor on the order of cells.
        """
        if len(rows) == 0:
            return rows
        rows = rows + self._attended(linear_rows(self.inputs, self.attention_norm(rows)), cells, batch_size)
        hidden = linear_rows(self.up, self.hidden_norm(rows))
        return rows + linear_rows(self.down, F.gelu(hidden))

    def _attended(self, inputs: Tensor, cells: Tensor, batch_size: int) -> Tensor:
        """(N, 3 * C) queries, keys and values to (N, C)."""
        heads, group = self.config.heads, self.config.group
        places = window_places(cells, batch_size, self.config.window, odd=self.odd)
        count = len(inputs)
        most = count if batch_size == 1 else int(places.counts.max())
        # One frame on a CPU is no batch, so it needs no room at the end, and gathers faster.
        ragged = batch_size > 1 or inputs.is_cuda
        length = -(-most // group) * group if ragged else most
        slot = places.frame * length + places.rank
        q, k, v = inputs.unflatten(1, (3, heads, -1)).unbind(1)
        angles = (cells[:, 1:, None] * self.turns).flatten(1)
        turned = torch.stack([turn(q, angles), turn(k, angles), v])
        placed = turned.new_zeros(3, batch_size * length, *turned.shape[2:]).index_copy(1, slot, turned)
        q, k, v = placed.unflatten(1, (batch_size, length)).transpose(2, 3)
        lengths = places.counts if ragged else None
        pattern = _groups(length, group, inputs.device)
        found = sparse_attention(q, k, v, pattern, query_lengths=lengths, key_lengths=lengths)
        back = found.transpose(1, 2).reshape(batch_size * length, -1).index_select(0, slot)
        return linear_rows(self.out, back)


@dataclass(frozen=True)
class WindowPlaces:
    """Return the order of cells sorted by frame, then window.

    Attributes:
        frame: (N,) int64 of each cell.
        rank: (N,) int64 of each within its frame.
        counts: (B,) int64 cells of each frame.
    """

    frame: Tensor
    rank: Tensor
    counts: Tensor


def window_places(cells: Tensor, batch_size: int, window: int, *, odd: bool) -> WindowPlaces:
    """Sort cells by window; nothing of it waits for a GPU.

    Args:
        cells: (N, 3) ``(frame, row, column)``, each once.
        batch_size: frames.
        window: cells along a side.
        odd: windows are shifted by half their side, and columns come before rows.
    """
    frame, first, second = cells.long().unbind(1)
    if odd:
        first, second = second + window // 2, first + window // 2
    within = first % window * window + second % window
    key = (frame * _SIDE + first // window) * _SIDE + second // window
    order = torch.argsort(key * window**2 + within)
    counts = (frame[:, None] == torch.arange(batch_size, device=cells.device)).sum(0)
    before = counts.cumsum(0) - counts
    place = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
    return WindowPlaces(frame, place - before.index_select(0, frame), counts)


def turn(heads: Tensor, angles: Tensor) -> Tensor:
    """Turn pairs of numbers, one of the first half and one of the second: (N, H, D) by angles (N, D / 2)."""
    cosine, sine = angles.cos()[:, None], angles.sin()[:, None]
    first, second = heads.float().chunk(2, dim=2)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], 2).to(heads.dtype)


@lru_cache(maxsize=256)
def _groups(length: int, group: int, device: torch.device) -> BlockPattern:
    """Whole blocks on the diagonal; made once, so that what is prepared for it is kept."""
    with torch.inference_mode(False):
        diagonal = torch.eye(math.ceil(length / group), dtype=torch.bool, device=device)
        return from_block_mask(diagonal, group, query_length=length, key_length=length)


class CellAttentions(nn.ModuleList):
    """The blocks one after the other."""

    def __init__(self, channels: int, config: AttentionConfig) -> None:
        # All other weights begin as without them.
        with torch.random.fork_rng(devices=[]):
            super().__init__(CellAttention(channels, config, odd=i % 2 == 1) for i in range(config.blocks))

    def forward(self, rows: Tensor, cells: Tensor, batch_size: int) -> Tensor:
        """As :meth:`CellAttention.forward`."""
        made = rows
        for block in self:
            made = block(made, cells, batch_size)
        return made.to(rows.dtype)


class AttendedBackbone(SparseBackbone):
    """The sparse backbone, with attention between the cells of its coarsest level.

    Args:
        config: stages and attention.
        in_channels, fine_channels, coarse_channels: as for :class:`SparseBackbone`.
    """

    def __init__(
        self, config: AttendedConfig, *, in_channels: int, fine_channels: int, coarse_channels: int
    ) -> None:
        super().__init__(
            config, in_channels=in_channels, fine_channels=fine_channels, coarse_channels=coarse_channels
        )
        self.attention = CellAttentions(coarse_channels, config.attention)

    def forward(self, pillars: SparseTensor) -> BackboneMaps:
        """(M, C) pillar features to dense maps."""
        for stage in self.stages:
            pillars = stage(pillars)
        fine = self.lateral(pillars).to_dense(channels_last=True)
        coarse = self.down(pillars)
        rows = self.attention(coarse.features, coarse.coordinates, coarse.batch_size)
        return BackboneMaps(fine, coarse.with_features(rows).to_dense(channels_last=True))


class AttendedMaps(PlannedMaps):
    """The first stage on a CPU, by plans as without attention."""

    def backbone(self, encoded: SparseTensor) -> PlannedLevels:
        """The backbone of a batch."""
        levels = super().backbone(encoded)
        backbone, level = self.network.backbone, levels.rows.coarse_level
        assert isinstance(backbone, AttendedBackbone)
        rows = levels.rows.coarse[:-1]
        rows.copy_(backbone.attention(rows, level.cells, level.batch_size))
        return levels


class AttendedSteps(EagerSteps):
    """The steps of such a detector, which has none for CUDA graphs.

    Args:
        network: folded.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        settings = network.config.backbone
        if settings.dilating and settings.impl == "auto":
            self.planned, self.threaded = AttendedMaps(network), True


class AttendedNetwork(Network):
    """The network with that backbone."""

    backbone_type = AttendedBackbone


def attended(config: DetectorConfig, attention: Mapping[str, int]) -> DetectorConfig:
    """The same detector with attention in its backbone.

    Args:
        config: of the detector without.
        attention: fields of ``backbone.attention``.
    """
    register()
    values = to_dict(config)
    values["name"] += f"-{KIND}"
    values["backbone"] |= {"kind": KIND, "attention": dict(attention)}
    return from_dict(DetectorConfig, values)


def register() -> None:
    """Put the variant into the table of detectors of this process."""
    add_kind(KIND, DetectorKind(network=AttendedNetwork, eager=AttendedSteps), AttendedConfig)
