"""Symmetric int8: packed weights with one scale per row, inputs with one scale per row or a given one.

The scheme is that of Wu et al., "Integer Quantization for Deep Learning Inference" (2020): real value =
integer * scale, without an offset, so that zeros stay zero and pruned weights need no correction.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from sparse_core.nm.layers.coded_layer import own_copy, through_parts
from sparse_core.nm.layers.packed_layer import KeepDense, PackedLayer
from sparse_core.nm.layers.rounding import quantise_input
from sparse_core.nm.linear import Activation, LinearImpl, nm_linear
from sparse_core.nm.linear.common import apply_activation, needs_plain_torch
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.model import LayerSettings
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.quantisation import quantise_weight
from sparse_core.nm.pruning.calibration import InputStatistics

_LARGEST = 127
_RESULTS = (torch.float16, torch.bfloat16, torch.float32)


def activation_scale(source: float | Tensor | InputStatistics) -> Tensor:
    """Return the scale of int8 inputs as a () float32 tensor.

    Args:
        source: the scale itself, or a result of :func:`sparse_core.nm.pruning.calibration.collect_inputs`,
            whose largest absolute value becomes 127.
    """
    if isinstance(source, InputStatistics):
        largest = source.largest.detach().double()
        scale = torch.where(largest > 0, largest / _LARGEST, torch.ones_like(largest)).float()
    else:
        scale = torch.as_tensor(source).detach().float()
    if scale.numel() != 1 or not bool(scale.isfinite().all() and (scale > 0).all()):
        raise ValueError(f"an activation scale is one positive number, got {source}")
    return scale.reshape(())


class SparseLinearInt8(PackedLayer):
    """A linear layer with packed int8 values, for inference: no gradients pass through it.

    Inputs are rounded to int8 with the given scale, which clips values beyond 127 scales. Without one, each
    row of an input has a scale from its largest absolute value, computed on the device. In a language model
    a row is a token, and small tokens keep their digits next to large ones. The result has the type of the
    input.

    Args:
        packed: int8 weight; copied.
        weight_scale: (out,) float32, real weight over integer.
        bias: (out,); copied.
        activation_scale: () float32, real input over integer; ``None`` for a scale of each row.
        activation: applied to the result: ``"relu"``, ``"gelu"`` or ``None``.
        dtype: floating-point type of :attr:`weight`.
        keep_dense: keep a dense int8 copy for row counts at which dense is faster.
        impl: implementation of the product, see :func:`sparse_core.nm.linear.nm_linear`.

    Raises:
        TypeError: values that are not int8.
        ValueError: sizes or options do not fit.
    """

    # Half-precision scales would lose digits of every weight.
    pinned: ClassVar[tuple[str, ...]] = ("weight_scale", "activation_scale")
    weight_scale: Tensor
    activation_scale: Tensor | None

    def __init__(
        self,
        packed: PackedNM,
        weight_scale: Tensor,
        bias: Tensor | None = None,
        *,
        activation_scale: Tensor | None = None,
        activation: Activation | None = None,
        dtype: torch.dtype = torch.float32,
        keep_dense: KeepDense = "auto",
        impl: LinearImpl = "auto",
    ) -> None:
        if packed.dtype != torch.int8:
            raise TypeError(f"SparseLinearInt8 holds int8 values, got {packed.dtype}")
        super().__init__(packed, bias, activation=activation, keep_dense=keep_dense, impl=impl)
        if tuple(weight_scale.shape) != (self.out_features,):
            raise ValueError(
                f"weight_scale must have shape {(self.out_features,)}, got {tuple(weight_scale.shape)}"
            )
        self.dtype = dtype
        self.register_buffer("values", own_copy(packed.values))
        self.register_buffer("weight_scale", own_copy(weight_scale.float()))
        moved = None if activation_scale is None else activation_scale.float().to(packed.device)
        self.register_buffer("activation_scale", None if moved is None else own_copy(moved))
        self.refresh()

    @classmethod
    def from_sparse(
        cls, layer: PackedLayer, activation_scale: float | Tensor | InputStatistics | None = None
    ) -> SparseLinearInt8:
        """Quantise the kept values of a layer, which does not change.

        Args:
            layer: layer to quantise.
            activation_scale: see :func:`activation_scale`; ``None`` for a scale of each row.

        Raises:
            ValueError: values that are not finite, or not a scale.
        """
        quantised = quantise_weight(layer.values.detach())
        bias = None if layer.bias is None else layer.bias.detach()
        return cls(
            layer.packed.with_values(quantised.values),
            quantised.scale,
            bias,
            activation_scale=None if activation_scale is None else _scale_of(activation_scale),
            activation=layer.activation,
            dtype=layer.values.dtype,
            keep_dense=layer.keep_dense,
            impl=layer.impl,
        ).train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``activation(x @ weight.T + bias)`` from exact int8 sums and one rounding of the input.

        Args:
            x: (..., in) floating point, any strides; NaN gives a row of NaN only without a given scale.

        Returns:
            (..., out), the type of ``x``.
        """
        if x.is_nested:
            return through_parts(self, x)
        rounded, step = quantise_input(x, self.activation_scale)
        result = x.dtype if x.dtype in _RESULTS else torch.float32
        bias = None if self.bias is None else self.bias.detach()
        if self.activation_scale is not None:
            y = self._product(rounded, self.weight_scale * step, result, bias, self.activation)
            return y.to(x.dtype)
        weight_scale = self.weight_scale
        if result == torch.float16:
            # Sums of integers up to 127 could overflow before their row's scale makes them small.
            weight_scale, step = weight_scale / 128, step * 128
        y = self._product(rounded, weight_scale, result).mul_(step)
        if bias is not None:
            y.add_(bias)
        return apply_activation(y, self.activation).to(x.dtype)

    def _product(
        self,
        rounded: Tensor,
        scale: Tensor,
        result: torch.dtype,
        bias: Tensor | None = None,
        activation: Activation | None = None,
    ) -> Tensor:
        """Return ``activation(rounded @ integers.T * scale + bias)``."""
        dense = None
        if torch.compiler.is_dynamo_compiling() or needs_plain_torch():
            packed = self._pack()
            if self._cache is not None and self._cache.packed.values is self.values:
                packed, dense = self._cache.packed, self._cache.dense
        else:
            ready = self._current()
            packed, dense = ready.packed, ready.dense_copy() if ready.keeps_dense else None
        return nm_linear(
            rounded,
            packed,
            bias,
            activation=activation,
            dense=dense,
            out_dtype=result,
            scale=scale,
            impl=self.impl,
        )

    @property
    def weight(self) -> Tensor:
        """Dense (out, in) weight, integers times scales, in the type before quantisation."""
        return (self._pack().to_dense() * self.weight_scale[:, None]).to(self.dtype)

    def extra_repr(self) -> str:
        """Return sizes, pattern and options for ``print(model)``."""
        scale = "per row" if self.activation_scale is None else "given"
        return f"{super().extra_repr()}, activation_scale={scale}"

    @property
    def coded(self) -> CompressedWeight:
        """See :attr:`CodedLayer.coded`."""
        return CompressedWeight.from_packed(self._pack(), self.weight_scale)

    @property
    def settings(self) -> LayerSettings:
        """See :attr:`CodedLayer.settings`."""
        scale = None if self.activation_scale is None else float(self.activation_scale)
        return LayerSettings("int8", str(self.dtype), self.activation, scale)

    def _note_cast(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


# The constructor's argument of the same name shadows the function.
_scale_of = activation_scale
