"""Dense attention masks that have what block patterns tell apart: full, empty, repeated and ragged blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.attention.patterns.masks import from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern


class Masked(NamedTuple):
    """A dense mask and a block size for it.

    Attributes:
        mask: bool (queries, keys), or (heads, queries, keys).
        block_size: tokens.
    """

    mask: Tensor
    block_size: int

    @property
    def array(self) -> np.ndarray:
        """The mask as numpy has it."""
        return self.mask.numpy()

    def pattern(self) -> BlockPattern:
        """The mask in blocks."""
        return from_token_mask(self.mask, self.block_size)


def random_mask(
    queries: int, keys: int, block_size: int, *, heads: int | None = None, seed: int = 0
) -> Tensor:
    """Blocks that are empty, full, drawn anew, or copies of one of two others, in equal parts."""
    numbers = np.random.default_rng(seed)
    rows, columns = -(-queries // block_size), -(-keys // block_size)
    mask = np.zeros((heads or 1, rows, columns, block_size, block_size), dtype=bool)
    stock = numbers.random((2, block_size, block_size)) < 0.3
    for place in np.ndindex(mask.shape[:3]):
        kind = numbers.integers(5)
        if kind == 1:
            mask[place] = True
        elif kind == 2:
            mask[place] = numbers.random((block_size, block_size)) < numbers.choice([0.01, 0.5, 0.99])
        elif kind > 2:
            mask[place] = stock[kind - 3]
    tokens = mask.swapaxes(2, 3).reshape(len(mask), rows * block_size, columns * block_size)
    tokens = tokens[:, :queries, :keys]
    return torch.from_numpy(np.ascontiguousarray(tokens if heads else tokens[0]))


@st.composite
def masked(draw: st.DrawFn, heads: int | None = None) -> Masked:
    """A mask of up to 150 queries and keys; without ``heads`` shared, or for up to three."""
    block_size = draw(st.sampled_from([16, 32, 48, 64, 128]))
    queries, keys = draw(st.integers(1, 150)), draw(st.integers(1, 150))
    count = draw(st.sampled_from([None, 2, 3])) if heads is None else heads
    mask = random_mask(queries, keys, block_size, heads=count, seed=draw(st.integers(0, 2**32 - 1)))
    return Masked(mask, block_size)


@st.composite
def masked_pairs(draw: st.DrawFn) -> tuple[Masked, Masked]:
    """Two masks that may be combined: equal lengths and block size; one of them may be shared."""
    first = draw(masked())
    queries, keys = first.mask.shape[-2:]
    several = first.mask.shape[0] if first.mask.ndim == 3 else draw(st.sampled_from([2, 3]))
    heads = draw(st.sampled_from([None, several]))
    seed = draw(st.integers(0, 2**32 - 1))
    second = random_mask(queries, keys, first.block_size, heads=heads, seed=seed)
    pair = first, Masked(second, first.block_size)
    return pair if draw(st.booleans()) else (pair[1], pair[0])
