"""3x3 convolutions of whole maps, fused with ReLU, residual and heat map if the device allows."""

from __future__ import annotations

from torch import Tensor

from perception.stages.backbone.units import Unit
from perception.stages.head import fixed_heat
from perception.stages.head.types import HeatWeights
from perception.stages.neck import hopper
from sparse_core.conv.convolution import fixed_convolution
from sparse_core.conv.convolution.api import FIXED_CONVOLUTION
from sparse_core.kernels.op import Impl


class MapConvolution:
    """``relu(conv3x3(map) + bias + residual)`` for maps of one size, padded with zeros.

    Sums are float32, results are deterministic, and there are no gradients.

    Args:
        unit: packed 3x3 convolution, weight (9, C_in, C_out).
        table: (9, B * H * W) int32 neighbours of every cell, see ``sparse_core.conv.grid.neighbour_tables``.
        spatial_shape: rows H and columns W of the map.
        batch_size: maps B.
        heat: layers of the heat map of the result, for :meth:`with_heat`.
        impl: ``"reference"``, ``"triton"`` (an implicit matrix product over the table) or ``"auto"``. On
            Hopper GPUs "auto" uses a CUDA kernel in shared memory for small 16-bit maps, else Triton for CUDA
            tensors.
    """

    def __init__(
        self,
        unit: Unit,
        table: Tensor,
        *,
        spatial_shape: tuple[int, int],
        batch_size: int = 1,
        heat: HeatWeights | None = None,
        impl: Impl = "auto",
    ) -> None:
        FIXED_CONVOLUTION.check(impl)
        cells = batch_size * spatial_shape[0] * spatial_shape[1]
        if len(unit.weight) != 9 or table.shape != (9, cells):
            raise ValueError(
                f"needs 9 taps and a table of (9, {cells}) for {batch_size} maps of {spatial_shape}, got"
                f" {len(unit.weight)} taps and {tuple(table.shape)}"
            )
        self.unit, self.table, self.heat, self.impl = unit, table, heat, impl
        self.spatial_shape, self.batch_size = spatial_shape, batch_size
        self._launch: hopper.MapLaunch | None = None
        if impl == "auto" and hopper.supports(unit, heat, spatial_shape, batch_size):
            self._launch = hopper.MapLaunch(unit, heat, spatial_shape, batch_size)

    @property
    def fused(self) -> bool:
        """True if the CUDA kernel runs, which computes the heat map in the same launch."""
        return self._launch is not None

    def __call__(self, features: Tensor, residual: Tensor | None = None) -> Tensor:
        """Convolve a map: (B * H * W, C_out).

        Args:
            features: (B * H * W, C_in) contiguous, row-major, in the weight's dtype.
            residual: (B * H * W, C_out) in the same dtype, added before the ReLU.
        """
        if self._launch is not None and self.heat is None:
            return self._launch(features, residual)[0]
        return self._table_product(features, residual)

    def with_heat(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve a map; return it and its heat map (B, classes, H, W) float32."""
        if self.heat is None:
            raise ValueError("MapConvolution was made without heat. Pass heat to the constructor.")
        if self._launch is not None:
            found, heat = self._launch(features, None)
            assert heat is not None
            return found, heat
        found = self._table_product(features, None)
        heat = fixed_heat(found, self.heat, spatial_shape=self.spatial_shape, impl=self.impl)
        return found, heat

    def _table_product(self, features: Tensor, residual: Tensor | None) -> Tensor:
        return fixed_convolution(
            features,
            self.unit.weight,
            self.table,
            bias=self.unit.bias,
            residual=residual,
            relu=self.unit.relu,
            impl=self.impl,
        )
