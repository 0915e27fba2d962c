from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.formats import BSR, COO, CSR, ELL, HYB, NM, CompactCSR, SlicedELL, SparseMatrix


def integers(*numbers: Any, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor(numbers, dtype=dtype)


def csr(row_ptr: tuple[int, ...], col: tuple[int, ...], shape: tuple[int, int], **options: Any) -> CSR:
    return CSR(integers(*row_ptr), integers(*col), torch.ones(len(col)), shape, **options)


def ell(**changes: Any) -> ELL:
    parts: dict[str, Any] = {
        "col": integers([0, 1, 0], [2, 0, 0]),
        "values": torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]]),
        "lengths": integers(2, 1, 0),
        "shape": (3, 4),
    }
    return ELL(**{**parts, **changes})


def sliced(**changes: Any) -> SlicedELL:
    # Slices of two rows: rows 0 and 1 of width 2, row 2 of width 1.
    parts: dict[str, Any] = {
        "slice_ptr": integers(0, 4, 6),
        "col": integers(0, 1, 2, 0, 3, 0),
        "values": torch.tensor([1.0, 2.0, 3.0, 0.0, 4.0, 0.0]),
        "lengths": integers(2, 1, 1),
        "shape": (3, 4),
        "slice_height": 2,
    }
    return SlicedELL(**{**parts, **changes})


def bsr(**changes: Any) -> BSR:
    # 3x3 in blocks of two: a full block, and a column of a ragged one.
    values = torch.ones(2, 2, 2)
    values[1, :, 1] = 0
    parts: dict[str, Any] = {
        "row_ptr": integers(0, 2, 2),
        "col": integers(0, 1),
        "values": values,
        "shape": (3, 3),
    }
    return BSR(**{**parts, **changes})


def nm(**changes: Any) -> NM:
    parts: dict[str, Any] = {
        "values": torch.tensor([[[1.0, 2.0], [3.0, 0.0]]]),
        "index": integers([[0, 3], [1, 2]], dtype=torch.uint8),
        "shape": (1, 6),
        "n": 2,
        "m": 4,
    }
    return NM(**{**parts, **changes})


def compact(**changes: Any) -> CompactCSR:
    parts: dict[str, Any] = {
        "row_ptr": integers(0, 2, 3),
        "delta": integers(0, 2, 1, dtype=torch.int16),
        "values": torch.ones(3, dtype=torch.float16),
        "shape": (2, 4),
        "anchor_offset": 0,
    }
    return CompactCSR(**{**parts, **changes})


@pytest.mark.parametrize("build", [ell, sliced, bsr, nm, compact])
def test_the_examples_are_valid(build: Callable[..., SparseMatrix]) -> None:
    matrix = build(validate=True)
    csr = matrix.to(CSR)
    csr.validate()
    assert csr.nnz == matrix.nnz


def test_trusted_and_meta_tensors_are_not_read() -> None:
    assert csr((0, 1, 3), (7, 2, 9), (2, 8), validate=False).nnz == 3
    assert csr((0, 1, 2), (0, 1, 2), (2, 8), validate=False).nnz == 3
    meta = {"device": "meta"}
    assert (
        CSR(torch.zeros(3, **meta).int(), torch.zeros(5, **meta).int(), torch.zeros(5, **meta), (2, 8)).nnz
        == 5
    )


@pytest.mark.parametrize(
    ("row_ptr", "col", "message"),
    [
        ([0, 1], [10**9], r"^col\[0\] is 1000000000, outside 0\.\.2 \(row 0\)$"),
        ([0, 1], [-5], r"^col\[0\] is -5, outside 0\.\.2 \(row 0\)$"),
        ([0, 5], [1], r"^row_ptr\[1\] is 5, expected 1, the number of entries$"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_indices_that_would_end_the_process_are_refused(
    row_ptr: list[int], col: list[int], message: str, dtype: torch.dtype
) -> None:
    with pytest.raises(ValueError, match=message):
        CSR(torch.tensor(row_ptr, dtype=dtype), torch.tensor(col, dtype=dtype), torch.ones(1), (1, 3))


numbers = st.integers(-1, 4)


@settings(max_examples=150)
@given(pointers=st.lists(numbers, min_size=3, max_size=4), col=st.lists(numbers, max_size=4), columns=numbers)
def test_csr_accepts_what_a_loop_accepts(pointers: list[int], col: list[int], columns: int) -> None:
    columns = max(columns, 0)
    rows = [col[begin:end] for begin, end in itertools.pairwise(pointers)]
    sound = (
        pointers[0] == 0
        and pointers[-1] == len(col)
        and all(begin <= end for begin, end in itertools.pairwise(pointers))
        and all(0 <= place < columns for place in col)
        and all(place < after for row in rows for place, after in itertools.pairwise(row))
    )
    try:
        matrix = csr(tuple(pointers), tuple(col), (len(pointers) - 1, columns))
    except ValueError:
        assert not sound
    else:
        assert sound
        assert matrix.to_dense().sum() == len(col)


@settings(max_examples=150)
@given(
    build=st.sampled_from([sliced, compact]),
    part=st.integers(0, 3),
    place=st.integers(0, 5),
    number=st.sampled_from([-3, -1, 0, 1, 2, 3, 4, 5]),
)
def test_quick_checks_find_what_full_checks_find(
    build: Callable[..., Any], part: int, place: int, number: int
) -> None:
    matrix = build(validate=False)
    arrays = [*matrix._index_tensors().values(), matrix.values]
    array = arrays[part % len(arrays)]
    array[place % len(array)] = number

    def complaint() -> str:
        try:
            matrix.validate()
        except ValueError as error:
            return str(error)
        return ""

    quick = complaint()
    matrix._columns_are_sound = lambda: False
    assert complaint() == quick


def test_products_conversions_and_copies_check_nothing_again(
    monkeypatch: pytest.MonkeyPatch, draw_dense: Callable[..., Tensor]
) -> None:
    matrix = CSR.from_dense(draw_dense(12, 12, 0.2, torch.float32))
    x = torch.ones(12, requires_grad=True)

    def refuse(self: SparseMatrix) -> None:
        raise AssertionError(f"{type(self).__name__} was checked")

    for target in (COO, CSR, ELL, SlicedELL, HYB, BSR, NM, CompactCSR):
        monkeypatch.setattr(target, "validate", refuse)
    for target, options in (
        (COO, {}),
        (CSR, {}),
        (ELL, {}),
        (SlicedELL, {"sort_window": 4}),
        (HYB, {"quantile": 0.5}),
        (BSR, {"block_size": 5}),
        (NM, {"n": 4, "m": 4}),
        (CompactCSR, {}),
    ):
        found = matrix.to(target, **options)
        vector = x.to(found.dtype)
        (found @ vector).sum().backward()
        _ = vector @ found, found @ vector[:, None], found @ found, found.to(CSR), found.to_dense()
        _ = found.to(COO).coalesce().T.to(CSR), found.with_values(found.values), found.to("meta")
        if target is not NM:
            _ = found.T
    with pytest.raises(AssertionError, match="CSR was checked"):
        CSR(matrix.row_ptr, matrix.col, matrix.values, matrix.shape)


def test_a_cuda_graph_can_be_captured_around_a_constructor(cuda: torch.device) -> None:
    parts = [integers(0, 1, 2).to(cuda), integers(1, 0).to(cuda), torch.ones(2, device=cuda)]
    with pytest.raises(ValueError, match=r"col\[0\] is 9"):
        CSR(parts[0], integers(9, 0).to(cuda), parts[2], (2, 2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dense = CSR(*parts, (2, 2)).to_dense()
    graph.replay()
    assert dense.tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("row", "col", "known", "message"),
    [
        ([0, 3], [0, 0], None, r"^row\[1\] is 3, outside 0\.\.2$"),
        ([0, 2], [0, 4], None, r"^col\[1\] is 4, outside 0\.\.3 \(row 2\)$"),
        ([1, 0], [0, 0], True, r"entry 1 at \(0, 0\) comes after entry 0 at \(1, 0\)"),
        ([1, 1], [2, 2], True, r"entry 1 at \(1, 2\) comes after entry 0 at \(1, 2\)"),
    ],
)
def test_coo_names_array_and_position(
    row: list[int], col: list[int], known: bool | None, message: str
) -> None:
    def build(validate: bool) -> COO:
        return COO(
            torch.tensor(row), torch.tensor(col), torch.ones(2), (3, 4), is_coalesced=known, validate=validate
        )

    assert build(False).nnz == 2  # Not checked.
    with pytest.raises(ValueError, match=message):
        build(True)


@pytest.mark.parametrize(
    ("build", "changes", "message"),
    [
        (ell, {"lengths": integers(3, 1, 0)}, r"^lengths\[0\] is 3, outside 0\.\.2$"),
        (ell, {"col": integers([0, 4, 0], [2, 0, 0])}, r"^col\[0, 1\] is 4, outside 0\.\.3$"),
        (ell, {"col": integers([2, 1, 0], [0, 0, 0])}, r"row 0: .* = 0 comes after 2"),
        (ell, {"col": integers([0, 1, 0], [2, 0, 1])}, r"^col\[1, 2\] is padding and must be 0, got 1$"),
        (
            ell,
            {"values": torch.tensor([[1.0, 2.0, 0.0], [3.0, float("nan"), 0.0]])},
            r"^values\[1, 1\] is padding and must be 0, got nan$",
        ),
        (sliced, {"slice_ptr": integers(0, 7, 6)}, r"^slice_ptr\[2\] is 6, below slice_ptr\[1\] = 7"),
        (
            sliced,
            {"slice_ptr": integers(0, 3, 6)},
            r"^slice 0 holds 3 places, not a multiple of slice_height=2",
        ),
        (sliced, {"lengths": integers(2, 1, 2)}, r"^lengths\[2\] is 2, outside 0\.\.1$"),
        (sliced, {"col": integers(0, 1, 2, 0, 4, 0)}, r"is 4, outside 0\.\.3 \(row 2\)"),
        (sliced, {"col": integers(2, 1, 0, 0, 3, 0)}, r"stored row 0: .* = 0 comes after 2"),
        (sliced, {"values": torch.ones(6)}, r"^values\[3\] is padding and must be 0, got 1\.0$"),
        (sliced, {"row_order": integers(0, 3, 1)}, r"^row_order\[1\] is 3, outside 0\.\.2$"),
        (sliced, {"row_order": integers(0, 2, 0)}, r"^row_order\[2\] repeats row 0 of row_order\[0\]"),
        (bsr, {"row_ptr": integers(0, 3, 2)}, r"^row_ptr\[2\] is 2, below row_ptr\[1\] = 3"),
        (bsr, {"col": integers(0, 2)}, r"^col\[1\] is 2, outside 0\.\.1 \(row 0\)$"),
        (bsr, {"col": integers(1, 0)}, r"block row 0: col\[1\] = 0 comes after 1"),
        (bsr, {"values": torch.ones(2, 2, 2)}, r"^values\[1, 0, 1\] lies outside the 3x3 matrix"),
        (
            nm,
            {"index": integers([[0, 4], [1, 2]], dtype=torch.uint8)},
            r"^index\[0, 0, 1\] is 4, outside 0\.\.3",
        ),
        (
            nm,
            {"index": integers([[0, 3], [1, 1]], dtype=torch.uint8)},
            r"^index\[0, 1, 1\] = 1 comes after 1: positions must rise",
        ),
        (nm, {"values": torch.ones(1, 2, 2)}, r"^values\[0, 1, 1\] lies outside the 1x6 matrix"),
        (compact, {"row_ptr": integers(0, 4, 3)}, r"^row_ptr\[2\] is 3, below row_ptr\[1\] = 4"),
        (
            compact,
            {"values": torch.tensor([1.0, -0.0, 1.0], dtype=torch.float16)},
            r"^values\[1\] is -0\.0, which marks a filler, but delta\[1\] is 2, not 65535",
        ),
        (compact, {"anchor_offset": 3}, r"column of entry\[1\] is 5, outside 0\.\.3 \(row 0\)"),
        (
            compact,
            {"delta": integers(1, 0, 1, dtype=torch.int16)},
            r"row 0: column of entry\[1\] = 1 repeats",
        ),
    ],
)
def test_full_checks_name_array_and_position(
    build: Callable[..., SparseMatrix], changes: dict[str, Any], message: str
) -> None:
    matrix = build(**changes, validate=False)  # Cheap checks do not see it.
    with pytest.raises(ValueError, match=message):
        matrix.validate()
    with pytest.raises(ValueError, match=message):
        build(**changes)


def coo(**changes: Any) -> COO:
    parts: dict[str, Any] = {"row": integers(0), "col": integers(0), "values": torch.ones(1), "shape": (2, 2)}
    return COO(**{**parts, **changes})


def plain(**changes: Any) -> CSR:
    parts: dict[str, Any] = {
        "row_ptr": integers(0, 1, 1),
        "col": integers(0),
        "values": torch.ones(1),
        "shape": (2, 2),
    }
    return CSR(**{**parts, **changes})


@pytest.mark.parametrize(
    ("build", "changes", "error", "message"),
    [
        (coo, {"shape": (2,)}, ValueError, r"shape must be two integers"),
        (coo, {"shape": 2}, TypeError, r"shape must be two integers"),
        (coo, {"shape": (2.5, 2)}, ValueError, r"shape must be two integers"),
        (coo, {"shape": (-1, 2)}, ValueError, r"must not be negative"),
        (coo, {"shape": (1, 2**70)}, ValueError, r"shape must be below 2\^63"),
        (coo, {"shape": (1, float("inf"))}, ValueError, r"shape must be two integers"),
        (coo, {"shape": (1, float("nan"))}, ValueError, r"shape must be two integers"),
        (coo, {"shape": "ab"}, ValueError, r"shape must be two integers"),
        (
            coo,
            {"row": integers(0, 1)},
            ValueError,
            r"row must have shape \(1,\) \(one index per value\), got \(2,\)",
        ),
        (coo, {"values": torch.ones(1, 1)}, ValueError, r"values must be one-dimensional"),
        (coo, {"values": [1.0]}, TypeError, r"values must be a tensor, got list"),
        (coo, {"values": torch.ones(1).to_sparse()}, TypeError, r"values must be a strided tensor"),
        (
            coo,
            {"values": torch.ones(1, dtype=torch.int64)},
            TypeError,
            r"got torch\.int64: convert with values\.to\(torch\.float64\)",
        ),
        (
            coo,
            {"row": integers(0, dtype=torch.int16)},
            TypeError,
            r"row must be int32 or int64, got torch\.int16",
        ),
        (coo, {"row": [0]}, TypeError, r"row must be a tensor, got list"),
        (
            coo,
            {"col": torch.tensor([0])},
            TypeError,
            r"col is torch\.int64 but row is torch\.int32: the index",
        ),
        (coo, {"row": integers(0).to("meta")}, ValueError, r"row is on meta but values are on cpu"),
        (
            coo,
            {"shape": (2, 2**31)},
            ValueError,
            r"int32 overflow: row and col are int32 but must hold 2147483648",
        ),
        (
            plain,
            {"col": integers(0).expand(2**31), "values": torch.ones(1).expand(2**31)},
            ValueError,
            r"int32 overflow: row_ptr and col .*pass them as int64 \(x\.to\(torch\.int64\)\)",
        ),
        (
            plain,
            {"row_ptr": integers(0, 1)},
            ValueError,
            r"row_ptr must have shape \(3,\) \(rows \+ 1\), got \(2,\)",
        ),
        (plain, {"col": integers(0, 1)}, ValueError, r"col must have shape \(1,\)"),
        (ell, {"lengths": integers(2, 1)}, ValueError, r"lengths must have shape \(3,\)"),
        (
            ell,
            {"lengths": torch.tensor([2, 1, 0])},
            TypeError,
            r"lengths must be an int32 tensor, got torch.int64",
        ),
        (ell, {"lengths": integers(2, 1, 0).to("meta")}, ValueError, r"lengths is on meta"),
        (ell, {"values": torch.ones(3)}, ValueError, r"values must have shape \(width, rows\), got \(3,\)"),
        (ell, {"values": torch.ones(2, 4)}, ValueError, r"values must have shape \(2, 3\) \(width x rows\)"),
        (ell, {"col": integers([0, 1, 0])}, ValueError, r"col must have shape \(2, 3\)"),
        (sliced, {"slice_height": 0}, ValueError, r"slice_height must be at least 1, got 0"),
        (sliced, {"slice_height": 1}, ValueError, r"slice_ptr must have shape \(4,\) \(slices \+ 1\)"),
        (sliced, {"slice_ptr": integers(0, 4, 5)}, ValueError, r"slice_ptr\[2\] is 5, expected 6"),
        (sliced, {"row_order": integers(0, 1)}, ValueError, r"row_order must have shape \(3,\)"),
        (sliced, {"row_order": torch.arange(3)}, TypeError, r"row_order is torch\.int64 but slice_ptr"),
        (
            bsr,
            {"values": torch.ones(2, 4)},
            ValueError,
            r"values must have shape \(blocks, block_rows, block_cols\)",
        ),
        (bsr, {"values": torch.ones(2, 2, 0)}, ValueError, r"blocks of at least 1x1"),
        (bsr, {"row_ptr": integers(0, 2)}, ValueError, r"row_ptr must have shape \(3,\) \(block rows \+ 1\)"),
        (bsr, {"row_ptr": integers(0, 2, 3)}, ValueError, r"row_ptr\[2\] is 3, expected 2"),
        (nm, {"n": 5}, ValueError, r"1 <= n <= m <= 256, got 5:4"),
        (nm, {"m": 300, "n": 1}, ValueError, r"got 1:300"),
        (nm, {"n": 3}, ValueError, r"values must have shape \(1, 2, 3\)"),
        (
            nm,
            {"index": integers([[0, 3], [1, 2]])},
            TypeError,
            r"index must be a uint8 tensor, got torch\.int32",
        ),
        (
            nm,
            {"values": torch.ones(1, 2, 2, device="meta")},
            ValueError,
            r"index is on cpu but values are on meta",
        ),
        (compact, {"values": torch.ones(3)}, TypeError, r"float16 or bfloat16 values, got torch\.float32"),
        (
            compact,
            {"delta": integers(0, 2, 1)},
            TypeError,
            r"delta must be an int16 tensor, got torch\.int32",
        ),
        (compact, {"delta": integers(0, dtype=torch.int16)}, ValueError, r"delta must have shape \(3,\)"),
        (compact, {"delta": torch.zeros(3, device="meta").short()}, ValueError, r"delta is on meta"),
        (compact, {"row_ptr": integers(0, 2, 4)}, ValueError, r"row_ptr\[2\] is 4, expected 3"),
    ],
)
def test_cheap_checks(
    build: Callable[..., SparseMatrix], changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    build()
    with pytest.raises(error, match=message):
        build(**changes)


def test_parts_of_hyb_must_match() -> None:
    regular, rest = ell(), COO(integers(0), integers(3), torch.ones(1), (3, 4))
    HYB(regular, rest, (3, 4))
    with pytest.raises(ValueError, match=r"ell has shape \(3, 4\), expected \(4, 4\)"):
        HYB(regular, rest, (4, 4))
    with pytest.raises(TypeError, match=r"coo holds torch\.float64"):
        HYB(regular, rest.to(torch.float64), (3, 4))
    with pytest.raises(TypeError, match=r"those of coo are torch\.int64"):
        HYB(regular, COO(rest.row.long(), rest.col.long(), rest.values, (3, 4)), (3, 4))
    with pytest.raises(ValueError, match="ell is on cpu but coo is on meta"):
        HYB(regular, rest.to("meta"), (3, 4))
    with pytest.raises(TypeError, match="needs an ELL and a COO, got ELL and ELL"):
        HYB(regular, regular, (3, 4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^coo: col\[0\] is 4, outside 0\.\.3 \(row 0\)$"):
        HYB(regular, COO(integers(0), integers(4), torch.ones(1), (3, 4), validate=False), (3, 4))


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (BSR, {"block_size": 0}, "block_size must be one or two numbers of at least 1, got 0"),
        (BSR, {"block_size": (2, 2, 2)}, "block_size must be one or two numbers"),
        (SlicedELL, {"slice_height": 0}, "slice_height must be at least 1"),
        (SlicedELL, {"sort_window": 0}, "sort_window must be at least 1"),
        (HYB, {"quantile": 1.5}, "quantile must lie between 0 and 1, got 1.5"),
        (ELL, {"width": 1}, "row 1 has 2 entries, more than width=1"),
        (NM, {"n": 3, "m": 2}, "got 3:2"),
    ],
)
def test_options_are_checked(target: type[SparseMatrix], options: dict[str, Any], message: str) -> None:
    matrix = csr((0, 0, 2), (0, 1), (2, 3))
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        matrix.to(target, **options)


def test_from_coo_refuses_tensors() -> None:
    with pytest.raises(TypeError, match=r"expected a COO matrix, got Tensor"):
        CSR.from_coo(torch.eye(3))  # type: ignore[arg-type]
