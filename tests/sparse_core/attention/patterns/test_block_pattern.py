from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from token_masks import Masked, masked, random_mask
from torch import Tensor

from sparse_core.attention.patterns.grid import BlockGrid, equal_masks
from sparse_core.attention.patterns.masks import from_block_mask, from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern


def blocks_of(case: Masked) -> np.ndarray:
    """(heads, rows, columns, block_size, block_size) of the mask, padded with False."""
    size = case.block_size
    mask = case.array[None] if case.array.ndim == 2 else case.array
    heads, queries, keys = mask.shape
    rows, columns = -(-queries // size), -(-keys // size)
    padded = np.zeros((heads, rows * size, columns * size), dtype=bool)
    padded[:, :queries, :keys] = mask
    return padded.reshape(heads, rows, size, columns, size).swapaxes(2, 3)


@settings(max_examples=60)
@given(case=masked())
def test_token_masks_come_back(case: Masked) -> None:
    pattern = case.pattern().validate()
    assert torch.equal(pattern.to_token_mask(), case.mask)
    assert pattern.density == pytest.approx(case.array.mean(), rel=1e-15)
    assert pattern.pairs == case.array.sum()
    blocks = blocks_of(case)
    stored = blocks.any(axis=(3, 4))
    assert pattern.blocks == stored.sum()
    assert pattern.block_density == pytest.approx(stored.mean(), rel=1e-15)
    assert np.array_equal(pattern.row_lengths().numpy(), stored.sum(axis=2))
    expected = stored[0] if case.mask.ndim == 2 else stored
    assert np.array_equal(pattern.to_block_mask().numpy(), expected)
    assert np.array_equal(pattern.block_pairs().numpy(), blocks.sum(axis=(3, 4))[stored])


@settings(max_examples=40)
@given(case=masked())
def test_full_blocks_have_no_mask_and_equal_masks_are_kept_once(case: Masked) -> None:
    pattern = case.pattern()
    blocks = blocks_of(case)
    there = blocks_of(Masked(torch.ones_like(case.mask), case.block_size))
    stored = blocks.any(axis=(3, 4))
    full = (blocks == there).all(axis=(3, 4)) & stored
    assert np.array_equal(pattern.partial.numpy() == -1, full[stored])
    different = {block.tobytes() for block in blocks[stored & ~full]}
    assert len(pattern.token_masks) == len(different)
    # Numbered in the order of first use.
    used = [int(mask) for mask in pattern.partial if mask >= 0]
    assert list(dict.fromkeys(used)) == list(range(len(different)))


def test_offsets_of_a_head_continue_where_the_one_before_ended() -> None:
    mask = torch.zeros(2, 3, 2, dtype=torch.bool)
    mask[0, 0, 1] = mask[0, 2] = mask[1, 1, 0] = True
    pattern = from_block_mask(mask, 16)
    assert pattern.row_ptr.tolist() == [[0, 1, 1, 3], [3, 3, 4, 4]]
    assert pattern.columns.tolist() == [1, 0, 1, 0]
    assert pattern.partial.tolist() == [-1] * 4
    assert pattern.row_lengths().tolist() == [[1, 0, 2], [0, 1, 0]]
    assert [part.tolist() for part in pattern.coordinates()] == [[0, 0, 0, 1], [0, 2, 2, 1], [1, 0, 1, 0]]
    assert (pattern.heads, pattern.block_rows, pattern.block_columns, pattern.blocks) == (2, 3, 2, 4)


@settings(max_examples=40)
@given(case=masked())
def test_transposed(case: Masked) -> None:
    pattern = case.pattern()
    other = pattern.transposed().validate()
    assert torch.equal(other.to_token_mask(), case.mask.transpose(-1, -2))
    assert other is pattern.transposed()
    assert other.transposed() == pattern


@settings(max_examples=30)
@given(rows=st.integers(1, 6), columns=st.integers(1, 6), cut=st.integers(0, 15), seed=st.integers(0, 999))
def test_block_masks(rows: int, columns: int, cut: int, seed: int) -> None:
    mask = torch.from_numpy(np.random.default_rng(seed).random((rows, columns)) < 0.5)
    queries, keys = rows * 16 - cut, columns * 16 - (15 - cut)
    pattern = from_block_mask(mask, 16, query_length=queries, key_length=keys).validate()
    expected = np.kron(mask.numpy(), np.ones((16, 16), dtype=bool))[:queries, :keys]
    assert np.array_equal(pattern.to_token_mask().numpy(), expected)
    assert torch.equal(pattern.to_block_mask(), mask)
    assert len(pattern.token_masks) == 0
    assert pattern == from_token_mask(torch.from_numpy(expected), 16)
    assert from_block_mask(mask, 16).query_length == rows * 16


def test_assembling_sorts_cuts_and_drops() -> None:
    grid = BlockGrid(1, 20, 20, 16)
    ones = torch.ones(1, 16, 16, dtype=torch.bool)
    beyond = torch.zeros(1, 16, 16, dtype=torch.bool)
    beyond[0, 5] = True
    pattern = BlockPattern.assemble(
        grid,
        torch.zeros(3, dtype=torch.int64),
        torch.tensor([1, 1, 0]),
        torch.tensor([1, 0, 1]),
        torch.tensor([0, 1, 1]),
        torch.cat([ones, beyond]),
    ).validate()
    # The corner block is full; row 5 lies outside; the third block is cut after 4 keys.
    assert pattern.columns.tolist() == [1, 1]
    assert pattern.partial.tolist() == [0, -1]
    expected = torch.zeros(20, 20, dtype=torch.bool)
    expected[5, 16:] = expected[16:, 16:] = True
    assert torch.equal(pattern.to_token_mask(), expected)


@settings(max_examples=30)
@given(count=st.integers(1, 40), kinds=st.integers(1, 5), seed=st.integers(0, 999))
def test_equal_masks_share_a_number(count: int, kinds: int, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    # The masks differ in few positions, so that weak fingerprints would collide.
    stock = np.zeros((kinds, 256), dtype=bool)
    stock[np.arange(kinds), numbers.permutation(256)[:kinds]] = True
    chosen = numbers.integers(kinds, size=count)
    found = equal_masks(torch.from_numpy(stock[chosen].reshape(count, 16, 16))).numpy()
    assert np.array_equal(found[:, None] == found, chosen[:, None] == chosen)
    assert set(found) == set(range(len(set(chosen))))


def test_masks_with_one_fingerprint_are_still_told_apart() -> None:
    masks = torch.eye(16, dtype=torch.bool).reshape(16, 1, 16).repeat(2, 16, 1)
    found = equal_masks(masks, torch.zeros(32, dtype=torch.int64))
    expected = torch.arange(16).repeat(2)
    assert torch.equal(found[:, None] == found, expected[:, None] == expected)


def test_equality() -> None:
    mask = random_mask(70, 90, 16, heads=2, seed=3)
    pattern = from_token_mask(mask, 16)
    assert pattern == from_token_mask(mask.clone(), 16)
    assert pattern != from_token_mask(mask, 32)
    assert pattern != from_token_mask(mask[:1], 16)
    assert pattern != from_token_mask(~mask, 16)
    assert pattern != "a pattern"
    # Another order of the masks, the same pattern.
    count = len(pattern.token_masks)
    assert count > 2
    partial = torch.where(pattern.partial >= 0, count - 1 - pattern.partial, -1).int()
    renumbered = replaced(pattern, partial=partial, token_masks=pattern.token_masks.flip(0))
    assert renumbered.validate() == pattern
    changed = pattern.token_masks.clone()
    changed[1, 3, 3] ^= True
    assert replaced(pattern, token_masks=changed) != pattern
    with pytest.raises(TypeError, match="unhashable"):
        hash(pattern)


def replaced(pattern: BlockPattern, **changes: object) -> BlockPattern:
    """The pattern with other arguments."""
    names = ("row_ptr", "columns", "partial", "token_masks", "query_length", "key_length", "block_size")
    return BlockPattern(**{**{name: getattr(pattern, name) for name in names}, **changes})  # type: ignore[arg-type]


def test_copies_make_their_own_plans() -> None:
    pattern = from_token_mask(random_mask(70, 90, 16, seed=1), 16)
    content = pickle.dumps(pattern)
    pattern.plans["order"] = object()
    turned = pattern.transposed()
    assert pattern.density > 0
    # Copies do not hold plans.
    assert pickle.dumps(pattern) == content
    for copied in (pickle.loads(pickle.dumps(pattern)), copy.deepcopy(pattern)):
        assert copied == pattern
        assert copied.plans == {}
        assert copied.transposed() == turned
        assert copied.transposed() is not turned
    assert pattern.plans
    assert pattern.to("cpu") is pattern


@pytest.mark.gpu
def test_device(cuda: torch.device) -> None:
    mask = random_mask(200, 300, 64, heads=2, seed=5)
    pattern = from_token_mask(mask, 64)
    pattern.plans["order"] = object()
    moved = pattern.to(cuda)
    assert moved.plans == {}
    assert moved != pattern
    assert moved.to("cpu") == pattern
    assert from_token_mask(mask.to(cuda), 64) == moved
    assert torch.equal(moved.to_token_mask().cpu(), mask)
    assert moved.transposed().to("cpu") == pattern.transposed()


def test_expanded_heads() -> None:
    mask = random_mask(70, 90, 32, seed=2)
    pattern = from_token_mask(mask, 32)
    expanded = pattern.expand_heads(3).validate()
    assert torch.equal(expanded.to_token_mask(), mask.expand(3, -1, -1))
    assert expanded == from_token_mask(mask.expand(3, -1, -1), 32)
    assert pattern.expand_heads(1) is pattern
    assert expanded.expand_heads(3) is expanded
    assert expanded.density == pattern.density
    for heads in (2, 1):
        with pytest.raises(ValueError, match="this has 3"):
            expanded.expand_heads(heads)
    with pytest.raises(ValueError, match="expand_heads\\(0\\)"):
        pattern.expand_heads(0)


@settings(max_examples=30)
@given(case=masked())
def test_description(case: Masked) -> None:
    pattern = case.pattern()
    found = pattern.describe()
    blocks = blocks_of(case)
    there = blocks_of(Masked(torch.ones_like(case.mask), case.block_size))
    stored = blocks.any(axis=(3, 4))
    lengths = np.sort(stored.sum(axis=2), axis=None)
    assert found.pairs == case.array.sum()
    assert found.blocks == stored.sum()
    assert found.full_blocks == ((blocks == there).all(axis=(3, 4)) & stored).sum()
    held = there[stored].sum()
    assert found.used == pytest.approx(case.array.sum() / held if held else 0.0)
    assert (found.shortest_row, found.longest_row) == (lengths[0], lengths[-1])
    assert found.median_row == lengths[(len(lengths) - 1) // 2]
    assert found.empty_rows == (lengths == 0).sum()
    assert json.loads(json.dumps(found.to_json()))["nbytes"] == pattern.nbytes
    assert f"{found.pairs:,}" in str(found)
    assert f"{found.blocks:,} of {case.block_size} x {case.block_size}" in str(found)
    assert f"blocks={found.blocks}" in repr(pattern)


def sample() -> BlockPattern:
    mask = torch.zeros(2, 40, 40, dtype=torch.bool)
    mask[0, :16] = True
    mask[0, 20, 20] = mask[1, 39, 39] = mask[1, 0, 0] = mask[1, 1, 17] = True
    return from_token_mask(mask, 16).validate()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"row_ptr": torch.zeros(2, 4)}, TypeError, "row_ptr must be int32"),
        ({"columns": torch.zeros(7, dtype=torch.int64)}, TypeError, "columns must be int32"),
        ({"partial": torch.zeros(7)}, TypeError, "partial must be int32"),
        ({"token_masks": torch.zeros(1, 16, 16)}, TypeError, "token_masks must be bool"),
        ({"row_ptr": torch.zeros(4, dtype=torch.int32)}, ValueError, "row_ptr must have shape"),
        ({"query_length": 50}, ValueError, r"\(heads, 5\) for 50 queries in blocks of 16"),
        ({"columns": torch.zeros(1, 7, dtype=torch.int32)}, ValueError, "one-dimensional"),
        ({"partial": torch.zeros(3, dtype=torch.int32)}, ValueError, "partial must have the shape of"),
        ({"token_masks": torch.zeros(16, 16, dtype=torch.bool)}, ValueError, r"\(masks, 16, 16\)"),
        ({"partial": torch.zeros(7, dtype=torch.int32, device="meta")}, ValueError, "partial is on meta"),
        ({"block_size": 24}, ValueError, "multiple of 16 from 16 to 128, got 24"),
        ({"key_length": 0}, ValueError, "key_length must be a whole number of at least 1, got 0"),
        ({"query_length": 40.0}, ValueError, "query_length must be a whole number"),
    ],
)
def test_arguments_that_do_not_fit(changes: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        replaced(sample(), **changes)


def edited(name: str, place: tuple[int, ...], value: int) -> Callable[[], BlockPattern]:
    def make() -> BlockPattern:
        tensor = getattr(sample(), name).clone()
        tensor[place] = value
        return replaced(sample(), **{name: tensor})

    return make


def with_masks(masks: Tensor, partial: Tensor) -> BlockPattern:
    return replaced(sample(), token_masks=masks, partial=partial.int())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (edited("row_ptr", (0, 0), 1), "row_ptr must begin with 0, got 1"),
        (edited("row_ptr", (1, 0), 3), "row_ptr of head 1 must begin where head 0 ends, at 4, got 3"),
        (edited("row_ptr", (0, 1), 5), "row_ptr decreases after block row 1 of head 0"),
        (edited("row_ptr", (1, 3), 9), "row_ptr must end with the 7 blocks, got 9"),
        (edited("columns", (3,), 3), "head 0, block row 1, block 3 has column 3, expected 0 to 2"),
        (edited("columns", (6,), -1), "head 1, block row 2, block 6 has column -1"),
        (edited("columns", (1,), 0), "head 0, block row 0, block 1 has column 0 after 0"),
        (edited("partial", (0,), 9), "head 0, block row 0, block 0 has mask 9, expected -1"),
        (edited("partial", (0,), -2), "block 0 has mask -2"),
        (edited("token_masks", (3, 8, 0), 1), "block 6: token mask 3 is True at tokens beyond the lengths"),
        (lambda: with_masks(sample().token_masks & False, sample().partial), "has no pair"),
        (edited("token_masks", (0,), 1), "head 0, block row 1, block 3: token mask 0 has every pair"),
        (edited("partial", (6,), -1), "token mask 3 belongs to no block"),
        (
            lambda: with_masks(sample().token_masks[[0, 0, 2, 3]], sample().partial),
            "two token masks are equal",
        ),
    ],
)
def test_validation_names_the_fault(make: Callable[[], BlockPattern], message: str) -> None:
    broken = make()
    with pytest.raises(ValueError, match=message):
        broken.validate()


def test_masks_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match=r"mask must be bool, got torch\.float32"):
        from_token_mask(torch.ones(3, 3))
    with pytest.raises(TypeError, match="mask must be bool"):
        from_block_mask(torch.ones(3, 3, dtype=torch.int32))
    for shape in ((3,), (1, 2, 3, 3), (0, 3), (2, 0, 4)):
        with pytest.raises(ValueError, match="mask must have shape"):
            from_token_mask(torch.ones(shape, dtype=torch.bool))
    with pytest.raises(ValueError, match="need a mask of 2 x 3 blocks, got 2 x 2"):
        from_block_mask(torch.ones(2, 2, dtype=torch.bool), 16, query_length=32, key_length=33)
    with pytest.raises(ValueError, match="multiple of 16"):
        from_token_mask(torch.ones(2, 2, dtype=torch.bool), 65)
