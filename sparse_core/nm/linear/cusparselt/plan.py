"""Products with cuSPARSELt: descriptors and algorithm are fixed once, then each product is one call."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparse_core.kernels import torch_internals
from sparse_core.kernels.launch_plan import Bias, MatmulStep
from sparse_core.nm.linear.cusparselt.compress import structured_descriptor
from sparse_core.nm.linear.cusparselt.library import (
    DATA_TYPES,
    AlgorithmAttribute,
    ComputeType,
    CusparseltError,
    MatmulAttribute,
    Order,
    handle,
    load,
    opaque_memory,
)

_SOME_ADDRESS = 256


class Product(NamedTuple):
    """``y = relu?(scale * (x @ W.T) + bias)``: x is (rows, columns), W (out, columns), y (rows, out)."""

    rows: int
    out: int
    columns: int
    dtype: torch.dtype
    out_dtype: torch.dtype
    relu: bool
    scaled: bool


class MatmulPlan:
    """A product with an algorithm; calls enqueue it. Use :data:`plan`, which caches plans.

    Args:
        device_index: CUDA device.
        product: sizes, types and epilogue.
        algorithm: number of the library's configuration.
        has_bias: True if products have a bias, for which kernels are chosen.

    Attributes:
        algorithms: number of configurations of the library for this product.
        workspace_bytes: scratch memory of a call.
        lock: held while a bias is set and multiplied with, because all layers of a shape share the plan.
    """

    def __init__(self, device_index: int, product: Product, algorithm: int, has_bias: bool) -> None:
        self._library = load()
        self._device = device_index
        self._handle = handle(device_index)
        self._describe(device_index, product)
        if has_bias:
            # A bias first set after the plan's creation crashes the kernel; an existing one can be replaced.
            self._set_bias(_SOME_ADDRESS)
        self._selection = opaque_memory()
        self._call("cusparseLtMatmulAlgSelectionInit", self._selection, self._operation, ctypes.c_int(0))
        most = ctypes.c_int()
        self._attribute("AlgGet", self._selection, AlgorithmAttribute.CONFIG_MAX_ID, most)
        self.algorithms = most.value
        self._attribute("AlgSet", self._selection, AlgorithmAttribute.CONFIG_ID, ctypes.c_int(algorithm))
        self._plan = opaque_memory()
        self._call("cusparseLtMatmulPlanInit", self._plan, self._operation, self._selection)
        size = ctypes.c_size_t()
        self._call("cusparseLtMatmulGetWorkspace", self._plan, ctypes.byref(size))
        self.workspace_bytes = size.value
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        self._stream = ctypes.c_void_p()
        # Plain integers, so that the hot path creates no ctypes objects.
        self._fixed = tuple(
            map(ctypes.addressof, (self._handle, self._plan, self._one, self._zero, self._stream))
        )
        self._matmul = self._library.raw.cusparseLtMatmul
        self.lock = Lock()  # layers of one shape share the plan, and threads may share a layer

    def __call__(
        self, buffer: Tensor, x: Tensor, bias: Tensor | None, scale: Tensor | None, y: Tensor
    ) -> None:
        """Enqueue the product on the current stream, which writes ``y`` (rows, out).

        ``x`` (rows, columns) and ``y`` are contiguous. ``bias`` (out,) and ``scale`` (out,) are given if the
        plan has them.
        """
        address_of_handle, address_of_plan, one, zero, address_of_stream = self._fixed
        stream = torch_internals.raw_stream(self._device)
        scratch = self.workspace(stream).data_ptr()
        added = 0 if bias is None else bias.data_ptr()
        factor = 0 if scale is None else scale.data_ptr()
        result = y.data_ptr()
        with self.lock:
            if added and added != self._bias.value:
                self._set_bias(added)
            self._stream.value = stream
            status = self._matmul(
                address_of_handle,
                address_of_plan,
                factor or one,
                buffer.data_ptr(),
                x.data_ptr(),
                zero,
                result,
                result,
                scratch,
                address_of_stream,
                1,
            )
        if status:
            raise CusparseltError(f"cusparseLtMatmul failed: {self._library.reason(status)}")

    def step(self, buffer: Tensor, bias: Tensor | None) -> MatmulStep:
        """Return the product as a step of a launch plan: addresses of x, y and the workspace.

        A step with a bias (out,), of the type of y, must run under ``lock``.
        """
        address_of_handle, address_of_plan, one, zero, _ = self._fixed
        pointers = (address_of_handle, address_of_plan, one, buffer.data_ptr(), 0, zero, 0, 0, 0)
        places = ((4, 0), (6, 1), (7, 1), (8, 2))
        if bias is None:
            return MatmulStep(_address_of(self._matmul), pointers, places)
        setting = Bias(
            _address_of(self._library.raw.cusparseLtMatmulDescSetAttribute),
            ctypes.addressof(self._operation),
            int(MatmulAttribute.BIAS_POINTER),
            ctypes.addressof(self._bias),
            bias.data_ptr(),
        )
        return MatmulStep(_address_of(self._matmul), pointers, places, setting)

    def scratch(self, stream: int) -> tuple[tuple[int], Tensor]:
        """Return scratch memory of a stream in the form of a launch plan."""
        memory = self.workspace(stream)
        return (memory.data_ptr(),), memory

    def workspace(self, stream: int) -> Tensor:
        """Return scratch memory of a stream (``CUstream`` as an integer) for this product."""
        return workspace(self._device, stream, self.workspace_bytes)

    def _call(self, name: str, *arguments: object) -> None:
        self._library.call(name, self._handle, *arguments)

    def _attribute(self, kind: str, subject: object, attribute: IntEnum, value: Any) -> None:
        """Get or set an attribute of a structure."""
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call(
            f"cusparseLtMatmul{kind}Attribute", subject, ctypes.c_int(attribute), ctypes.byref(value), size
        )

    def _describe(self, device_index: int, product: Product) -> None:
        self._weight = structured_descriptor(device_index, product.out, product.columns, product.dtype)
        self._input, self._output, self._operation = opaque_memory(), opaque_memory(), opaque_memory()
        # A row-major (rows, columns) input is a column-major (columns, rows) matrix, as is the result.
        for descriptor, length, dtype in (
            (self._input, product.columns, product.dtype),
            (self._output, product.out, product.out_dtype),
        ):
            self._call(
                "cusparseLtDenseDescriptorInit",
                descriptor,
                ctypes.c_int64(length),
                ctypes.c_int64(product.rows),
                ctypes.c_int64(length),
                ctypes.c_uint32(16),
                ctypes.c_int(DATA_TYPES[dtype]),
                ctypes.c_int(Order.COLUMN),
            )
        compute = ComputeType.INT32 if product.dtype == torch.int8 else ComputeType.FLOAT32
        self._call(
            "cusparseLtMatmulDescriptorInit",
            self._operation,
            ctypes.c_int(0),
            ctypes.c_int(0),
            self._weight,
            self._input,
            self._output,
            self._output,
            ctypes.c_int(compute),
        )
        flags = {MatmulAttribute.RELU: product.relu, MatmulAttribute.ALPHA_VECTOR_SCALING: product.scaled}
        for flag in (name for name, wanted in flags.items() if wanted):
            self._attribute("DescSet", self._operation, flag, ctypes.c_int(1))
        self._bias = ctypes.c_void_p()

    def _set_bias(self, address: int) -> None:
        # Every product reads the descriptor, so a plan serves all layers of its shape.
        self._bias.value = address
        self._attribute("DescSet", self._operation, MatmulAttribute.BIAS_POINTER, self._bias)


def _address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


plan = lru_cache(maxsize=1024)(MatmulPlan)
"""Cached :class:`MatmulPlan`; takes its arguments by position."""


_workspaces: dict[tuple[int, int], list[Tensor]] = {}
_LEAST_WORKSPACE = 1 << 22


def workspace(device_index: int, stream: int, size: int) -> Tensor:
    """Return scratch memory of a stream.

    Memory that has become too small is kept, because captured CUDA graphs may still write to it.
    """
    kept = _workspaces.get((device_index, stream))
    if kept is None or kept[-1].numel() < size:
        kept = _workspaces.setdefault((device_index, stream), [])
        device = torch.device("cuda", device_index)
        kept.append(torch.empty(max(size, _LEAST_WORKSPACE), dtype=torch.uint8, device=device))
    return kept[-1]
