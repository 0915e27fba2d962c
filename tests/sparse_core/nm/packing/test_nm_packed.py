"""Packed n:m weights against plain loops, and what they refuse."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.positions import index_row_bytes, pack_index, slot_bits, unpack_positions
from sparse_core.nm.pattern import NMPattern


@st.composite
def masked_weights(draw: st.DrawFn) -> tuple[Tensor, Tensor, NMPattern]:
    """A weight of exact integers, a mask with exactly n a group, and the pattern."""
    m = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16, 256]))
    n = draw(st.integers(1, min(m, 6)))
    out, groups = draw(st.integers(0, 5)), draw(st.integers(0, 4))
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    order = torch.rand(out, groups, m, generator=generator).argsort(dim=2)
    mask = (order < n).reshape(out, groups * m)
    weight = torch.randint(-9, 10, (out, groups * m), generator=generator).to(dtype)
    return weight, mask, NMPattern(n, m)


@settings(max_examples=60)
@given(masked_weights())
def test_packing_and_unpacking_keeps_exactly_the_masked_weight(
    case: tuple[Tensor, Tensor, NMPattern],
) -> None:
    weight, mask, pattern = case
    packed = PackedNM.from_dense(weight, pattern, mask)
    kept = weight.masked_fill(~mask, 0)
    assert packed.to_dense().dtype == weight.dtype
    assert torch.equal(packed.to_dense(), kept)
    # The same without a mask: zeros of the kept ones may take other free slots.
    assert torch.equal(PackedNM.from_dense(kept, pattern).to_dense(), kept)
    assert torch.equal(packed.values, weight[mask].reshape(packed.values.shape))
    out, columns = weight.shape
    groups = columns // pattern.m
    assert packed.nbytes == packed.values.nbytes + out * index_row_bytes(groups, pattern, "slots")
    if weight.dtype != torch.int8:
        assert torch.equal(packed.to_matrix().to_dense(), kept)


@settings(max_examples=60)
@given(masked_weights())
def test_positions_are_packed_bit_by_bit(case: tuple[Tensor, Tensor, NMPattern]) -> None:
    weight, mask, pattern = case
    packed = PackedNM.from_dense(weight, pattern, mask)
    out, columns = weight.shape
    groups = columns // pattern.m
    bits = slot_bits(pattern)
    expected = []
    for row in range(out):
        stream = 0
        slots = [column % pattern.m for column in range(columns) if mask[row, column]]
        for place, slot in enumerate(slots):
            stream |= slot << (place * bits)
        expected.append(list(stream.to_bytes(index_row_bytes(groups, pattern, "slots"), "little")))
    assert packed.metadata.tolist() == expected
    index = packed.index()
    assert index.shape == (out, groups, pattern.n)
    assert torch.equal(pack_index(index, pattern), packed.metadata)
    assert torch.equal(unpack_positions(packed.metadata, groups, pattern, "slots"), index)


def test_metadata_of_two_of_four_are_the_nibbles_of_the_instruction() -> None:
    weight = torch.tensor([[1.0, 2, 0, 0, 0, 0, 3, 4, 0, 5, 0, 6]])
    packed = PackedNM.from_dense(weight)
    assert packed.metadata.tolist() == [[0b1110_0100, 0b1101]]
    assert packed.values.tolist() == [[1, 2, 3, 4, 5, 6]]


def test_gradients_reach_the_values() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 8, generator=generator, dtype=torch.float64)
    mask = torch.tensor([True, False, True, False]).repeat(3, 2)
    packed = PackedNM.from_dense(weight, NMPattern(2, 4), mask)
    values = packed.values.clone().requires_grad_()
    factor = torch.randn(3, 8, generator=generator, dtype=torch.float64)
    (packed.with_values(values).to_dense() * factor).sum().backward()
    assert torch.equal(values.grad, factor[mask].reshape(3, 4))


def test_other_types_and_values_share_the_positions() -> None:
    weight = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).masked_fill(
        torch.tensor([True, False, False, True]).repeat(4, 2), 0
    )
    packed = PackedNM.from_dense(weight)
    packed.plans["kept"] = 1
    half = packed.to(torch.float16)
    assert half.dtype == torch.float16
    assert half.metadata is packed.metadata
    assert half.plans == {}
    assert torch.equal(half.to_dense(), weight.half())
    assert packed.to("cpu").device == torch.device("cpu")
    doubled = packed.with_values(packed.values * 2)
    assert torch.equal(doubled.to_dense(), weight * 2)


def test_bad_input_is_named() -> None:
    full = torch.ones(2, 8)
    with pytest.raises(ValueError, match=r"row 0, group 0 \(columns 0\.\.3\) has 4 nonzeros"):
        PackedNM.from_dense(full)
    with pytest.raises(ValueError, match="row 1, group 1"):
        PackedNM.from_dense(torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0]]))
    with pytest.raises(ValueError, match="10, which is not divisible by m=4: pad it to 12"):
        PackedNM.from_dense(torch.ones(2, 10))
    with pytest.raises(ValueError, match="two-dimensional"):
        PackedNM.from_dense(torch.ones(8))
    good = PackedNM.from_dense(torch.zeros(2, 8))
    with pytest.raises(ValueError, match=r"values must have shape \(2, 4\)"):
        good.with_values(torch.zeros(2, 5))
    with pytest.raises(TypeError, match=r"floating point or int8, got torch\.int32"):
        good.with_values(torch.zeros(2, 4, dtype=torch.int32))
    with pytest.raises(TypeError, match="metadata must be uint8"):
        PackedNM(good.values, good.metadata.int(), good.shape, good.pattern)
    with pytest.raises(ValueError, match=r"metadata must have shape \(2, 1\), got \(2, 2\)"):
        PackedNM(good.values, torch.zeros(2, 2, dtype=torch.uint8), good.shape, good.pattern)


@pytest.mark.parametrize(
    ("pattern", "bits"),
    [
        (NMPattern(1, 1), 1),
        (NMPattern(1, 2), 1),
        (NMPattern(2, 4), 2),
        (NMPattern(2, 5), 3),
        (NMPattern(1, 256), 8),
    ],
)
def test_bits_of_a_slot(pattern: NMPattern, bits: int) -> None:
    assert slot_bits(pattern) == bits


def test_what_torch_cannot_hold_is_named() -> None:
    packed = PackedNM.from_dense(torch.eye(8, 16))
    with pytest.raises(ValueError, match="live on a GPU; this weight is on cpu"):
        packed.to_torch()
    with pytest.raises(ValueError, match="are 2:4; this weight is 1:4"):
        PackedNM.from_dense(torch.eye(8, 16), NMPattern(1, 4)).to_torch()
    with pytest.raises(TypeError, match="got Tensor: a dense weight is packed by from_dense"):
        PackedNM.from_torch(torch.eye(8))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda packed: pickle.loads(pickle.dumps(packed))])
def test_copies_have_no_plans_of_the_original(way: object) -> None:
    packed = PackedNM.from_dense(torch.tensor([[1.0, 0, 2, 0, 0, 3, 0, 4]]))
    packed.plans["cuda"] = object()
    copied = way(packed)  # type: ignore[operator]
    assert copied.plans == {}
    assert list(packed.plans) == ["cuda"]
    assert copied.pattern == packed.pattern
    assert torch.equal(copied.to_dense(), packed.to_dense())


def test_masks_that_do_not_fit() -> None:
    weight = torch.ones(2, 8)
    with pytest.raises(TypeError, match=r"mask must be bool, got torch\.float32"):
        PackedNM.from_dense(weight, mask=weight)
    with pytest.raises(ValueError, match=r"weight's shape \(2, 8\), got \(1, 8\)"):
        PackedNM.from_dense(weight, mask=torch.zeros(1, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="row 0, group 0"):
        PackedNM.from_dense(weight, mask=torch.ones(2, 8, dtype=torch.bool))
