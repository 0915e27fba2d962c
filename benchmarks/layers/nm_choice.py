"""The implementation chosen for a 2:4 product, for the tables of the layer benchmarks."""

from __future__ import annotations

import torch

from sparse_core.nm.linear.choice import TUNER, LinearChoice
from sparse_core.nm.linear.common import LinearEpilogue
from sparse_core.nm.linear.measure import case_of
from sparse_core.nm.packing.packed_weight import PackedNM


def chosen(packed: PackedNM, rows: int, *, bias: bool) -> LinearChoice | None:
    """The choice for a layer with a dense copy of its weight on a GPU, where it was measured."""
    out_dtype = torch.int32 if packed.dtype == torch.int8 else packed.dtype
    return TUNER.lookup(case_of(packed, rows, LinearEpilogue(None, bias, False, out_dtype), unpacks=False))


def way(choice: LinearChoice) -> str:
    """In words: ``"dense"``, ``"vendor 17"``."""
    return choice.method if choice.method == "dense" else f"{choice.method} {choice.variant}"
