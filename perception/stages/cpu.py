"""First stage of a folded sparse network on a CPU: levels planned once, a few matrix products a layer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.model.backbone import SparseBackbone
from perception.model.layers import DenseUnit, SparseUnit
from perception.model.listed_map import ListedMap
from perception.model.network import Network
from perception.stages.backbone.cpu import BackboneRows, PlannedBackbone
from perception.stages.neck import CpuBoundedNeck, CpuUnboundedNeck
from perception.stages.weight_watch import WeightWatch
from sparse_core.conv import SparseConv2d, SparseTensor, SubmanifoldConv2d
from sparse_core.conv.convolution.cpu.blocks import RowPool
from sparse_core.conv.convolution.cpu.levels import fits

#: Layers that are packed; anything else in their place (a pruned or parametrised layer) runs by itself.
_LAYERS = (SubmanifoldConv2d, SparseConv2d, nn.Conv2d, nn.ConvTranspose2d)


class _Plan(NamedTuple):
    """Packed weights.

    Attributes:
        backbone, neck: run them.
        shape: of the neck's map.
        watch: tells whether they are still those of the network.
    """

    backbone: PlannedBackbone
    neck: CpuBoundedNeck
    shape: tuple[int, int]
    watch: WeightWatch


class PlannedLevels(NamedTuple):
    """What the neck joins, in memory of a pool that goes back when the heat map is computed."""

    plan: _Plan
    pool: RowPool
    rows: BackboneRows


class PlannedMaps:
    """Pillar features to the maps that the head reads, those of the network but for rounding.

    The backbone is computed at active cells and the neck and the heat map near them. Weights are packed at
    the first frame, and again after they were changed.

    Args:
        network: folded, on a CPU, see :meth:`suits`.
        dtype: of features and weights, float32 or bfloat16; sums are float32.
    """

    def __init__(self, network: Network, dtype: torch.dtype = torch.float32) -> None:
        self.network, self.dtype = network, dtype
        #: Of a detector without a range there is no map of all cells.
        self.keyed = network.config.pillars.open
        self._plan: _Plan | None = None
        self._pools: deque[RowPool] = deque(maxlen=1)

    @staticmethod
    def suits(network: Network) -> bool:
        """Whether this can run a network: a sparse one of no named implementation whose layers dilate."""
        settings = network.config.backbone
        return settings.kind == "sparse" and settings.dilating and settings.impl == "auto"

    def runs(self, encoded: SparseTensor) -> bool:
        """Whether this can run a batch here and now.

        That is float32 features on a CPU without gradients, a grid that fits the memory, and a network of
        nothing but its own folded layers, without hooks, which would not be called.
        """
        features = encoded.features
        return (
            features.dtype == torch.float32
            and features.device.type == "cpu"
            and not torch.is_autocast_enabled("cpu")
            and not torch.is_grad_enabled()
            and (self.keyed or fits(encoded.spatial_shape, encoded.batch_size))
            and isinstance(self.network.backbone, SparseBackbone)
            and all(_is_plain(part) for part in self._parts())
        )

    def backbone(self, encoded: SparseTensor) -> PlannedLevels:
        """The backbone of a batch.

        Args:
            encoded: (M, C) pillar features, cells in key order, at least one.
        """
        rows, columns = encoded.spatial_shape
        for _ in range(len(self.network.config.backbone.channels)):
            rows, columns = (rows + 1) // 2, (columns + 1) // 2
        plan = self._current((rows, columns))
        # Each thread that is here at the same time has a pool of its own.
        try:
            pool = self._pools.pop()
        except IndexError:
            pool = RowPool(self.dtype)
        return PlannedLevels(plan, pool, plan.backbone(encoded, pool))

    def neck(self, levels: PlannedLevels) -> tuple[Tensor | ListedMap, Callable[[], Tensor]]:
        """The map that the head reads, and what computes the logits of its heat map, once.

        The map is (B, C, H, W), or, of a detector without a range, one of listed cells.
        """
        plan, pool, rows = levels
        cells, values = plan.neck.features(rows, pool)

        def heat_logits() -> Tensor:
            logits = plan.neck.heat_logits(cells, values, pool)
            self._pools.append(pool)
            return logits

        return cells.whole(values), heat_logits

    def _parts(self) -> list[nn.Module]:
        network = self.network
        return [
            *network.backbone.modules(),
            *network.neck.modules(),
            network.head.heat_hidden,
            network.head.heat,
        ]

    def _current(self, shape: tuple[int, int]) -> _Plan:
        network, plan = self.network, self._plan
        if plan is not None and plan.shape == shape and plan.watch.holds(self._parts()):
            return plan
        assert isinstance(network.backbone, SparseBackbone)
        if self.keyed:
            neck: CpuBoundedNeck = CpuUnboundedNeck(network.neck, network.head, dtype=self.dtype)
        else:
            neck = CpuBoundedNeck(network.neck, network.head, shape, dtype=self.dtype)
        backbone = PlannedBackbone(network.backbone, dtype=self.dtype, keyed=self.keyed)
        self._plan = _Plan(backbone, neck, shape, WeightWatch(self._parts()))
        return self._plan


def _is_plain(part: nn.Module) -> bool:
    """Whether a module is as it was made, folded, and without hooks."""
    if part._forward_hooks or part._forward_pre_hooks:
        return False
    if isinstance(part, SparseUnit | DenseUnit):
        return type(part.conv) in _LAYERS and isinstance(part.norm, nn.Identity)
    return True
