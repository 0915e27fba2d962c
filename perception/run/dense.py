"""Fixed-size steps of a dense network, for CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perception.model.backbone import DenseBackbone
from perception.model.network import Network
from perception.run.batch import BatchCells, BatchLevels, BatchMap
from perception.run.fixed import FixedSteps
from perception.stages.backbone.dense import canvas_maps
from perception.stages.head import fixed_heat, pack_heat


class DenseSteps(FixedSteps):
    """Steps of a network with a dense backbone.

    Args:
        capacities: capacity for pillars of the whole batch.
        options: see :class:`~perception.run.fixed.FixedSteps`.
    """

    sparse = False

    def __init__(self, network: Network, *, capacities: tuple[int], **options: Any) -> None:
        super().__init__(network, capacities=capacities, **options)
        assert isinstance(network.backbone, DenseBackbone)
        self._heat = pack_heat(network.head, self.dtype)
        self._shape = self.config.pillars.grid_shape
        self._maps = canvas_maps(
            network.backbone, network.neck, self._shape, batch_size=self.batch_size, dtype=self.dtype
        )

    def tables(self, located: BatchCells) -> None:
        """Return None: a dense backbone needs no tables."""

    @property
    def levels(self) -> Sequence[tuple[str, Callable[[BatchLevels], BatchLevels]]]:
        """No separate levels: backbone and neck run as one step."""
        return ()

    def neck(self, levels: BatchLevels) -> BatchMap:
        """Run backbone and neck on the full grid."""
        features = self._maps(levels.rows, levels.located.grids[0].cells)
        rows, columns = (2 * side // self.config.backbone.stride for side in self._shape)
        heat = fixed_heat(features, self._heat, spatial_shape=(rows, columns), impl=self.impl)
        return BatchMap(levels, features, lambda: heat)
