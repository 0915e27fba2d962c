"""The kernel for few rows, lane by lane on a CPU."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from sparse_core.nm.linear import decode_cuda
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.pattern import NMPattern


def packed_weight(out: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> PackedNM:
    generator = torch.Generator().manual_seed(out + columns)
    weight = torch.randint(-9, 10, (out, columns), generator=generator)
    order = torch.rand(out, columns // 4, 4, generator=generator).argsort(dim=2)
    return PackedNM.from_dense(weight.to(dtype), mask=(order < 2).reshape(out, columns))


def sparse_instruction(
    a: dict[int, list[list[int]]], words: dict[int, int], b: dict[int, list[list[int]]]
) -> Tensor:
    """``mma.sp.m16n8k32`` as its documentation describes it, on integers.

    Args:
        a: four registers of two values for each lane (g, t): row g or g + 8 and group t or t + 4.
        words: metadata by lane, only of the pair that the selector names: groups 0 to 3 in the first of them,
            4 to 7 in the second; row g in the low half, row g + 8 in the high half.
        b: four registers of two values for each lane: rows 8 i + 2 t and 8 i + 2 t + 1 of column g.

    Returns:
        (16, 8).
    """
    left, right = torch.zeros(16, 32, dtype=torch.long), torch.zeros(32, 8, dtype=torch.long)
    first = min(lane % 4 for lane in words)
    for lane, registers in a.items():
        g, t = divmod(lane, 4)
        for number, pair in enumerate(registers):
            row, group = g + 8 * (number % 2), t + 4 * (number // 2)
            word = words[4 * g + first + group // 4]
            nibble = (word >> (4 * (group % 4) + 16 * (number % 2))) & 15
            slots = (nibble & 3, nibble >> 2)
            assert slots[0] < slots[1]  # what "ordered metadata" promises
            for slot, value in zip(slots, pair, strict=True):
                left[row, 4 * group + slot] = value
    for lane, registers in b.items():
        g, t = divmod(lane, 4)
        for number, pair in enumerate(registers):
            for half, value in enumerate(pair):
                right[8 * number + 2 * t + half, g] = value
    return left @ right


def input_registers(x: Tensor, rows: int, start: int, s: int) -> dict[int, list[list[int]]]:
    """What ``fetch_input`` and ``halves`` of decode.cu give each lane for instruction ``s``."""
    own = {}
    for lane in range(32):
        g, t = divmod(lane, 4)
        place = start + 32 * (t & 1) + 16 * (t >> 1) + 8 * s
        values = x[g, place : place + 8].tolist() if g < rows else [0] * 8
        own[lane] = [values[2 * word : 2 * word + 2] for word in range(4)]
    registers = {}
    for lane in range(32):
        odd = lane & 1
        mine, sent = own[lane], own[lane ^ 1]
        # The partner sends what its own parity selects.
        first, second = (sent[1], sent[3]) if odd else (sent[0], sent[2])
        registers[lane] = [first, mine[1], second, mine[3]] if odd else [mine[0], first, mine[2], second]
    return registers


def simulated(packed: PackedNM, x: Tensor) -> Tensor:
    """(rows, out), as the lanes of decode.cu compute it for at most 8 rows."""
    out, columns = packed.shape
    metadata = decode_cuda.reorder_metadata(packed).long() & 0xFFFFFFFF
    values = packed.values.long()
    y = torch.zeros(len(x), out, dtype=torch.long)
    for tile, chunk, half, s in itertools.product(
        range(out // 16), range(columns // 128), range(2), range(2)
    ):
        a, words = {}, {}
        for lane in range(32):
            g, t = divmod(lane, 4)
            start = 64 * chunk + 32 * half + 8 * t + 4 * s
            low, high = values[16 * tile + g], values[16 * tile + g + 8]
            a[lane] = [
                part[start + 2 * pair : start + 2 * pair + 2].tolist()
                for pair in (0, 1)
                for part in (low, high)
            ]
            if t // 2 == s:  # the selector of instruction s
                words[lane] = int(metadata[tile, chunk, lane, half])
        b = input_registers(x.long(), len(x), 128 * chunk + 64 * half, s)
        y[:, 16 * tile : 16 * tile + 16] += sparse_instruction(a, words, b)[:, : len(x)].T
    return y


@pytest.mark.parametrize(("out", "columns"), [(16, 128), (48, 128), (16, 384), (32, 256)])
@pytest.mark.parametrize("rows", [1, 5, 8])
def test_lanes_multiply_the_packed_weight(out: int, columns: int, rows: int) -> None:
    packed = packed_weight(out, columns)
    x = torch.randint(-9, 10, (rows, columns), generator=torch.Generator().manual_seed(rows))
    assert torch.equal(simulated(packed, x), x @ packed.to_dense().long().T)


def test_shape_and_order_of_the_metadata() -> None:
    packed = packed_weight(32, 256)
    metadata = decode_cuda.reorder_metadata(packed)
    assert metadata.shape == (2, 2, 32, 2)
    assert metadata.dtype == torch.int32
    assert metadata.is_contiguous()
    index = packed.index().long()
    for tile, chunk, lane, half in itertools.product(range(2), range(2), range(32), range(2)):
        g, t = divmod(lane, 4)
        word = int(metadata[tile, chunk, lane, half]) & 0xFFFFFFFF
        for i, upper in itertools.product(range(4), range(2)):
            group = 32 * chunk + 16 * half + 4 * i + 2 * (t // 2) + t % 2
            slots = index[16 * tile + g + 8 * upper, group]
            assert (word >> (4 * (i + 4 * upper))) & 15 == slots[0] | slots[1] << 2


@pytest.mark.parametrize("out", range(16, 16 * 13, 16))
def test_every_product_has_a_variant(out: int) -> None:
    for rows in range(1, decode_cuda.MOST_ROWS + 1):
        fitting = [
            variant for variant in decode_cuda.VARIANTS if decode_cuda.variant_fits(variant, out, rows)
        ]
        # The one that is used unmeasured takes everything.
        assert decode_cuda.VARIANTS[0] in fitting
        for variant in fitting:
            assert out % (16 * variant.row_tiles) == 0
            tiles = -(-rows // 8)
            # float partial[WARPS][ROW_TILES * 16][8 * COLUMN_TILES + 1] within the 48 KB that need no opt-in.
            assert variant.warps * variant.row_tiles * 16 * (8 * tiles + 1) * 4 <= 48 * 1024
            assert variant.warps <= 32


def test_what_the_kernel_takes() -> None:
    assert decode_cuda.supports(packed_weight(16, 128))
    assert decode_cuda.supports(packed_weight(16, 128, torch.float16))
    assert not decode_cuda.supports(packed_weight(16, 128, torch.float32))
    assert not decode_cuda.supports(packed_weight(16, 128, torch.int8))
    assert not decode_cuda.supports(packed_weight(24, 128))
    assert not decode_cuda.supports(packed_weight(16, 192))
    for shape in ((0, 128), (16, 0)):
        assert not decode_cuda.supports(PackedNM.from_dense(torch.zeros(shape, dtype=torch.bfloat16)))
    one_of_four = PackedNM.from_dense(torch.zeros(16, 128, dtype=torch.bfloat16), NMPattern(1, 4))
    assert not decode_cuda.supports(one_of_four)


def test_values_that_cannot_be_read_in_words() -> None:
    packed = packed_weight(16, 128)
    strided = packed.values.T.contiguous().T
    assert not decode_cuda.supports(packed.with_values(strided))
    memory = torch.zeros(packed.values.numel() + 8, dtype=torch.bfloat16)
    start = 1 + (-memory.data_ptr() % 16) // 2
    shifted = memory[start : start + packed.values.numel()].view(packed.values.shape)
    assert not decode_cuda.supports(packed.with_values(shifted))
