"""Products of a few rows with a packed 2:4 weight: the CUDA kernel ``decode.cu``, which reads it once."""

from __future__ import annotations

import ctypes
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.kernels import nvrtc, torch_internals
from sparse_core.kernels.launch_plan import KernelLaunch, KernelStep, Place
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.two_four.layout import nibbles_from_index

MOST_ROWS = 32
"""Most rows of x that the kernel supports."""

_SOURCE = Path(__file__).with_name("decode.cu")
_ACTIVATIONS = {None: 0, "relu": 1, "gelu": 2}
ELEMENTS = {torch.bfloat16: 0, torch.float16: 1}
"""Types that the kernel supports, with their number in the kernel."""


class Variant(NamedTuple):
    """Division of the work.

    Attributes:
        row_tiles: blocks of 16 weight rows per thread block.
        warps: warps per thread block, which share the columns of the weight.
        least_blocks: thread blocks per multiprocessor for which registers are limited.
    """

    row_tiles: int
    warps: int
    least_blocks: int


VARIANTS = (
    Variant(1, 8, 2),
    Variant(2, 8, 1),
    Variant(2, 4, 4),
    Variant(2, 16, 1),
    Variant(4, 4, 1),
    Variant(4, 8, 1),
    Variant(2, 4, 1),
)


def supports(weight: PackedNM) -> bool:
    """Return True if the kernel supports this weight: 2:4, 16-bit, whole tiles, aligned values."""
    out, columns = weight.shape
    pattern = weight.pattern
    return (
        (pattern.n, pattern.m) == (2, 4)
        and weight.dtype in ELEMENTS
        and out % 16 == 0
        and columns % 128 == 0
        and out > 0
        and columns > 0
        and weight.values.is_contiguous()
        and weight.values.data_ptr() % 16 == 0
    )


def variant_fits(variant: Variant, out: int, rows: int) -> bool:
    """Return True if a variant divides ``out`` and its sums fit into static shared memory."""
    columns = 8 * _column_tiles(rows) + 1
    return (
        out % (16 * variant.row_tiles) == 0 and variant.warps * variant.row_tiles * 16 * columns * 4 <= 48_000
    )


def reorder_metadata(weight: PackedNM) -> Tensor:
    """Return metadata in the kernel's order: row tile, 128 columns, lane, half; (out / 16, in / 128, 32, 2).

    Lane (g, t) of a warp feeds instruction ``s = t // 2`` of each 64 columns with a word whose nibble i is
    that of row g and group ``4 i + 2 s + t % 2``, and whose nibble 4 + i is the same of row g + 8.
    """
    out, columns = weight.shape
    nibbles = nibbles_from_index(weight.index()).int()
    nibbles = nibbles.reshape(out // 16, 2, 8, columns // 128, 2, 4, 2, 2)
    words = torch.zeros(
        (out // 16, 8, columns // 128, 2, 2, 2), dtype=torch.int32, device=weight.device
    )  # row tile, g, 128 columns, half, s, t % 2
    for upper in range(2):
        for i in range(4):
            words |= nibbles[:, upper, :, :, :, i] << (4 * (i + 4 * upper))
    return words.permute(0, 2, 1, 4, 5, 3).reshape(out // 16, columns // 128, 32, 2).contiguous()


class FewRowsLaunch:
    """The kernel with fixed arguments except its tensors; a call enqueues ``activation(x @ W.T + bias)``.

    ``weight`` is one that :func:`supports`, ``metadata`` comes from :func:`reorder_metadata`.
    """

    def __init__(
        self, weight: PackedNM, metadata: Tensor, rows: int, activation: str | None, variant: Variant
    ) -> None:
        out, columns = weight.shape
        defines = {
            "ELEMENT": ELEMENTS[weight.dtype],
            "ROW_TILES": variant.row_tiles,
            "COLUMN_TILES": _column_tiles(rows),
            "WARPS": variant.warps,
            "MIN_BLOCKS": variant.least_blocks,
            "ACTIVATION": _ACTIVATIONS[activation],
        }
        kernel = nvrtc.compile_kernel(_SOURCE, "decode", defines, weight.device)
        self._values, self._metadata = weight.values, metadata
        self._device = weight.device.index
        self._x, self._bias, self._y = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._weight = ctypes.c_void_p()
        self._arguments = (
            self._x,
            self._weight,
            ctypes.c_void_p(metadata.data_ptr()),
            self._bias,
            self._y,
            ctypes.c_int(rows),
            ctypes.c_int(out),
            ctypes.c_int(columns),
            ctypes.c_longlong(columns),
        )
        grid = (out // (16 * variant.row_tiles), 1, 1)
        self._launch = kernel.prepare(grid, 32 * variant.warps, self._arguments)
        self._described = KernelLaunch(kernel.function, grid, (32 * variant.warps, 1, 1), 0, b"", ())
        self._lock = Lock()  # the arguments are shared by all threads that use the layer

    def __call__(self, x: Tensor, bias: Tensor | None, y: Tensor) -> None:
        """Write the product of ``x`` (rows, in), contiguous and aligned to 16 bytes, to ``y`` (rows, out)."""
        with self._lock:
            self._x.value = x.data_ptr()
            self._weight.value = self._values.data_ptr()
            self._bias.value = None if bias is None else bias.data_ptr()
            self._y.value = y.data_ptr()
            self._launch(torch_internals.raw_stream(self._device))

    def step(self, bias: Tensor | None, x_shift: int = 0, y_shift: int = 0) -> KernelStep:
        """Return the launch as a step of a launch plan; shifts are bytes added to x and y."""
        with self._lock:
            self._weight.value = self._values.data_ptr()
            self._bias.value = None if bias is None else bias.data_ptr()
            arguments = tuple(bytes(argument) for argument in self._arguments)
        of_x, of_y = (self._arguments.index(argument) for argument in (self._x, self._y))
        launch = self._described._replace(arguments=arguments)
        return KernelStep(launch, (Place(of_x, 0, 0, x_shift), Place(of_y, 0, 1, y_shift)))


def _column_tiles(rows: int) -> int:
    return max(1, -(-rows // 8))
