"""Pruning and packing in plain torch, against brute force over every mask."""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.nm.masks import nm_mask
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.two_four import Compressed24, prune_and_pack, prune_and_pack_both
from sparse_core.nm.packing.two_four.layout import metadata_from_nibbles
from sparse_core.nm.packing.two_four.reference import compress, tile_patterns, transposable_mask

DTYPES = [torch.float16, torch.bfloat16]
PAIRS = list(combinations(range(4), 2))


@cache
def tile_masks() -> Tensor:
    """(90, 4, 4) bool, every tile with two in each row and column, found among all 65,536."""
    bits = torch.tensor(list(product([False, True], repeat=16))).reshape(-1, 4, 4)
    return bits[(bits.sum(1) == 2).all(1) & (bits.sum(2) == 2).all(1)]


def random_weight(
    rows: int, columns: int, dtype: torch.dtype, seed: int = 0, *, ties: bool = False
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if ties:
        return torch.randint(-2, 3, (rows, columns), generator=generator).to(dtype)
    return torch.randn(rows, columns, generator=generator).to(dtype)


def unpack(compressed: Compressed24) -> Tensor:
    """(rows, columns) dense, from values and metadata alone."""
    rows, columns = compressed.shape
    groups = columns // 4
    assert len(compressed.buffer) == rows * columns // 2 * 2 + rows * columns // 8
    # Where a nibble comes from, told by nibbles that hold digits of their own number.
    number = torch.arange(rows * groups).reshape(rows, groups)
    source = torch.zeros(rows * groups, dtype=torch.long)
    for shift in range(0, 16, 4):
        digit = metadata_from_nibbles((number >> shift & 15).to(torch.uint8), 2)
        source |= torch.stack([digit & 15, digit >> 4], 1).reshape(-1).long() << shift
    metadata = torch.stack([compressed.metadata & 15, compressed.metadata >> 4], 1).reshape(-1).long()
    nibbles = torch.empty(rows * groups, dtype=torch.long)
    nibbles[source] = metadata
    slots = torch.stack([nibbles & 3, nibbles >> 2], 1).reshape(rows, groups, 2)
    assert bool((slots[..., 0] < slots[..., 1]).all())
    dense = torch.zeros(rows, groups, 4, dtype=compressed.values.dtype)
    return dense.scatter(2, slots, compressed.values.reshape(rows, groups, 2)).reshape(rows, columns)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("shape", [(64, 32), (64, 96), (128, 64)])
def test_each_group_keeps_its_best_pair(dtype: torch.dtype, ties: bool, shape: tuple[int, int]) -> None:
    weight = random_weight(*shape, dtype, ties=ties)
    compressed = prune_and_pack(weight)
    groups = weight.double().abs().reshape(shape[0], -1, 4)
    sums = torch.stack([groups[..., list(pair)].sum(-1) for pair in PAIRS], -1)
    # All six masks: of equal sums the first one, which has the lower positions.
    best = torch.tensor(PAIRS)[sums.argmax(-1)]
    mask = torch.zeros(groups.shape, dtype=torch.bool).scatter(2, best, True).reshape(shape)
    assert torch.equal(unpack(compressed), weight.masked_fill(~mask, 0))
    assert torch.equal(mask, nm_mask(weight, 2, 4))
    # The values are those of the packed weight: both forms can share memory.
    assert torch.equal(compressed.values, PackedNM.from_dense(weight, mask=mask).values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_of_a_group(dtype: torch.dtype) -> None:
    inf, nan = math.inf, math.nan
    rows = {
        (0.0, 0.0, 0.0, 0.0): (0, 1),
        (-0.0, 1e-8, -0.0, 0.0): (0, 1),
        (1.0, -1.0, 1.0, -1.0): (0, 1),
        (0.0, 0.0, 0.0, 1.0): (0, 3),
        (-inf, 5.0, inf, 6.0): (0, 2),
        (inf, inf, inf, inf): (0, 1),
        (1.0, inf, nan, 2.0): (1, 2),  # NaN counts as larger than infinity, so that it shows
        (1.0, 2.0, 3.0, -nan): (2, 3),
    }
    weight = torch.zeros(64, 32, dtype=dtype)
    for row, group in enumerate(rows):
        weight[row, :4] = torch.tensor(group, dtype=dtype)
    values = prune_and_pack(weight).values
    for row, (group, kept) in enumerate(rows.items()):
        expected = torch.tensor([group[position] for position in kept], dtype=dtype)
        assert torch.equal(values[row, :2].nan_to_num(77), expected.nan_to_num(77)), group


def test_there_are_ninety_patterns() -> None:
    patterns = tile_patterns()
    assert len(patterns) == len(set(patterns)) == 90
    assert patterns == sorted(patterns)
    masks = torch.zeros(90, 4, 4, dtype=torch.bool)
    for number, pairs in enumerate(patterns):
        for row, pair in enumerate(pairs):
            masks[number, row, list(PAIRS[pair])] = True
    wanted = {tuple(mask.flatten().tolist()) for mask in tile_masks()}
    assert {tuple(mask.flatten().tolist()) for mask in masks} == wanted


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["plain", "integers", "few", "wide"]),
    dtype=st.sampled_from([*DTYPES, torch.float32]),
    size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 2**31),
)
def test_each_tile_keeps_the_most_magnitude(
    kind: str, dtype: torch.dtype, size: tuple[int, int], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (4 * size[0], 4 * size[1])
    weight = torch.randn(shape, generator=generator)
    if kind == "wide":
        weight = weight * torch.exp2(torch.randint(-8, 9, shape, generator=generator))
    elif kind != "plain":
        weight = torch.randint(-99, 100, shape, generator=generator) if kind == "integers" else weight.sign()
        weight = weight * (torch.rand(shape, generator=generator) < 0.6)
    weight = weight.to(dtype)
    mask = transposable_mask(weight)
    tiles = weight.abs().double().reshape(size[0], 4, size[1], 4).transpose(1, 2)
    kept = mask.reshape(size[0], 4, size[1], 4).transpose(1, 2)
    assert bool((kept.sum(2) == 2).all())
    assert bool((kept.sum(3) == 2).all())
    masks = tile_masks().double()
    best = torch.einsum("ijrc,prc->ijp", tiles, masks).amax(2)
    reached = (tiles * kept).sum((2, 3))
    # Sums are rounded to float32 where magnitudes are far apart.
    assert bool((reached >= best * (1 - 4e-7)).all())
    if kind in ("integers", "few"):
        assert torch.equal(reached, best)


def test_of_equal_patterns_the_first_is_kept() -> None:
    zero = transposable_mask(torch.zeros(8, 8))
    first = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]).bool()
    assert torch.equal(zero, first.repeat(2, 2))
    assert torch.equal(transposable_mask(torch.full((4, 4), -3.0)), first)
    assert torch.equal(transposable_mask(torch.full((4, 4), math.inf)), first)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), dtype=st.sampled_from(DTYPES))
def test_ties_fall_to_the_first_pattern_of_the_list(seed: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    tile = torch.randint(0, 3, (4, 4), generator=generator).to(dtype)
    totals = [
        sum(float(tile[row, column]) for row, pair in enumerate(pattern) for column in PAIRS[pair])
        for pattern in tile_patterns()
    ]
    pattern = tile_patterns()[totals.index(max(totals))]
    expected = torch.zeros(4, 4, dtype=torch.bool)
    for row, pair in enumerate(pattern):
        expected[row, list(PAIRS[pair])] = True
    assert torch.equal(transposable_mask(tile), expected)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_a_tile_with_special_values_is_still_two_of_four(special: float) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(32, 32, generator=generator)
    finite = transposable_mask(weight)
    where = torch.rand(16, 16, generator=generator) < 0.3
    weight[:16, :16] = weight[:16, :16].masked_fill(where, special)
    mask = transposable_mask(weight)
    tiles = mask.reshape(8, 4, 8, 4)
    assert bool((tiles.sum(1) == 2).all())
    assert bool((tiles.sum(3) == 2).all())
    # Other tiles do not notice.
    assert torch.equal(mask[16:], finite[16:])
    assert torch.equal(mask[:, 16:], finite[:, 16:])


def test_one_infinity_is_kept() -> None:
    weight = torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) + 1
    weight[::4, ::4] = math.inf
    assert bool(transposable_mask(weight)[::4, ::4].all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("shape", [(64, 64), (64, 192), (128, 64)])
def test_both_directions_hold_the_same_weight(dtype: torch.dtype, ties: bool, shape: tuple[int, int]) -> None:
    weight = random_weight(*shape, dtype, ties=ties)
    packed = prune_and_pack_both(weight, dense=True)
    pruned = weight.masked_fill(~transposable_mask(weight), 0)
    assert packed.dense is not None
    assert torch.equal(packed.dense, pruned)
    assert packed.weight.shape == shape
    assert packed.transposed.shape == shape[::-1]
    assert torch.equal(unpack(packed.weight), pruned)
    assert torch.equal(unpack(packed.transposed), pruned.T)
    without = prune_and_pack_both(weight)
    assert without.dense is None
    assert torch.equal(without.weight.buffer, packed.weight.buffer)


def test_the_transposed_buffer_is_that_of_the_transposed_weight() -> None:
    weight = random_weight(128, 64, torch.bfloat16)
    packed = prune_and_pack_both(weight, dense=True)
    mask = transposable_mask(weight)
    positions = mask.T.reshape(64, 32, 4).nonzero()[:, 2].reshape(64, 32, 2)
    again = compress(weight.T.contiguous(), positions)
    assert torch.equal(packed.transposed.buffer, again.buffer)


def test_any_strides_and_no_gradient() -> None:
    weight = random_weight(64, 128, torch.float16)
    strided = weight.T.contiguous().T.requires_grad_()
    assert torch.equal(prune_and_pack(strided).buffer, prune_and_pack(weight).buffer)
    both = prune_and_pack_both(strided, dense=True)
    assert torch.equal(both.transposed.buffer, prune_and_pack_both(weight).transposed.buffer)
    assert both.dense is not None
    assert not both.dense.requires_grad
    assert both.dense.is_contiguous()
    assert not both.weight.values.requires_grad


def test_views_share_the_buffer() -> None:
    compressed = prune_and_pack(random_weight(64, 64, torch.bfloat16))
    compressed.buffer.zero_()
    assert not compressed.values.any()
    assert not compressed.metadata.any()


@pytest.mark.usefixtures("poisoned_memory")
def test_every_byte_is_written() -> None:
    zero = torch.zeros(64, 64, dtype=torch.bfloat16)
    packed = prune_and_pack_both(zero, dense=True)
    for part in (packed.weight, packed.transposed, prune_and_pack(zero)):
        assert not part.values.any()
        # Positions 0, 1 or 2, 3 in both halves of a byte.
        assert set(part.metadata.tolist()) <= {0x44, 0xEE, 0x4E, 0xE4}


@pytest.mark.parametrize("pack", [prune_and_pack, prune_and_pack_both])
def test_what_is_refused(pack: type) -> None:
    good = random_weight(64, 64, torch.bfloat16)
    for dtype in (torch.float32, torch.int8, torch.float64):
        with pytest.raises(TypeError, match=f"float16 or bfloat16, got {dtype}"):
            pack(torch.zeros(64, 64, dtype=dtype))
    with pytest.raises(ValueError, match=r"two-dimensional, got shape \(1, 64, 64\)"):
        pack(good[None])
    with pytest.raises(ValueError, match="divisible by 64"):
        pack(good[:32])
    with pytest.raises(ValueError, match="got 64x16"):
        pack(good[:, :16])
    with pytest.raises(ValueError, match="impl must be one of"):
        pack(good, impl="cuda")
    with pytest.raises(ImplementationError, match="prune_and_pack has no vendor implementation"):
        pack(good, impl="vendor")


def test_rows_are_packed_where_tiles_are_not_whole() -> None:
    narrow = random_weight(64, 32, torch.bfloat16)
    assert prune_and_pack(narrow).shape == (64, 32)
    with pytest.raises(ValueError, match="rows and columns must be divisible by 64, got 64x32"):
        prune_and_pack_both(narrow)


@pytest.mark.parametrize("pack", [prune_and_pack, prune_and_pack_both])
def test_the_kernel_by_name_needs_a_gpu(pack: type) -> None:
    pytest.importorskip("triton")
    with pytest.raises(ImplementationError, match="impl='triton' needs CUDA tensors, got cpu"):
        pack(random_weight(64, 64, torch.bfloat16), impl="triton")
