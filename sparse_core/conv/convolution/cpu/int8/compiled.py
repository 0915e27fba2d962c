"""Layers of bytes in C++, by the instruction set of the processor."""

from __future__ import annotations

import ctypes
import functools
import logging
import pathlib
import time
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from sparse_core.conv.convolution.cpu.int8.weights import ByteLayer, ByteScale, pack_layer
from sparse_core.kernels import native

#: Instruction sets in the order of the numbers that C++ gives them. ``"skipping"`` is AVX-512 VNNI without
#: the zeros of 2:4 weights.
Path = Literal["portable", "avx2", "avx_vnni", "avx512_vnni", "amx", "skipping"]
_NUMBERS: dict[Path, int] = {path: number for number, path in enumerate(get_args(Path))}
_NUMBER, _POINTER = ctypes.c_int64, ctypes.c_void_p
_LOG = logging.getLogger(__name__)


class _LayerArguments(ctypes.Structure):
    """``Layer`` of products.cpp."""

    _fields_ = (
        *((name, _POINTER) for name in ("rows", "table", "weight", "scale", "bias", "residual")),
        *((name, _POINTER) for name in ("residual_scale", "out")),
        *((name, _NUMBER) for name in ("missing", "width", "taps", "made", "floats")),
        *((name, _POINTER) for name in ("kept", "places")),
    )
    #: The tensors at these addresses, which must live as long.
    tensors: list[Tensor | None]


PRODUCTS = native.BackgroundLibrary(
    pathlib.Path(__file__).with_name("products.cpp"),
    {
        "int8_paths": (_NUMBER, []),
        "int8_layer": (None, [ctypes.POINTER(_LayerArguments), _NUMBER, _NUMBER, _NUMBER]),
        "int8_rounded": (
            None,
            [_POINTER, _POINTER, _NUMBER, _NUMBER, _NUMBER, ctypes.c_float, _POINTER],
        ),
        "int8_largest": (None, [_POINTER, _POINTER, _NUMBER, _NUMBER, _POINTER]),
    },
    "layers of bytes run in torch",
)


def available() -> bool:
    """Return True if the library is built or can be compiled here."""
    return native.available(PRODUCTS.source)


def paths() -> tuple[Path, ...]:
    """Return the instruction sets of this processor; empty until the library is compiled."""
    library = PRODUCTS.library()
    if library is None:
        return ()
    bits = library.int8_paths()
    return tuple(path for path, number in _NUMBERS.items() if bits >> number & 1)


@functools.cache
def fastest_path(*, two_four: bool) -> Path:
    """Return the path that layers take by default: the widest that agrees with the portable one.

    Args:
        two_four: of a layer with 2:4 weights, whose zeros are skipped if that was faster in a measurement.
    """
    layer, *tensors = _example()
    expected = _run_example("portable", layer, *tensors)
    able = paths()
    for path in ("amx", "avx512_vnni", "avx_vnni", "avx2"):
        if path not in able:
            continue
        if not torch.equal(_run_example(path, layer, *tensors), expected):
            _LOG.warning("layers of bytes do not use %s: its results are wrong on this processor", path)
            continue
        if two_four and path == "avx512_vnni" and "skipping" in able:
            whole, skipping = (_least_time(each, layer, *tensors) for each in (path, "skipping"))
            if torch.equal(_run_example("skipping", layer, *tensors), expected) and skipping < whole:
                return "skipping"
        return path
    return "portable"


def _example() -> tuple[ByteLayer, Tensor, Tensor, Tensor]:
    """Return a 2:4 layer with rows, a table and a residual."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn((9, 80, 112), generator=generator)
    weight.view(9, 20, 4, 112)[:, :, 1::2] = 0
    scale = ByteScale.of(8.0)
    layer = pack_layer(
        weight, torch.randn(112, generator=generator), in_scale=scale, out_scale=scale, residual_scale=scale
    )
    rows, residual = (torch.randint(0, 256, (135, width), generator=generator) for width in (80, 112))
    rows[-1] = 0
    table = torch.randint(0, 135, (135, 9), generator=generator)
    table[::3] = 134
    return layer, rows.to(torch.uint8), table.int(), residual.to(torch.uint8)


def _run_example(path: Path, layer: ByteLayer, rows: Tensor, table: Tensor, residual: Tensor) -> Tensor:
    out = torch.empty((len(table), layer.out_width), dtype=torch.uint8)
    task = layer_task(rows, layer, table, residual, out, path)
    assert task is not None
    task(0, len(out))
    return out


def _least_time(path: Path, layer: ByteLayer, rows: Tensor, table: Tensor, residual: Tensor) -> float:
    taken = []
    for _ in range(20):
        start = time.perf_counter()
        _run_example(path, layer, rows, table, residual)
        taken.append(time.perf_counter() - start)
    return min(taken)


def layer_task(
    rows: Tensor,
    layer: ByteLayer,
    table: Tensor | None,
    residual: Tensor | None,
    out: Tensor,
    path: Path | None,
) -> Callable[[int, int], None] | None:
    """Return a function that computes a range of output rows; None until the library is compiled.

    Arguments: see :func:`sparse_core.conv.convolution.cpu.int8.byte_layer`.
    """
    library = PRODUCTS.library()
    if library is None:
        return None
    chosen = fastest_path(two_four=layer.kept is not None) if path is None else path
    if path is not None and (path not in paths() or (path == "skipping" and layer.kept is None)):
        raise ValueError(f"path must be one of {', '.join(paths())}, skipping only for 2:4; got {path!r}")
    given = [rows, table, layer.packed, layer.scale, layer.bias, residual, layer.residual_scale, out]
    arguments = _LayerArguments(
        *map(_address, given),
        len(rows) - 1,
        layer.width,
        len(layer.weight),
        layer.out_width,
        layer.floats,
        *map(_address, (layer.kept, layer.places)),
    )
    arguments.tensors = [*given, layer.kept, layer.places]
    number, run = _NUMBERS[chosen], library.int8_layer
    return lambda first, last: run(arguments, first, last, number)


def round_rows(values: Tensor, order: Tensor | None, inverse: float, out: Tensor) -> bool:
    """Write rows of bytes, see :func:`sparse_core.conv.convolution.cpu.int8.byte_rows`; False if not done."""
    library = PRODUCTS.library()
    if library is None:
        return False
    library.int8_rounded(
        values.data_ptr(), _address(order), len(out), values.shape[1], out.shape[1], inverse, out.data_ptr(),
    )  # fmt: skip
    return True


def largest_rows(rows: Tensor, counts: Tensor, out: Tensor) -> bool:
    """Write the maxima of runs of rows; False if not done."""
    library = PRODUCTS.library()
    if library is None:
        return False
    library.int8_largest(rows.data_ptr(), counts.data_ptr(), *out.shape, out.data_ptr())
    return True


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
