"""NaN and infinities reach the rows that may attend to them, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from allowed_rows import attend, differences, poisoned
from hypothesis import given, settings
from hypothesis import strategies as st
from token_masks import Masked, masked, random_mask

from sparse_core.attention import sparse_attention


def run(given_mask: Masked, impl: str, seed: int, *, lengths: bool = False, gradients: bool = True) -> list[str]:
    """Differences from attention row by row, of operands with some numbers that are not finite."""
    numbers, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    mask = given_mask.mask if given_mask.mask.ndim == 3 else given_mask.mask[None]
    queries, keys = mask.shape[1:]
    heads = len(mask) if len(mask) > 1 else int(numbers.choice([1, 2, 4]))
    key_heads = heads if heads % 2 else heads // int(numbers.choice([1, 2]))
    batch, dim = int(numbers.choice([1, 2])), int(numbers.choice([5, 16]))
    shapes = [(batch, count, length, dim) for count, length in ((heads, queries), (key_heads, keys))]
    operands = [torch.randn(shape, generator=generator) for shape in (*shapes, shapes[1], shapes[0])]
    operands.append(torch.randn(shapes[0][:3], generator=generator))
    operands = poisoned(operands, 2, seed)
    if not gradients:
        operands[3:] = (one.nan_to_num(0.0, 0.0, 0.0) for one in operands[3:])
    options: dict[str, Any] = {}
    true = [[queries] * batch, [keys] * batch]
    if lengths:
        true = [numbers.integers(0, length + 1, batch).tolist() for length in (queries, keys)]
        options = {"query_lengths": torch.tensor(true[0]), "key_lengths": torch.tensor(true[1])}
    expected = attend(operands, mask, dim**-0.5, *true)
    q, k, v = (one.requires_grad_(gradients) for one in operands[:3])
    pattern = given_mask.pattern()
    out, lse = sparse_attention(q, k, v, pattern, impl=impl, return_lse=True, **options)  # type: ignore[call-overload]
    found = [out, lse]
    if gradients:
        # Without a block there is nothing that lse depends on.
        given = [pair for pair in zip(found, operands[3:], strict=True) if pair[0].requires_grad]
        outputs, incoming = zip(*given, strict=True)
        found += torch.autograd.grad(outputs, (q, k, v), incoming, materialize_grads=True)
    return differences(found, expected, 1e-4)


@settings(deadline=None, max_examples=60)
@given(given_mask=masked(), impl=st.sampled_from(["cpu", "reference"]), seed=st.integers(0, 2**32 - 1))
def test_reach_what_attends_to_them(given_mask: Masked, impl: str, seed: int) -> None:
    assert not run(given_mask, impl, seed)


@settings(deadline=None, max_examples=30)
@given(given_mask=masked(), seed=st.integers(0, 2**32 - 1))
def test_reach_what_attends_to_them_in_padded_sequences(given_mask: Masked, seed: int) -> None:
    assert not run(given_mask, "reference", seed, lengths=True)
