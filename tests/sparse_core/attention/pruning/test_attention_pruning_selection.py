"""Patterns from importance have the requested number of blocks, the best ones."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.attention.patterns.builders import full, local_window, random_blocks
from sparse_core.attention.patterns.grid import FULL
from sparse_core.attention.pruning.selection import patterns_from_importance


@settings(max_examples=60)
@given(
    heads=st.integers(1, 3),
    queries=st.integers(1, 100),
    keys=st.integers(1, 100),
    density=st.floats(0.01, 1.0),
    causal=st.booleans(),
    windowed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_density_is_reached(
    heads: int, queries: int, keys: int, density: float, causal: bool, windowed: bool, seed: int
) -> None:
    """Check the exact density, unless rows and the diagonal need more, within the allowed blocks."""
    rows, columns = -(-queries // 16), -(-keys // 16)
    importance = torch.rand(heads, rows, columns, generator=torch.Generator().manual_seed(seed))
    allowed = local_window(queries, 40, 16, key_length=keys) if windowed else None
    pattern = patterns_from_importance(
        importance,
        density,
        block_size=16,
        query_length=queries,
        key_length=keys,
        allowed=allowed,
        causal=causal,
    ).validate()
    bounds = full(queries, 16, key_length=keys) if allowed is None else allowed
    bounds = bounds.causal() if causal else bounds
    possible = bounds.to_block_mask()
    assert torch.equal(
        pattern.to_token_mask() & ~bounds.to_token_mask(), torch.zeros_like(pattern.to_token_mask())
    )
    blocks = pattern.to_block_mask().reshape(heads, rows, columns)
    assert not (blocks & ~possible).any()
    wanted = math.floor(density * int(possible.sum()) + 0.5)
    square = full(queries, 16, key_length=keys).causal()
    crossed = torch.zeros_like(possible)
    if causal:
        _, row, column = (index[square.partial != FULL] for index in square.coordinates())
        crossed[row, column] = True
        crossed &= possible
    least = int(crossed.sum()) + int((possible.any(dim=1) & ~crossed.any(dim=1)).sum())
    for head in range(heads):
        kept = blocks[head]
        assert int(kept.sum()) == max(wanted, least)
        assert torch.equal(kept.any(dim=1), possible.any(dim=1))
        assert not (crossed & ~kept).any()
        # Blocks kept beyond the needed ones have higher importance than dropped ones.
        best = torch.zeros_like(kept)
        best[torch.arange(rows), importance[head].masked_fill(~possible, -1).argmax(dim=1)] = True
        chosen = kept & ~crossed & ~(best & ~crossed.any(dim=1, keepdim=True))
        left = possible & ~kept
        if chosen.any() and left.any():
            assert importance[head][chosen].min() >= importance[head][left].max()


def test_pairs_within_blocks_are_those_allowed() -> None:
    allowed = local_window(100, 20, 16).causal()
    pattern = patterns_from_importance(
        torch.rand(2, 7, 7), 1.0, block_size=16, query_length=100, key_length=100, allowed=allowed
    )
    assert torch.equal(pattern.to_token_mask(), allowed.to_token_mask().expand(2, -1, -1))


def test_shared_pattern_and_equal_importance() -> None:
    pattern = patterns_from_importance(torch.zeros(4, 4), 0.5, block_size=16)
    assert (pattern.heads, pattern.blocks) == (1, 8)
    expected = torch.zeros(4, 4, dtype=torch.bool)
    # The first of each row is needed; the others by position.
    expected[:, 0] = True
    expected[0] = True
    expected[1, 1] = True
    assert torch.equal(pattern.to_block_mask(), expected)
    negative = patterns_from_importance(torch.full((4, 4), -0.0), 0.5, block_size=16)
    assert negative == pattern


def test_each_head_has_its_own_bounds() -> None:
    allowed = random_blocks(64, 0.5, 16, heads=2)
    pattern = patterns_from_importance(torch.rand(2, 4, 4), 0.75, block_size=16, allowed=allowed)
    blocks = pattern.to_block_mask()
    assert not (blocks & ~allowed.to_block_mask()).any()
    assert blocks.sum(dim=(1, 2)).tolist() == [6, 6]


def test_bad_arguments() -> None:
    importance = torch.rand(2, 4, 4)
    for density in (0.0, 1.1, math.nan):
        with pytest.raises(ValueError, match="density must be above 0 and at most 1"):
            patterns_from_importance(importance, density)
    with pytest.raises(TypeError, match="importance must be floating point"):
        patterns_from_importance(importance.long(), 0.5)
    with pytest.raises(ValueError, match="importance must have shape"):
        patterns_from_importance(importance[None], 0.5)
    with pytest.raises(ValueError, match="importance must be finite"):
        patterns_from_importance(importance * math.nan, 0.5)
    with pytest.raises(ValueError, match="need 3 x 4 importances, got 4 x 4"):
        patterns_from_importance(importance, 0.5, query_length=190)
    with pytest.raises(ValueError, match="allowed must be for 256 queries and 256 keys in blocks of 64"):
        patterns_from_importance(importance, 0.5, allowed=full(250))
    with pytest.raises(ValueError, match="with 1 or 2 heads"):
        patterns_from_importance(importance, 0.5, allowed=full(256).expand_heads(3))
    with pytest.raises(ValueError, match="allowed is on meta"):
        patterns_from_importance(importance, 0.5, allowed=full(256).to("meta"))
