"""Frames of a dense network with fixed shapes, for CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from perception.model.backbone import DenseBackbone
from perception.model.network import Network
from perception.run.fixed import FixedSteps, Levels, Located, Map
from perception.stages.backbone.dense import canvas_maps
from perception.stages.head import fixed_heat
from sparse_core.conv.grid import FixedGrid, pyramid


class DenseSteps(FixedSteps):
    """Steps of a network with a dense backbone.

    Args:
        network: folded.
        capacities: pillars that there is room for, all frames together.
        options: see :class:`~perception.run.fixed.FixedSteps`.
    """

    sparse = False

    def __init__(self, network: Network, *, capacities: tuple[int], **options: Any) -> None:
        super().__init__(network, **options)
        assert isinstance(network.backbone, DenseBackbone)
        self._capacities = capacities
        self._maps = canvas_maps(
            network.backbone,
            network.neck,
            self.config.pillars.grid_shape,
            batch_size=self.batch_size,
            dtype=self.dtype,
        )

    def _grids(self, bits: Tensor) -> tuple[list[FixedGrid], None]:
        shape = self.config.pillars.grid_shape
        return pyramid(bits, shape, self.batch_size, self._capacities, [], impl=self.impl), None

    def _tables(self, located: Located) -> None:
        return None

    @property
    def levels(self) -> Sequence[tuple[str, Callable[[Levels], Levels]]]:
        """None by themselves: backbone and neck run as one."""
        return ()

    def neck(self, levels: Levels) -> Map:
        """Backbone and neck on the full grid."""
        features = self._maps(levels.rows[0], levels.located.grids[0].cells)
        heat = fixed_heat(features, self.heat, spatial_shape=self.fine_shape, impl=self.impl)
        return Map(levels, features, lambda: heat)
