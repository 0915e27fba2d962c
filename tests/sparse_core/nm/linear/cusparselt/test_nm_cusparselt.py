"""The order of cuSPARSELt's metadata bit by bit, and what happens without a GPU."""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace

import pytest
import torch

from sparse_core.errors import ImplementationError
from sparse_core.nm.linear import vendor
from sparse_core.nm.linear.common import LinearEpilogue
from sparse_core.nm.linear.cusparselt import library
from sparse_core.nm.linear.cusparselt.plan import Product
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.two_four.layout import fits, metadata_from_nibbles, nibbles_from_index
from sparse_core.nm.pattern import NMPattern


def place_of(row: int, group: int, rows: int, groups: int, itemsize: int) -> int:
    """Where the nibble of a group is stored, from the description of the order."""
    width = 16 // itemsize  # groups of a tile of 64 bytes
    tile = (row // 64) * (groups // width) + group // width
    r, g = row % 64, group % width
    r54, r3, r210 = r >> 4, r >> 3 & 1, r & 7
    if itemsize == 2:
        digits = [(r54, 4), (r210, 8), (g >> 1 & 1, 2), (g & 1, 2), (g >> 2, 2), (r3, 2)]
    else:
        digits = [(r54, 4), (r210, 8), (g >> 1 & 3, 4), (g >> 3, 2), (r3, 2), (g & 1, 2)]
    place = tile
    for digit, base in digits:
        place = place * base + digit
    return place


def stored(nibbles: torch.Tensor, itemsize: int) -> torch.Tensor:
    """Nibbles in memory order, the low half of a byte first."""
    metadata = metadata_from_nibbles(nibbles, itemsize)
    assert metadata.dtype == torch.uint8
    return torch.stack([metadata & 15, metadata >> 4], dim=1).reshape(-1)


@pytest.mark.parametrize("itemsize", [1, 2])
@pytest.mark.parametrize(("row_tiles", "column_tiles"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_each_nibble_has_its_own_place(itemsize: int, row_tiles: int, column_tiles: int) -> None:
    rows, groups = 64 * row_tiles, 16 // itemsize * column_tiles
    # Three digits of the number of the group, one after the other, tell every place.
    number = torch.arange(rows * groups).reshape(rows, groups)
    digits = [stored((number >> shift & 15).to(torch.uint8), itemsize).long() for shift in (0, 4, 8)]
    found = digits[0] | digits[1] << 4 | digits[2] << 8
    assert torch.equal(found.sort().values, torch.arange(rows * groups))
    expected = torch.empty(rows * groups, dtype=torch.long)
    for row, group in itertools.product(range(rows), range(groups)):
        expected[place_of(row, group, rows, groups, itemsize)] = row * groups + group
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("itemsize", "row", "group", "byte", "high"),
    [
        (2, 0, 0, 0, False),
        (2, 8, 0, 0, True),  # bit 3 of the row comes first,
        (2, 0, 4, 1, False),  # then bit 2 of the group,
        (2, 0, 1, 2, False),  # bit 0,
        (2, 0, 2, 4, False),  # bit 1,
        (2, 1, 0, 8, False),  # the low bits of the row
        (2, 16, 0, 64, False),  # and the high ones;
        (2, 0, 8, 256, False),  # then the next tile.
        (1, 0, 1, 0, True),
        (1, 8, 0, 1, False),
        (1, 0, 8, 2, False),
        (1, 0, 2, 4, False),
        (1, 1, 0, 16, False),
        (1, 16, 0, 128, False),
        (1, 0, 16, 512, False),
    ],
)
def test_places_by_hand(itemsize: int, row: int, group: int, byte: int, high: bool) -> None:
    nibbles = torch.zeros(64, 32, dtype=torch.uint8)
    nibbles[row, group] = 0b1101
    metadata = metadata_from_nibbles(nibbles, itemsize)
    assert metadata.nonzero().tolist() == [[byte]]
    assert int(metadata[byte]) == (0b1101_0000 if high else 0b1101)


def test_nibbles() -> None:
    pairs = list(itertools.combinations(range(4), 2))
    index = torch.tensor(pairs, dtype=torch.uint8)[None]
    nibbles = nibbles_from_index(index)
    assert nibbles.dtype == torch.uint8
    assert nibbles.tolist() == [[i | j << 2 for i, j in pairs]]


@pytest.mark.parametrize(
    ("rows", "columns", "itemsize"), [(63, 64, 2), (64, 48, 2), (32, 32, 2), (64, 32, 1), (96, 64, 1)]
)
def test_sizes_that_are_not_whole_tiles(rows: int, columns: int, itemsize: int) -> None:
    assert not fits(rows, columns, itemsize)
    nibbles = torch.zeros(rows, columns // 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match=f"{rows}x{columns} matrix of {itemsize}-byte values is not made of"):
        metadata_from_nibbles(nibbles, itemsize)


@pytest.mark.parametrize(("rows", "columns", "itemsize"), [(64, 32, 2), (128, 96, 2), (64, 64, 1), (0, 0, 2)])
def test_whole_tiles(rows: int, columns: int, itemsize: int) -> None:
    assert fits(rows, columns, itemsize)
    assert len(metadata_from_nibbles(torch.zeros(rows, columns // 4, dtype=torch.uint8), itemsize)) == (
        rows * columns // 8
    )


def test_no_library_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    library.load.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ImplementationError, match="needs a CUDA device, and PyTorch sees none"):
        library.load()
    library.load.cache_clear()


def test_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    library.load.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(library, "_candidates", lambda: ["libcusparseLt.so.of.nowhere"])
    with pytest.raises(ImplementationError, match=r"was not found: .* nvidia-cusparselt"):
        library.load()
    library.load.cache_clear()


def test_memory_for_the_library_is_aligned() -> None:
    for _ in range(20):
        structure = library.opaque_memory()
        assert ctypes.addressof(structure) % 16 == 0
        assert len(structure) >= 11 * 1024
        assert not any(structure.raw)


def test_only_what_was_checked_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    for (version, capability, dtype), numbers in library.CHECKED.items():
        assert version >= library.OLDEST
        assert capability >= (8, 0)
        assert dtype in library.DATA_TYPES
        assert numbers[0] == 0
        assert list(numbers) == sorted(set(numbers))
    known = SimpleNamespace(version=(0, 8, 0))
    monkeypatch.setattr(library, "load", lambda: known)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, index))
    monkeypatch.setattr(library, "CHECKED", {((0, 8, 0), (9, 0), torch.int8): (0, 2, 5, 36)})
    assert library.checked_algorithms(0, torch.int8, 99) == [0, 2, 5, 36]
    assert library.checked_algorithms(0, torch.int8, 6) == [0, 2, 5]
    # Another GPU, type or version: the library's first choice.
    assert library.checked_algorithms(1, torch.int8, 99) == [0]
    assert library.checked_algorithms(0, torch.float16, 99) == [0]
    known.version = (0, 8, 1)
    assert library.checked_algorithms(0, torch.int8, 99) == [0]


def zeros(out: int, columns: int, dtype: torch.dtype, pattern: NMPattern) -> PackedNM:
    return PackedNM.from_dense(torch.zeros(out, columns, dtype=dtype), pattern)


def test_which_weights_the_library_takes() -> None:
    two_four = NMPattern(2, 4)
    for dtype in (torch.float16, torch.bfloat16):
        assert vendor.supports(zeros(16, 48, dtype, two_four), dtype)
        assert not vendor.supports(zeros(16, 48, dtype, two_four), torch.float32)
        assert not vendor.supports(zeros(24, 48, dtype, two_four), dtype)
        assert not vendor.supports(zeros(16, 40, dtype, two_four), dtype)
        assert not vendor.supports(zeros(16, 48, dtype, NMPattern(1, 4)), dtype)
        assert not vendor.supports(zeros(0, 48, dtype, two_four), dtype)
        assert not vendor.supports(zeros(16, 0, dtype, two_four), dtype)
    int8 = zeros(32, 64, torch.int8, two_four)
    assert [
        dtype for dtype in (torch.int32, torch.float16, torch.bfloat16) if vendor.supports(int8, dtype)
    ] == [
        torch.int32,
        torch.float16,
        torch.bfloat16,
    ]
    assert not vendor.supports(int8, torch.float32)
    assert not vendor.supports(zeros(16, 64, torch.int8, two_four), torch.int32)
    assert not vendor.supports(zeros(32, 64, torch.float32, two_four), torch.float32)


def test_values_that_could_not_live_in_the_buffer() -> None:
    packed = zeros(16, 48, torch.bfloat16, NMPattern(2, 4))
    strided = packed.with_values(packed.values.T.contiguous().T)
    assert not vendor.supports(strided, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8])
def test_description_of_a_product(dtype: torch.dtype) -> None:
    out_dtype = torch.float16 if dtype == torch.int8 else dtype
    packed = zeros(32, 64, dtype, NMPattern(2, 4))
    assert vendor.product_of(48, packed, LinearEpilogue("relu", True, True, out_dtype)) == Product(
        48, 32, 64, dtype, out_dtype, True, True
    )
    # GELU is applied afterwards.
    assert not vendor.product_of(48, packed, LinearEpilogue("gelu", True, False, out_dtype)).relu
    assert vendor.row_step(dtype) == (16 if dtype == torch.int8 else 8)
