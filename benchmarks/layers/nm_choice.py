"""What was chosen for a 2:4 product: the benchmarks of layers say it."""

from __future__ import annotations

import torch

from sparse_core.nm.linear.choice import TUNER, Choice
from sparse_core.nm.linear.common import Epilogue
from sparse_core.nm.linear.measure import case_of
from sparse_core.nm.packed import PackedNM


def chosen(packed: PackedNM, rows: int, *, bias: bool) -> Choice | None:
    """The choice for a layer with a dense copy of its weight on a GPU, where it was measured."""
    out_dtype = torch.int32 if packed.dtype == torch.int8 else packed.dtype
    return TUNER.lookup(case_of(packed, rows, Epilogue(None, bias, False, out_dtype), unpacks=False))


def way(choice: Choice) -> str:
    """In words: ``"dense"``, ``"vendor 17"``."""
    return choice.method if choice.method == "dense" else f"{choice.method} {choice.variant}"
