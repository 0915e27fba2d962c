"""3x3 convolutions of whole maps with what follows them, in as few launches as the device allows."""

from __future__ import annotations

from torch import Tensor

from perception.stages.backbone.units import Unit
from perception.stages.head import fixed_heat
from perception.stages.head.types import HeatWeights
from perception.stages.neck import hopper
from sparse_core.conv.convolution import fixed_convolution
from sparse_core.conv.convolution.api import FIXED_CONVOLUTION
from sparse_core.op import Impl


class MapConvolution:
    """``relu(conv3x3(map) + bias + residual)`` for maps of one size, borders padded with zeros.

    Sums are float32, the same inputs give the same bits, and there are no gradients.

    Args:
        unit: packed 3x3 convolution, weight (9, C_in, C_out).
        table: (9, B * H * W) int32 neighbours of every cell, see ``sparse_core.conv.grid.neighbour_tables``.
        spatial_shape: rows H and columns W of the map.
        batch_size: maps B.
        heat: layers of the heat map that is made of the result, for :meth:`with_heat`.
        impl: ``"reference"``, ``"triton"`` (an implicit matrix product over the table) or ``"auto"``: on
            Hopper GPUs, for 16-bit features and maps small enough to be computed all at once, a CUDA kernel
            that keeps the cells it reads and all its weights in shared memory; else Triton for CUDA tensors.

    Raises:
        ValueError: a weight that is not 3x3, or a table of another size.
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
        """Whether the CUDA kernel runs, which makes the heat map in the same launch."""
        return self._launch is not None

    def __call__(self, features: Tensor, residual: Tensor | None = None) -> Tensor:
        """The convolved map.

        Args:
            features: (B * H * W, C_in) contiguous, row-major, of the weight's type.
            residual: (B * H * W, C_out) of the same type, added before the ReLU.

        Returns:
            (B * H * W, C_out).
        """
        if self._launch is not None and self.heat is None:
            return self._launch(features, residual)[0]
        return self._table_product(features, residual)

    def with_heat(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The convolved map, and the heat map (B, classes, H, W) float32 of it.

        Args:
            features: as in a call.

        Raises:
            ValueError: made without the layers of a heat map.
        """
        if self.heat is None:
            raise ValueError("made without heat: there are no layers for a heat map")
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
