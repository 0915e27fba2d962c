from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from token_masks import Masked, masked, masked_pairs, random_mask

from sparse_core.attention.patterns.builders import bigbird, full, local_window
from sparse_core.attention.patterns.masks import from_block_mask, from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern


@settings(max_examples=60)
@given(pair=masked_pairs())
def test_union_and_intersection(pair: tuple[Masked, Masked]) -> None:
    first, second = (case.pattern() for case in pair)
    either, both = (first | second).validate(), (first & second).validate()
    masks = pair[0].mask, pair[1].mask
    assert torch.equal(either.to_token_mask(), masks[0] | masks[1])
    assert torch.equal(both.to_token_mask(), masks[0] & masks[1])
    # One canonical form: the dense masks lead to the same pattern.
    assert either == from_token_mask(masks[0] | masks[1], pair[0].block_size)
    assert both == from_token_mask(masks[0] & masks[1], pair[0].block_size)


@settings(max_examples=25)
@given(case=masked())
def test_union_and_intersection_with_empty_equal_and_full_patterns(case: Masked) -> None:
    pattern = case.pattern()
    heads = pattern.heads
    *_, queries, keys = case.mask.shape
    nothing = from_token_mask(torch.zeros(queries, keys, dtype=torch.bool), case.block_size)
    everything = full(queries, case.block_size, key_length=keys)
    assert (pattern | nothing) == pattern == (nothing | pattern)
    assert (pattern & everything) == pattern == (everything & pattern)
    assert (pattern | pattern) == pattern == (pattern & pattern)
    assert (pattern & nothing) == nothing.expand_heads(heads) == (nothing & pattern)
    assert (pattern | everything) == everything.expand_heads(heads) == (everything | pattern)


def test_two_halves_of_a_block_make_a_full_one() -> None:
    half = torch.zeros(20, 20, dtype=torch.bool)
    half[:, ::2] = True
    joined = from_token_mask(half, 32) | from_token_mask(~half, 32)
    assert joined.partial.tolist() == [-1]
    assert len(joined.token_masks) == 0
    common = from_token_mask(half, 32) & from_token_mask(~half, 32)
    assert common.blocks == 0


@settings(max_examples=80)
@given(case=masked(), rows=st.integers(-200, 200), columns=st.integers(-200, 200))
def test_shifted(case: Masked, rows: int, columns: int) -> None:
    shifted = case.pattern().shifted(rows, columns).validate()
    expected = np.zeros_like(case.array)
    *_, queries, keys = expected.shape
    for i in range(max(0, -rows), min(queries, queries - rows)):
        for_row = case.array[..., i, max(0, -columns) : max(0, min(keys, keys - columns))]
        start = max(0, columns)
        expected[..., i + rows, start : start + for_row.shape[-1]] = for_row
    assert np.array_equal(shifted.to_token_mask().numpy(), expected)
    assert shifted == from_token_mask(torch.from_numpy(expected), case.block_size)


def test_a_shift_by_whole_blocks_makes_no_masks() -> None:
    pattern = local_window(256, 8, 32).shifted(64, -32)
    assert len(pattern.token_masks) <= len(local_window(256, 8, 32).token_masks)
    assert from_block_mask(torch.eye(8, dtype=torch.bool), 32).shifted(32).partial.unique().tolist() == [-1]
    with pytest.raises(TypeError, match="rows must be a whole number of tokens"):
        pattern.shifted(1.5)  # type: ignore[arg-type]


@settings(max_examples=60)
@given(case=masked())
def test_causal(case: Masked) -> None:
    *_, queries, keys = case.mask.shape
    causal = case.pattern().causal().validate()
    lower = np.tri(queries, keys, k=keys - queries, dtype=bool)
    assert np.array_equal(causal.to_token_mask().numpy(), case.array & lower)
    assert causal == from_token_mask(case.mask & torch.from_numpy(lower), case.block_size)
    assert causal.causal() == causal


def test_causal_shares_one_mask() -> None:
    causal = full(64 * 20).causal()
    assert len(causal.token_masks) == 1
    assert causal.blocks == 20 * 21 // 2
    # With fewer keys, the first queries have no pairs.
    fewer = full(100, 16, key_length=30).causal()
    assert not fewer.to_token_mask()[:70].any()
    assert fewer.to_token_mask()[70, 0]


def test_long_patterns_are_combined_without_a_dense_mask() -> None:
    length = 65536 - 15
    pattern = bigbird(length, seed=1).causal()
    moved = pattern.shifted(3, -70)
    size = 64
    for row in (0, 1, 500, pattern.block_rows - 1):
        queries = range(row * size, min(length, (row + 1) * size))
        mask, other = dense_row(pattern, row), dense_row(moved, row)
        assert mask.shape[1] == length
        for i in queries:
            assert not mask[i - row * size, i + 1 :].any()
            if i < length - 3 and (i + 3) // size == row:
                assert torch.equal(other[i + 3 - row * size, : length - 70], mask[i - row * size, 70:])


def dense_row(pattern: BlockPattern, row: int) -> torch.Tensor:
    """Bool (tokens of the block row, keys)."""
    size = pattern.block_size
    found = torch.zeros(size, pattern.block_columns * size, dtype=torch.bool)
    for block in range(int(pattern.row_ptr[0, row]), int(pattern.row_ptr[0, row + 1])):
        column, mask = int(pattern.columns[block]), int(pattern.partial[block])
        found[:, column * size : (column + 1) * size] = pattern.token_masks[mask] if mask >= 0 else True
    return found[: pattern.query_length - row * size, : pattern.key_length]


def test_patterns_that_do_not_fit_each_other() -> None:
    pattern = local_window(100, 5, 16)
    for other, message in (
        (local_window(101, 5, 16, key_length=100), "different query_length: 100 and 101"),
        (local_window(100, 5, 16, key_length=64), "different key_length: 100 and 64"),
        (local_window(100, 5, 32), "different block_size: 16 and 32"),
    ):
        with pytest.raises(ValueError, match=message):
            pattern | other
        with pytest.raises(ValueError, match=message):
            pattern & other
    with pytest.raises(ValueError, match="with 2 and 3 heads"):
        pattern.expand_heads(2) | pattern.expand_heads(3)
    with pytest.raises(TypeError, match="unsupported operand"):
        pattern | torch.ones(3)
    with pytest.raises(TypeError, match="unsupported operand"):
        pattern & 3  # type: ignore[operator]


@pytest.mark.gpu
def test_devices(cuda: torch.device) -> None:
    first = from_token_mask(random_mask(300, 200, 64, heads=2, seed=1), 64)
    second = from_token_mask(random_mask(300, 200, 64, seed=2), 64)
    there = first.to(cuda), second.to(cuda)
    assert (there[0] | there[1]).to("cpu") == first | second
    assert (there[0] & there[1]).to("cpu") == first & second
    assert there[0].shifted(7, -9).causal().to("cpu") == first.shifted(7, -9).causal()
    with pytest.raises(ValueError, match="patterns of different device"):
        first | there[1]
