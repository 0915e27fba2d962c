"""Sparse convolution layers as torch modules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sparse_core.conv.convolution import sparse_convolution
from sparse_core.conv.convolution.api import SPARSE_CONVOLUTION
from sparse_core.conv.coordinates import CoordinateTable
from sparse_core.conv.table import NeighbourTable
from sparse_core.conv.tensor import SparseTensor
from sparse_core.errors import ImplementationError
from sparse_core.kernels.op import Impl


class _SparseConvolution(nn.Module):
    """Base class of the layers; ``weight`` is (C_out, *kernel, C_in / groups), as in spconv 2."""

    dimensions = 2
    submanifold = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int] = 3,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        dilating: bool = True,
        bias: bool = False,
        impl: Impl = "auto",
    ) -> None:
        super().__init__()
        if impl != "vendor":
            SPARSE_CONVOLUTION.check(impl)
        if in_channels < 1 or out_channels < 1:
            raise ValueError(f"layers need at least 1 channel, got {in_channels} and {out_channels}")
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"groups must divide {in_channels} and {out_channels} channels, got {groups}")
        self.kernel_size = per_axis(kernel_size, self.dimensions, "kernel_size", least=1)
        self.stride = per_axis(stride, self.dimensions, "stride", least=1)
        self.padding = per_axis(padding, self.dimensions, "padding")
        self.dilation = per_axis(dilation, self.dimensions, "dilation", least=1)
        self.groups = groups
        self.dilating = dilating
        self.impl: Impl = impl
        self.weight = nn.Parameter(torch.empty(out_channels, *self.kernel_size, in_channels // groups))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        fan_in = in_channels // groups * math.prod(self.kernel_size)
        nn.init.normal_(self.weight, std=math.sqrt(2.0 / fan_in))

    def forward(self, inputs: SparseTensor) -> SparseTensor:
        """Map features (M, C_in) at M cells to (M', C_out) at M' cells."""
        check_sparse(inputs, self.dimensions)
        if self.impl == "vendor":
            return self._forward_vendor(inputs)
        table, outputs = self.tables(inputs)
        return inputs.at_cells(self._convolve(inputs.features, table), outputs)

    def tables(self, inputs: SparseTensor) -> tuple[NeighbourTable, CoordinateTable]:
        """Return the cached neighbours of this layer for the input's cells, and the table of its outputs."""
        if self.submanifold:
            return inputs.submanifold_table(self.kernel_size, self.dilation), inputs.table()
        return inputs.strided_table(
            self.kernel_size, self.stride, self.padding, dilation=self.dilation, dilating=self.dilating
        )

    def _convolve(self, features: Tensor, table: NeighbourTable) -> Tensor:
        return sparse_convolution(
            features, self.weight, table, bias=self.bias, groups=self.groups, impl=self.impl
        )

    def _forward_vendor(self, inputs: SparseTensor) -> SparseTensor:
        from sparse_core.conv.convolution import vendor

        if not self.dilating:
            raise ImplementationError("spconv does not support dilating=False: use impl='reference'")
        if self.groups > 1:
            raise ImplementationError("spconv does not support groups: use impl='reference' or 'triton'")
        layer = self.__dict__.get("_vendor_layer")
        on_cpu = not inputs.features.is_cuda
        if layer is None or layer.weight is not self.weight or self.__dict__["_vendor_on_cpu"] != on_cpu:
            layer = vendor.make_layer(
                self.weight,
                kernel_size=self.kernel_size,
                stride=self.stride,
                padding=self.padding,
                dilation=self.dilation,
                submanifold=self.submanifold,
                on_cpu=on_cpu,
            )
            # Not a submodule, because it shares this module's weight.
            self.__dict__["_vendor_layer"], self.__dict__["_vendor_on_cpu"] = layer, on_cpu
        layer.train(self.training)
        output = vendor.run_layer(layer, inputs)
        return output if self.bias is None else output.with_features(output.features + self.bias)

    def extra_repr(self) -> str:
        further = f" dilation={self.dilation}," if max(self.dilation) > 1 else ""
        further += f" groups={self.groups}," if self.groups > 1 else ""
        return (
            f"{self.weight.shape[-1] * self.groups}, {self.weight.shape[0]}, kernel_size={self.kernel_size},"
            f" stride={self.stride}, padding={self.padding},{further} impl={self.impl!r}"
        )

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_vendor_layer", None)
        return state


def per_axis(value: int | Sequence[int], dimensions: int, name: str, *, least: int = 0) -> tuple[int, ...]:
    """Return one value per axis.

    Raises:
        TypeError: a string, such as torch's ``padding="same"``.
        ValueError: another number of values, or one below ``least``.
    """
    _check_numbers(value, dimensions, name)
    values = (value,) * dimensions if isinstance(value, int) else tuple(int(entry) for entry in value)
    if len(values) != dimensions:
        raise ValueError(f"{name} needs {dimensions} entries, got {values}")
    if min(values) < least:
        raise ValueError(f"{name} must be at least {least}, got {values}")
    return values


def _check_numbers(value: object, dimensions: int, name: str) -> None:
    if isinstance(value, str):
        raise TypeError(f"{name} must be a whole number or {dimensions} of them, got {value!r}")


def check_sparse(inputs: object, dimensions: int) -> None:
    """Raise unless a layer's input is a :class:`SparseTensor` with this number of spatial dimensions."""
    if not isinstance(inputs, SparseTensor):
        raise TypeError(
            f"the input must be a SparseTensor, got {type(inputs).__name__}: make one with"
            " SparseTensor.from_table(features, build_table(cells, shape), batch_size=...)"
        )
    found = len(inputs.spatial_shape)
    if found != dimensions:
        raise ValueError(f"this layer is {dimensions}-D but the input is {found}-D, {inputs.spatial_shape}")


class SubmanifoldConv2d(_SparseConvolution):
    """2-D submanifold convolution, which keeps the set of active cells (Graham et al., CVPR 2018).

    Args:
        in_channels, out_channels: feature widths.
        kernel_size: odd, one value or (ky, kx).
        dilation: cells from one tap to the next.
        groups: number of channel groups, convolved separately.
        bias: learn a bias.
        impl: ``"reference"``, ``"triton"``, ``"vendor"`` (spconv; Native algorithm on a CPU) or ``"auto"``:
            Triton for CUDA tensors of float16, bfloat16 and float32.
    """

    submanifold = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int] = 3,
        *,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = False,
        impl: Impl = "auto",
    ) -> None:
        sizes = per_axis(kernel_size, self.dimensions, "kernel_size", least=1)
        if any(size % 2 == 0 for size in sizes):
            raise ValueError(f"a submanifold kernel must have odd sizes, got {sizes}")
        dilations = per_axis(dilation, self.dimensions, "dilation")
        super().__init__(
            in_channels,
            out_channels,
            sizes,
            padding=[size // 2 * gap for size, gap in zip(sizes, dilations, strict=True)],
            dilation=dilations,
            groups=groups,
            bias=bias,
            impl=impl,
        )


class SubmanifoldConv3d(SubmanifoldConv2d):
    """3-D submanifold convolution, see :class:`SubmanifoldConv2d`."""

    dimensions = 3


class SparseConv2d(_SparseConvolution):
    """2-D strided sparse convolution; ``dilating=False`` keeps only outputs that hold an input.

    Args:
        in_channels, out_channels: feature widths.
        kernel_size, stride, padding, dilation, groups: as in ``torch.nn.Conv2d``.
        dilating: see ``sparse_core.conv.strided_table``.
        bias: learn a bias.
        impl: ``"reference"``, ``"triton"``, ``"vendor"`` (spconv) or ``"auto"``.
    """


class SparseConv3d(SparseConv2d):
    """3-D strided sparse convolution, see :class:`SparseConv2d`."""

    dimensions = 3


class SparseInverseConv2d(_SparseConvolution):
    """2-D inverse convolution: back to the input cells of a strided layer.

    Input cell n gets the sum over its taps k of ``weight[k] @ features[m]``, where output cell m read n
    through tap k. The kernel is not mirrored, as in spconv's layer of this name. It is the transposed
    convolution of the strided one, evaluated at those cells.

    Args:
        in_channels, out_channels: feature widths, usually those of the strided layer swapped.
        kernel_size, stride, padding, dilation, dilating: of the strided layer.
        groups: as in ``torch.nn.Conv2d``.
        bias: learn a bias.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.
    """

    def forward(self, inputs: SparseTensor, target: SparseTensor | None = None) -> SparseTensor:
        """Map features (M, C_in) at a strided layer's output cells to (N, C_out) at its input cells.

        Args:
            inputs: at the output cells of the strided layer.
            target: at its input cells; its features are not read.

        Raises:
            ValueError: no ``target``, or ``inputs`` has other cells than the strided layer makes of it.
            ImplementationError: ``impl="vendor"``.
        """
        check_sparse(inputs, self.dimensions)
        if target is None:
            raise ValueError("target is missing: pass the input tensor of the strided layer")
        if self.impl == "vendor":
            raise ImplementationError("inverse layers do not support impl='vendor': use 'triton'")
        table, outputs = self.tables(target)
        same = inputs.coordinates is outputs.coordinates
        if inputs.spatial_shape != outputs.spatial_shape or not (
            same or torch.equal(inputs.coordinates.int(), outputs.coordinates)
        ):
            raise ValueError(
                f"inputs must have the {len(outputs)} cells, in order, that kernel {self.kernel_size},"
                f" stride {self.stride} and padding {self.padding} make of target; got {len(inputs)} in a"
                f" grid of {inputs.spatial_shape}"
            )
        return target.with_features(self._convolve(inputs.features, table.reversed))


class SparseConvTranspose2d(_SparseConvolution):
    """2-D transposed convolution that activates every cell that an input reaches.

    It computes the nonzero part of ``torch.nn.ConvTranspose2d`` (generative transposed convolution, Gwak,
    Choy and Savarese, ECCV 2020). To return to known cells, see :class:`SparseInverseConv2d`.

    Args:
        in_channels, out_channels: feature widths.
        kernel_size, stride, padding, output_padding, dilation, groups: as in ``torch.nn.ConvTranspose2d``.
        bias: learn a bias; it is added at active cells.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int] = 2,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = False,
        impl: Impl = "auto",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias,
            impl=impl,
        )
        self.output_padding = per_axis(output_padding, self.dimensions, "output_padding")

    def tables(self, inputs: SparseTensor) -> tuple[NeighbourTable, CoordinateTable]:
        """Return the cached neighbours of this layer for the input's cells, and the table of its outputs."""
        return inputs.transposed_table(
            self.kernel_size, self.stride, self.padding, self.output_padding, self.dilation
        )

    def _forward_vendor(self, inputs: SparseTensor) -> SparseTensor:
        raise ImplementationError("transposed layers do not support impl='vendor': use 'reference'")


class SparseConvTranspose3d(SparseConvTranspose2d):
    """3-D transposed convolution, see :class:`SparseConvTranspose2d`."""

    dimensions = 3


class SparseInverseConv3d(SparseInverseConv2d):
    """3-D inverse convolution, see :class:`SparseInverseConv2d`."""

    dimensions = 3
