"""Compress a packed 2:4 weight to the buffer that cuSPARSELt multiplies with."""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from sparse_core.nm.linear.cusparselt.library import DATA_TYPES, Order, handle, load, opaque_memory
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.two_four.layout import fits, metadata_from_nibbles, nibbles_from_index

_NOT_TRANSPOSED = 0


def compress(weight: PackedNM) -> Tensor:
    """Return the library's buffer (bytes,) uint8 of a 2:4 weight: its values, then metadata.

    The weight is on CUDA, 16-bit floating point or int8, of sizes that the library supports.

    Raises:
        CusparseltError: the library refuses the shape.
    """
    out, columns = weight.shape
    itemsize = weight.dtype.itemsize
    if fits(out, columns, itemsize) and layout_matches(weight.device.index, weight.dtype):
        buffer = torch.empty(
            weight.values.numel() * itemsize + out * columns // 8, dtype=torch.uint8, device=weight.device
        )
        stored = weight.values.numel() * itemsize
        buffer[:stored].view(weight.dtype).copy_(weight.values.detach().reshape(-1))
        buffer[stored:].copy_(metadata_from_nibbles(nibbles_from_index(weight.index()), itemsize))
        return buffer
    return compress_dense(weight.to_dense().detach())


def compress_dense(weight: Tensor) -> Tensor:
    """Let the library compress a dense matrix (out, in), contiguous on CUDA, that is already 2:4."""
    library, index = load(), weight.device.index
    descriptor = structured_descriptor(index, weight.shape[0], weight.shape[1], weight.dtype)
    size, scratch = ctypes.c_size_t(), ctypes.c_size_t()
    library.call(
        "cusparseLtSpMMACompressedSize2", handle(index), descriptor, ctypes.byref(size), ctypes.byref(scratch)
    )
    buffer = torch.zeros(size.value, dtype=torch.uint8, device=weight.device)
    temporary = torch.empty(max(scratch.value, 16), dtype=torch.uint8, device=weight.device)
    library.call(
        "cusparseLtSpMMACompress2",
        handle(index),
        descriptor,
        ctypes.c_int(1),
        ctypes.c_int(_NOT_TRANSPOSED),
        ctypes.c_void_p(weight.data_ptr()),
        ctypes.c_void_p(buffer.data_ptr()),
        ctypes.c_void_p(temporary.data_ptr()),
        ctypes.c_void_p(torch.cuda.current_stream(weight.device).cuda_stream),
    )
    return buffer


def structured_descriptor(device_index: int, rows: int, columns: int, dtype: torch.dtype) -> ctypes.Array:
    """Return a descriptor of a row-major 2:4 matrix."""
    descriptor = opaque_memory()
    load().call(
        "cusparseLtStructuredDescriptorInit",
        handle(device_index),
        descriptor,
        ctypes.c_int64(rows),
        ctypes.c_int64(columns),
        ctypes.c_int64(columns),
        ctypes.c_uint32(16),
        ctypes.c_int(DATA_TYPES[dtype]),
        ctypes.c_int(Order.ROW),
        ctypes.c_int(0),
    )
    return descriptor


@cache
def layout_matches(device_index: int, dtype: torch.dtype) -> bool:
    """Return True if the library orders metadata as :mod:`.layout` does; cached."""
    device = torch.device("cuda", device_index)
    groups = torch.arange(128 * 64, device=device).reshape(128, 64)
    pairs = torch.tensor([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]], device=device)
    index = pairs[(groups * 2654435761 >> 7) % 6].to(torch.uint8)
    dense = torch.zeros(128, 64, 4, dtype=dtype, device=device)
    dense.scatter_(2, index.long(), torch.ones(128, 64, 2, dtype=dtype, device=device))
    theirs = compress_dense(dense.reshape(128, 256))
    ours = metadata_from_nibbles(nibbles_from_index(index), dtype.itemsize)
    stored = 128 * 128 * dtype.itemsize
    return torch.equal(theirs[stored : stored + len(ours)], ours)
