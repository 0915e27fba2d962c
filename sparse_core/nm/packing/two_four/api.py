"""Prune to 2:4 and pack in one pass over the weight."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.kernels.op import Impl, Op, by_torch, by_triton
from sparse_core.nm.packing.two_four.common import Compressed24, PackedBoth
from sparse_core.nm.packing.two_four.layout import fits

_TYPES = (torch.float16, torch.bfloat16)
PRUNE_AND_PACK: Op[()] = Op("prune_and_pack", __package__, by_triton(), by_torch(), gradient=False)


def prune_and_pack(weight: Tensor, *, impl: Impl = "auto") -> Compressed24:
    """Keep the two largest magnitudes of each group of four and return cuSPARSELt's compressed form.

    Args:
        weight: (rows, columns) float16 or bfloat16; rows divisible by 64, columns by 32. Ties go to the lower
            position; NaN counts as larger than infinity.
        impl: ``"reference"`` is plain torch, ``"triton"`` one kernel; ``"auto"`` follows the device.

    Raises:
        TypeError: another dtype.
        ValueError: sizes do not fit.
        ImplementationError: the named ``impl`` cannot run here.
    """
    _check(weight, both=False)
    implementation = PRUNE_AND_PACK.pick(impl, weight.device)
    packed: Compressed24 = implementation.prune_and_pack(_aligned(weight))
    return packed


def prune_and_pack_both(weight: Tensor, *, dense: bool = False, impl: Impl = "auto") -> PackedBoth:
    """Prune every 4x4 tile to two of four in each row and column; pack the weight and its transpose.

    Forward and backward passes then multiply with the same pruned weight on sparse tensor cores (Hubara et
    al., "Accelerated Sparse Neural Training", 2021, equation 4). All 90 patterns of a tile are tried, and the
    one with the most magnitude is kept. The hardware reads groups only along the contracted dimension, so
    each direction needs a buffer.

    Args:
        weight: (rows, columns) float16 or bfloat16, both sizes divisible by 64. Magnitudes are summed in
            float32; ties go
            to the first pattern. A tile with NaN keeps some pattern, which depends on ``impl``.
        dense: also return the pruned dense weight.
        impl: see :func:`prune_and_pack`.

    Returns:
        The weight, its transpose, and the pruned dense weight if requested.

    Raises:
        TypeError: another dtype.
        ValueError: sizes do not fit.
        ImplementationError: the named ``impl`` cannot run here.
    """
    _check(weight, both=True)
    implementation = PRUNE_AND_PACK.pick(impl, weight.device)
    packed: PackedBoth = implementation.prune_and_pack_both(_aligned(weight), dense=dense)
    return packed


def _aligned(weight: Tensor) -> Tensor:
    # The kernels read a group of four as one word.
    weight = weight.detach().contiguous()
    return weight if weight.storage_offset() % 4 == 0 and weight.data_ptr() % 8 == 0 else weight.clone()


def _check(weight: Tensor, *, both: bool) -> None:
    if weight.dtype not in _TYPES:
        raise TypeError(f"weight must be float16 or bfloat16, got {weight.dtype}")
    if weight.ndim != 2:
        raise ValueError(f"weight must be two-dimensional, got shape {tuple(weight.shape)}")
    rows, columns = weight.shape
    if both and (rows % 64 or columns % 64):
        raise ValueError(f"rows and columns must be divisible by 64, got {rows}x{columns}")
    if not fits(rows, columns, 2):
        raise ValueError(f"rows must be divisible by 64 and columns by 32, got {rows}x{columns}")
