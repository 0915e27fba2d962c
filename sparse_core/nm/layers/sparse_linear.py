"""A linear layer that stores and multiplies only the kept values of an n:m weight."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sparse_core.nm.layers.coded_layer import own_copy, through_parts, trains_weight
from sparse_core.nm.layers.int8_linear import SparseLinearInt8
from sparse_core.nm.layers.packed_layer import KeepDense, LayerCache, PackedLayer
from sparse_core.nm.linear import Activation, LinearImpl, nm_linear
from sparse_core.nm.linear.common import needs_plain_torch
from sparse_core.nm.masks import check_nm, fits, nm_mask
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.model import LayerSettings
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.pattern import TWO_FOUR, NMPattern, check_groups, check_nm_pattern
from sparse_core.nm.pruning.calibration import InputStatistics


class SparseLinear(PackedLayer):
    """``activation(x @ weight.T + bias)`` with a packed n:m weight; replaces ``nn.Linear``.

    The kept values train like any parameter; their positions are fixed. The state dict holds ``values``,
    ``metadata``, ``bias`` and the pattern; an n:m ``weight`` of an ``nn.Linear`` can be loaded too. In a
    graph of ``torch.compile``, values that do not require grad are constant until :meth:`refresh`; values
    that do are read in every call.

    Args:
        packed: floating-point weight; copied.
        bias: (out,); copied.
        activation: applied to the result: ``"relu"``, ``"gelu"`` or ``None``.
        keep_dense: keep a dense copy for row counts at which dense is faster; ``"auto"``: on CUDA.
        impl: implementation of the product, see :func:`sparse_core.nm.linear.nm_linear`.

    Raises:
        TypeError: int8 values; use :class:`sparse_core.nm.layers.int8_linear.SparseLinearInt8`.
        ValueError: sizes or options do not fit.
    """

    def __init__(
        self,
        packed: PackedNM,
        bias: Tensor | None = None,
        *,
        activation: Activation | None = None,
        keep_dense: KeepDense = "auto",
        impl: LinearImpl = "auto",
    ) -> None:
        if not isinstance(packed, PackedNM):
            raise TypeError(
                f"SparseLinear takes a packed weight, got {type(packed).__name__}: convert a layer with"
                " SparseLinear.from_dense(nn.Linear(...)) or a model with sparsify(model)"
            )
        if not packed.values.is_floating_point():
            raise TypeError(f"SparseLinear holds floating-point values, got {packed.dtype}")
        super().__init__(packed, bias, activation=activation, keep_dense=keep_dense, impl=impl)
        self.values = nn.Parameter(own_copy(packed.values), requires_grad=packed.values.requires_grad)
        self.refresh()

    @classmethod
    def from_dense(
        cls,
        linear: nn.Linear,
        pattern: NMPattern = TWO_FOUR,
        *,
        mask: Tensor | None = None,
        activation: Activation | None = None,
        keep_dense: KeepDense = "auto",
        impl: LinearImpl = "auto",
    ) -> SparseLinear:
        """Pack the weight of a Linear layer, which does not change.

        Args:
            linear: in features divisible by m; a parametrised weight is evaluated.
            pattern: n and m.
            mask: (out, in) bool, exactly n true per group, of weights to keep. By default, a weight that is
                n:m is packed as it is; otherwise the n largest of each group are kept.
            activation: fused into the layer.
            keep_dense: see the class.
            impl: see the class.

        Returns:
            A layer of the same device, type, training mode and ``requires_grad``.

        Raises:
            TypeError: not a layer with a weight (out, in), or ``pattern`` no NMPattern.
            ValueError: m does not divide the width, the mask is not n:m, or weights to rank are NaN.
        """
        weight = getattr(linear, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2:
            raise TypeError(f"linear must be a Linear layer, got {type(linear).__name__}")
        check_nm_pattern(pattern)
        packed = pack_weight(weight.detach(), pattern, mask)
        packed.values.requires_grad_(trains_weight(linear))
        layer = cls(packed, linear.bias, activation=activation, keep_dense=keep_dense, impl=impl)
        return layer.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``activation(x @ weight.T + bias)``, (..., out) for (..., in) of any strides."""
        if x.is_nested:
            return through_parts(self, x)
        if torch.compiler.is_dynamo_compiling() or needs_plain_torch():
            return self._traced(x)
        # Attribute access of a module is slow.
        parameters = self._parameters
        values: Any = parameters.get("values")
        bias, ready = parameters.get("bias"), self._cache
        if values is None:
            # FSDP replaces the parameter by views, which are not parameters.
            values, bias = self.values, self.bias
        if ready is not None and ready.layer_plans and self.impl == "auto" and type(x) is Tensor:
            plan = ready.layer_plans.get((x.shape, self.activation))
            y = None if plan is None else plan(x, values, bias)
            if y is not None:
                return y
        try:
            kept = ready is not None and ready.packed.values is values
            if ready is None or not kept or (ready.version != values._version and not ready.renew()):
                ready = self.refresh()
        except RuntimeError:  # An inference tensor records no changes, so nothing may be kept.
            ready = self.refresh()
        if torch.is_autocast_enabled(ready.device_type):
            return self._cast_and_multiply(x, ready)
        dense = None
        # The copy has no gradient for the values.
        if ready.keeps_dense and not (values.requires_grad and torch.is_grad_enabled()):
            dense = ready.dense_copy()
        y = nm_linear(x, ready.packed, bias, activation=self.activation, dense=dense, impl=self.impl)
        if self.impl == "auto" and x.is_cuda and not y.requires_grad:
            ready.plan(x, bias, dense, self.activation)
        return y

    def _cast_and_multiply(self, x: Tensor, ready: LayerCache) -> Tensor:
        """Multiply as ``F.linear`` under autocast: both operands in its type, except float64."""
        dtype = torch.get_autocast_dtype(ready.device_type)
        packed, bias, dense = ready.packed, self.bias, None
        trains = packed.values.requires_grad and torch.is_grad_enabled()
        if torch.float64 not in (x.dtype, packed.dtype) and x.is_floating_point():
            x = x.to(dtype)
            bias_cast = None if bias is None else bias.to(dtype)
            if trains:
                packed = packed.to(dtype)
            else:
                ready = ready.cast(dtype)
                packed = ready.packed
        else:
            bias_cast = bias
        if ready.keeps_dense and not trains:
            dense = ready.dense_copy()
        return nm_linear(x, packed, bias_cast, activation=self.activation, dense=dense, impl=self.impl)

    def _traced(self, x: Tensor) -> Tensor:
        """Multiply for torch.compile and torch.func, without versions and caches."""
        values, ready, bias = self.values, self._cache, self.bias
        packed, dense = self._pack(), None
        if ready is not None and ready.packed.values is values:
            packed = ready.packed
            # The copy has no gradient for the values.
            dense = None if values.requires_grad and torch.is_grad_enabled() else ready.dense
        device_type = values.device.type
        if torch.is_autocast_enabled(device_type) and torch.float64 not in (x.dtype, values.dtype):
            dtype = torch.get_autocast_dtype(device_type)
            x, packed, dense = x.to(dtype), packed.to(dtype), None
            cast_bias = None if bias is None else bias.to(dtype)
            return nm_linear(x, packed, cast_bias, activation=self.activation, impl=self.impl)
        return nm_linear(x, packed, bias, activation=self.activation, dense=dense, impl=self.impl)

    @property
    def weight(self) -> Tensor:
        """Dense (out, in) weight, unpacked at each access; gradients reach ``values``."""
        return self._pack().to_dense()

    def quantise(self, activation_scale: float | Tensor | InputStatistics | None = None) -> SparseLinearInt8:
        """Return the layer with int8 values; see :meth:`SparseLinearInt8.from_sparse`."""
        return SparseLinearInt8.from_sparse(self, activation_scale)

    @property
    def coded(self) -> CompressedWeight:
        """See :attr:`CodedLayer.coded`."""
        return CompressedWeight.from_packed(self._pack())

    @property
    def settings(self) -> LayerSettings:
        """See :attr:`CodedLayer.settings`."""
        return LayerSettings("nm", str(self.values.dtype), self.activation)

    def _entries_of_dense(self, weight: Tensor, prefix: str, name: str) -> dict[str, Tensor]:
        if tuple(weight.shape) != (self.out_features, self.in_features):
            raise ValueError(
                f"{name}: the stored weight has shape {tuple(weight.shape)}, the layer"
                f" {(self.out_features, self.in_features)}"
            )
        check_nm(weight, self.pattern.n, self.pattern.m, name=f"{prefix}weight")
        packed = PackedNM.from_dense(weight, self.pattern)
        return {
            f"{prefix}values": packed.values,
            f"{prefix}metadata": packed.metadata,
            f"{prefix}_extra_state": self.get_extra_state(),
        }


def pack_weight(weight: Tensor, pattern: NMPattern, mask: Tensor | None = None) -> PackedNM:
    """Pack a floating-point weight (out, in); prune it first if necessary.

    ``mask`` and errors are those of :meth:`SparseLinear.from_dense`.
    """
    weight = weight.detach()
    check_groups(weight.shape[1], pattern.m)
    if mask is not None:
        if mask.dtype != torch.bool or mask.shape != weight.shape:
            raise ValueError(
                f"the mask of weight must be bool of shape {tuple(weight.shape)},"
                f" got {mask.dtype} {tuple(mask.shape)}"
            )
        check_nm(mask, pattern.n, pattern.m, name="the mask of weight")
        mask = mask.to(weight.device)
    elif not fits(weight, pattern):
        mask = nm_mask(weight, pattern.n, pattern.m)
    return PackedNM.from_dense(weight, pattern, mask)
