"""Whole frames of the dense twin in one CUDA graph each, tuned as well as we can."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from perception.config import DetectorConfig
from perception.model.backbone import BackboneMaps, DenseBackbone
from perception.model.network import Network
from perception.run.fixed import FastNetwork
from perception.run.graph import FrameRunner, Room
from perception.stages.head import fixed_heat
from sparse_core.conv.grid import FixedGrid, padded_width, pyramid

__all__ = ["DenseFrames", "DenseRunner", "StaticMaps"]


class StaticMaps(nn.Module):
    """Dense backbone and neck on a canvas of fixed shape, (B, C, H, W) to (B, C_out, H/4, W/4)."""

    def __init__(self, backbone: DenseBackbone, neck: nn.Module) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(backbone)
        self.neck = copy.deepcopy(neck)

    def forward(self, canvas: Tensor) -> Tensor:
        """Map that the head reads."""
        for stage in self.backbone.stages:
            canvas = stage(canvas)
        maps = BackboneMaps(self.backbone.lateral(canvas), self.backbone.down(canvas))
        features = self.neck(maps)
        assert isinstance(features, Tensor)
        return features


class DenseFrames(FastNetwork):
    """The dense twin with the same pillars, head, refinement and suppression; its maps are compiled.

    Args:
        network: folded, with a dense backbone.
        sparse: folded sparse twin of the same sizes, whose other parts are packed and then replaced.
        batch_size, capacities, dtype: see :class:`FastNetwork`.
    """

    def __init__(
        self,
        network: Network,
        sparse: Network,
        *,
        batch_size: int,
        capacities: tuple[int, ...],
        dtype: torch.dtype,
    ) -> None:
        assert isinstance(network.backbone, DenseBackbone)
        # Head, encoder and refinement are the dense network's own.
        parts = {name: getattr(sparse, name) for name in ("encoder", "neck", "head", "refinements")}
        for name in parts:
            setattr(sparse, name, getattr(network, name))
        try:
            super().__init__(sparse, batch_size=batch_size, capacities=capacities, dtype=dtype)
        finally:
            for name, part in parts.items():
                setattr(sparse, name, part)
        maps = StaticMaps(network.backbone, network.neck).to(dtype)
        maps = maps.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.maps = torch.compile(self._dense_maps(maps), dynamic=False, fullgraph=True)

    def _dense_maps(self, maps: StaticMaps) -> Callable[[Tensor, Tensor], Tensor]:
        rows, columns = self.config.pillars.grid_shape
        line = padded_width(columns)
        batch = self.batch_size

        def run(features: Tensor, cells: Tensor) -> Tensor:
            # Cells without a row go to a place behind the canvas.
            inside = torch.where(cells < 0, batch * rows * columns, cells // line * columns + cells % line)
            canvas = features.new_zeros(batch * rows * columns + 1, features.shape[1])
            canvas = canvas.index_put((inside,), features)
            image = canvas[:-1].view(batch, rows, columns, -1).permute(0, 3, 1, 2)
            found: Tensor = maps(image)
            return found.permute(0, 2, 3, 1).reshape(-1, found.shape[1])

        return run

    def _tables(self, values: dict[str, object], grids: list[FixedGrid]) -> None:
        """No tables: nothing is looked up."""

    def _grids(self, bits: Tensor) -> list[FixedGrid]:
        shape = self.config.pillars.grid_shape
        return pyramid(bits, shape, self.batch_size, self.capacities[:1], [], impl=self.impl)

    def settle(self, active: Sequence[int]) -> None:
        """Nothing to choose: the maps are compiled."""

    def _level(self, level: int) -> Callable[..., None]:
        return lambda state: None

    def _neck(self, state: object) -> None:
        values = state.values  # type: ignore[attr-defined]
        values["map"] = self.maps(values["level -1"], values["grids"][0].cells)
        values["heat"] = fixed_heat(values["map"], self.heat, spatial_shape=self.fine_shape, impl=self.impl)


class DenseRunner(FrameRunner):
    """Frames of the dense twin.

    Args:
        network: folded, dense.
        sparse: its folded sparse twin.
        dtype: of the features.
    """

    def __init__(self, network: Network, sparse: Network, *, dtype: torch.dtype) -> None:
        super().__init__(sparse, dtype=dtype, config=_sparse(network.config))
        self.dense = network

    def _build(self, room: Room) -> DenseFrames:
        return DenseFrames(
            self.dense,
            self.network,
            batch_size=room.batch_size,
            capacities=room.capacities * len(self.config.backbone.channels),
            dtype=self.dtype,
        )

    def _guess(self, batch_size: int) -> tuple[int, ...]:
        # Only pillars are active cells here.
        return super()._guess(batch_size)[:1]


def _sparse(config: DetectorConfig) -> DetectorConfig:
    return replace(config, backbone=replace(config.backbone, kind="sparse"))
