"""First stage of a folded sparse network on a CPU, with packed weights and planned levels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from perception.model.backbone import SparseBackbone
from perception.model.layers import DenseUnit, SparseUnit
from perception.model.listed_map import FeatureMap
from perception.model.network import Network
from perception.stages.backbone.cpu import BackboneRows, CpuBackbone, PlannedBackbone
from perception.stages.neck import CpuBoundedNeck, CpuUnboundedNeck
from perception.stages.neck.cpu_bounded import MakeLayers
from perception.stages.neck.float_layers import FloatLayers
from perception.stages.weight_watch import WeightWatch
from sparse_core.conv import SparseConv2d, SparseTensor, SubmanifoldConv2d
from sparse_core.conv.convolution.cpu.blocks import RowPool
from sparse_core.conv.convolution.cpu.levels import fits

#: Layers that can be packed; with others (pruned, parametrised) the network runs its own code.
_LAYERS = (SubmanifoldConv2d, SparseConv2d, nn.Conv2d, nn.ConvTranspose2d)


class _PackedStage(NamedTuple):
    """Packed weights.

    Attributes:
        backbone, neck: packed modules.
        shape: rows and columns of the neck's map.
        watch: detects changes of the network's weights.
    """

    backbone: CpuBackbone[Any]
    neck: CpuBoundedNeck
    shape: tuple[int, int]
    watch: WeightWatch


class PlannedLevels(NamedTuple):
    """Output of the backbone; the heat map returns its pool of memory."""

    stage: _PackedStage
    pool: RowPool
    rows: BackboneRows


class PlannedMaps:
    """Computes the network's maps from pillar features, equal up to rounding.

    The backbone runs at active cells, neck and heat map near them. Weights are packed at the first frame and
    after changes.

    Args:
        network: folded network on a CPU, see :meth:`suits`.
        dtype: dtype of features and weights: float32 or bfloat16, with float32 sums; or int8, with exact sums
            and the ranges of the network.
    """

    def __init__(self, network: Network, dtype: torch.dtype = torch.float32) -> None:
        self.network, self.dtype = network, dtype
        #: True for an unbounded range, which has no map of all cells.
        self.keyed = network.config.pillars.open
        self._packed: _PackedStage | None = None
        self._pools: deque[RowPool] = deque(maxlen=1)

    @staticmethod
    def suits(network: Network) -> bool:
        """Return True for sparse networks with impl "auto" and dilating strided layers."""
        settings = network.config.backbone
        return settings.kind == "sparse" and settings.dilating and settings.impl == "auto"

    def runs(self, encoded: SparseTensor) -> bool:
        """Return True if this class can run a batch.

        It needs float32 features on a CPU without gradients or autocast, a grid that fits in memory, and the
        network's own folded layers without hooks.
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
        """Run the backbone on (M, C) pillar features with cells in key order, M at least 1."""
        rows, columns = encoded.spatial_shape
        for _ in range(len(self.network.config.backbone.channels)):
            rows, columns = (rows + 1) // 2, (columns + 1) // 2
        stage = self._current((rows, columns))
        # Concurrent threads have separate pools.
        try:
            pool = self._pools.pop()
        except IndexError:
            pool = RowPool(torch.uint8 if self.dtype == torch.int8 else self.dtype)
        return PlannedLevels(stage, pool, stage.backbone(encoded, pool))

    def neck(self, levels: PlannedLevels) -> tuple[FeatureMap, Callable[[], Tensor]]:
        """Compute the head's map; return it with a function that computes its heat logits once.

        The map is (B, C, H, W), bytes for int8, or a map of listed cells for an unbounded range.
        """
        stage, pool, rows = levels
        cells, values = stage.neck.features(rows, pool)

        def heat_logits() -> Tensor:
            logits = stage.neck.heat_logits(cells, values, pool)
            self._pools.append(pool)
            return logits

        return stage.neck.whole(cells, values), heat_logits

    def _parts(self) -> list[nn.Module]:
        network = self.network
        return [
            *network.backbone.modules(),
            *network.neck.modules(),
            network.head.heat_hidden,
            network.head.heat,
        ]

    def _current(self, shape: tuple[int, int]) -> _PackedStage:
        network, packed = self.network, self._packed
        if packed is not None and packed.shape == shape and packed.watch.holds(self._parts()):
            return packed
        backbone, layers = self._layers()
        if self.keyed:
            neck: CpuBoundedNeck = CpuUnboundedNeck(network.neck, network.head, layers=layers)
        else:
            neck = CpuBoundedNeck(network.neck, network.head, shape, layers=layers)
        self._packed = _PackedStage(backbone, neck, shape, WeightWatch(self._parts()))
        return self._packed

    def _layers(self) -> tuple[CpuBackbone[Any], MakeLayers]:
        """Pack the backbone; return it with the class of the neck's layers."""
        backbone = self.network.backbone
        assert isinstance(backbone, SparseBackbone)
        if self.dtype != torch.int8:
            packed = PlannedBackbone(backbone, dtype=self.dtype, keyed=self.keyed)
            return packed, partial(FloatLayers, dtype=self.dtype)
        # These modules load all of sparse_core.nm.
        from perception.stages.backbone.int8 import Int8Backbone
        from perception.stages.neck.int8_layers import Int8Layers
        from perception.stages.scales import Scales

        scales = Scales(self.network)
        coarse, fine = scales.of(backbone.down), scales.of(backbone.lateral)
        with torch.inference_mode():
            bytes_backbone = Int8Backbone(backbone, scales, keyed=self.keyed)
        return bytes_backbone, partial(Int8Layers, scales=scales, coarse=coarse, fine=fine)


def _is_plain(part: nn.Module) -> bool:
    """Return True for a folded module of an original type without hooks."""
    if part._forward_hooks or part._forward_pre_hooks:
        return False
    if isinstance(part, SparseUnit | DenseUnit):
        return type(part.conv) in _LAYERS and isinstance(part.norm, nn.Identity)
    return True
