from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sparse_matrices import ALL_DTYPES
from torch import Tensor

from sparse_core.formats import BSR, COO, CSR, ELL, HYB, NM, CompactCSR, SlicedELL, SparseMatrix

#: Every format, with options under which every matrix fits.
FORMATS: list[tuple[type[SparseMatrix], dict[str, Any]]] = [
    (COO, {}),
    (CSR, {}),
    (ELL, {}),
    (SlicedELL, {"slice_height": 4, "sort_window": 8}),
    (HYB, {"quantile": 0.6}),
    (BSR, {"block_size": (3, 2)}),
    (NM, {"n": 4, "m": 4}),
    (CompactCSR, {}),
]
CASES = [pytest.param(target, options, id=target.__name__) for target, options in FORMATS]
OTHERS = [pytest.param(target, options, id=f"to_{target.__name__}") for target, options in FORMATS]
#: Formats that hold every position that is stored, and no other.
EXACT = (COO, CSR, ELL, SlicedELL, HYB, CompactCSR)
MATRICES = {
    "scattered": (17, 23, 0.2),
    "full": (6, 5, 1.0),
    "one row": (1, 19, 0.4),
    "one column": (19, 1, 0.4),
    "empty": (5, 7, 0.0),
    "no rows": (0, 4, 1.0),
    "no columns": (4, 0, 1.0),
    "nothing": (0, 0, 1.0),
}


def matrices(draw_dense: Callable[..., Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    if dtype != torch.float32:  # The structure does not depend on the dtype.
        return {"scattered": draw_dense(*MATRICES["scattered"], dtype)}
    found = {name: draw_dense(*case, dtype) for name, case in MATRICES.items()}
    found["one dense row"] = found["scattered"].clone()
    found["one dense row"][3] = 1
    found["one dense row"][7] = 0
    return found


def fits(target: type[SparseMatrix], dtype: torch.dtype) -> bool:
    return not (target is CompactCSR and dtype.is_complex)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize(("first", "options"), CASES)
def test_every_pair_of_formats_converts(
    first: type[SparseMatrix], options: dict[str, Any], dtype: torch.dtype, draw_dense: Callable[..., Tensor]
) -> None:
    if not fits(first, dtype):
        pytest.skip("CompactCSR holds real values")
    for name, dense in matrices(draw_dense, dtype).items():
        matrix = first.from_dense(dense, **options)
        matrix.validate()
        assert torch.equal(matrix.to_dense().to(dtype), dense), name
        assert matrix.row_lengths().sum() == matrix.nnz
        assert matrix.shape == dense.shape == (len(matrix), dense.shape[1])
        for second, others in FORMATS:
            if not fits(second, dtype):
                continue
            converted = matrix.to(second, **others)
            converted.validate()
            assert type(converted) is second
            assert torch.equal(converted.to_dense().to(dtype), dense), (name, second)
            if first in EXACT and second in EXACT:
                assert converted.nnz == matrix.nnz == int((dense != 0).sum()), (name, second)


@pytest.mark.gpu
@pytest.mark.parametrize(("target", "options"), CASES)
def test_conversion_on_the_device_matches_the_cpu(
    target: type[SparseMatrix], options: dict[str, Any], draw_dense: Callable[..., Tensor], cuda: torch.device
) -> None:
    for dense in matrices(draw_dense, torch.float32).values():
        matrix = target.from_dense(dense.to(cuda), **options)
        matrix.validate()
        expected = target.from_dense(dense, **options)
        assert matrix.nbytes == expected.nbytes
        for name, tensor in expected._index_tensors().items():
            assert torch.equal(matrix._index_tensors()[name].cpu(), tensor)
        assert torch.equal(matrix.values.cpu(), expected.values)
        assert torch.equal(matrix.T.to_dense().cpu().float(), dense.T) or target is NM
        assert torch.equal(matrix.to("cpu").to_dense().float(), dense)
        for second, others in FORMATS:
            converted = expected.to(cuda).to(second, **others)
            converted.validate()
            assert converted.device.type == "cuda"
            assert torch.equal(converted.to_dense().cpu().float(), dense)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize(("target", "options"), CASES)
def test_round_trip_with_scipy(
    target: type[SparseMatrix], options: dict[str, Any], dtype: torch.dtype, draw_dense: Callable[..., Tensor]
) -> None:
    if not fits(target, dtype):
        pytest.skip("CompactCSR holds real values")
    for dense in matrices(draw_dense, dtype).values():
        array = target.from_dense(dense, **options).to_scipy()
        assert isinstance(array, scipy.sparse.sparray)
        wide = dense.float() if dtype.itemsize == 2 else dense
        if target is CompactCSR:
            wide = wide.float()
        np.testing.assert_array_equal(array.toarray(), wide.numpy())
        again = target.from_scipy(array, **options)
        again.validate()
        assert torch.equal(again.to_dense().to(dtype), dense)
        assert again.index_dtype == torch.int32


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("family", ["array", "matrix"])
def test_every_scipy_kind_is_taken(kind: str, family: str, draw_dense: Callable[..., Tensor]) -> None:
    dense = draw_dense(12, 9, 0.3, torch.float64)
    source = getattr(scipy.sparse, f"{kind}_{family}")(dense.numpy())
    for target, options in FORMATS:
        matrix = target.from_scipy(source, **options)
        matrix.validate()
        assert torch.equal(matrix.to_dense().double(), dense)


def test_scipy_csr_that_is_unsorted_or_has_duplicates_is_put_in_order() -> None:
    data, indices, indptr = np.array([1.0, 2.0, 4.0, 8.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 3, 4])
    source = scipy.sparse.csr_array((data, indices, indptr), shape=(3, 3))
    matrix = CSR.from_scipy(source)
    matrix.validate()
    assert matrix.col.tolist() == [0, 2, 1]
    assert matrix.values.tolist() == [2.0, 5.0, 8.0]
    assert source.nnz == 4, "the source was changed"
    data[:] = 0
    assert matrix.values.tolist() == [2.0, 5.0, 8.0], "memory is shared"


def test_scipy_flags_are_not_trusted() -> None:
    for family in (scipy.sparse.csr_array, scipy.sparse.bsr_array):
        source = family(np.diag([1.0, 2.0, 4.0]) + np.diag([8.0, 16.0], 1))
        assert source.has_canonical_format
        source.indices[:2] = 1, 1  # In place: scipy keeps its flag.
        assert source.has_canonical_format
        matrix = CSR.from_scipy(source)
        matrix.validate()
        assert matrix.to_dense().tolist() == [[0.0, 9.0, 0.0], [0.0, 2.0, 16.0], [0.0, 0.0, 4.0]]
        assert (matrix @ torch.ones(3, dtype=torch.float64)).tolist() == [9.0, 18.0, 4.0]


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "bsr"])
def test_scipy_matrices_whose_arrays_were_damaged_are_refused(kind: str) -> None:
    for part, place, number in itertools.product(
        ("indptr", "indices"), range(3), (-5, -1, 4, 7, 10**9, -(2**31))
    ):
        source = getattr(scipy.sparse, f"{kind}_array")(np.eye(3))
        if kind == "coo":
            part = "coords"
            source.coords[place % 2][place] = number
        else:
            getattr(source, part)[place] = number
        with pytest.raises(ValueError, match=r"outside|must not fall|expected") as raised:
            CSR.from_scipy(source)
        assert any(name in str(raised.value) for name in ("indptr", "row[", "col["))


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_torch_tensors_with_false_indices_are_refused(layout: str) -> None:
    pointers, indices, values = torch.tensor([0, 1, 2, 3]), torch.arange(3), torch.ones(3)
    makers: dict[str, Any] = {
        "csr": torch.sparse_csr_tensor,
        "csc": torch.sparse_csc_tensor,
        "bsr": torch.sparse_bsr_tensor,
        "bsc": torch.sparse_bsc_tensor,
    }
    for part, place, number in itertools.product(range(2), range(3), (-5, 4, 7, 10**12)):
        parts = [pointers.clone(), indices.clone()]
        parts[part][place] = number
        if layout == "coo":
            both = torch.stack([indices, parts[1] if part else indices.clone()])
            both[part, place] = number
            sources = [
                torch.sparse_coo_tensor(both, values, (3, 3), check_invariants=False),
                torch.sparse_coo_tensor(both, values, (3, 3), check_invariants=False, is_coalesced=True),
                torch.sparse_coo_tensor(both, values, (3, 3), check_invariants=False).requires_grad_(),
            ]
        else:
            held = values[:, None, None] if layout in ("bsr", "bsc") else values
            sources = [makers[layout](*parts, held, (3, 3), check_invariants=False)]
        for source in sources:
            with pytest.raises(ValueError, match=r"\] is -?\d+, (outside|below|expected)"):
                CSR.from_torch(source)


def test_torch_coalesced_flag_is_not_trusted() -> None:
    indices, values = torch.tensor([[1, 0, 0], [0, 1, 1]]), torch.tensor([1.0, 2.0, 4.0])
    source = torch.sparse_coo_tensor(indices, values, (2, 2), is_coalesced=True, check_invariants=False)
    for claimed in (source, source.clone().requires_grad_()):
        assert COO.from_torch(claimed).is_coalesced is None
        assert CSR.from_torch(claimed).to_dense().tolist() == [[0.0, 6.0], [1.0, 0.0]]


@pytest.mark.parametrize("layout", ["strided", "coo", "csr", "csc", "bsr", "bsc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_every_torch_layout_is_taken(
    layout: str, dtype: torch.dtype, draw_dense: Callable[..., Tensor]
) -> None:
    dense = draw_dense(12, 8, 0.3, dtype)
    block = {"blocksize": (3, 2)} if layout in ("bsr", "bsc") else {}
    source = (
        dense if layout == "strided" else dense.to_sparse(layout=getattr(torch, f"sparse_{layout}"), **block)
    )
    for target, options in FORMATS:
        if fits(target, dtype):
            matrix = target.from_torch(source, **options)
            matrix.validate()
            assert torch.equal(matrix.to_dense().to(dtype), dense)
            assert matrix.index_dtype == torch.int32


@pytest.mark.parametrize(("target", "options"), CASES)
def test_to_torch_gives_the_layout_of_the_format(
    target: type[SparseMatrix], options: dict[str, Any], draw_dense: Callable[..., Tensor]
) -> None:
    dense = draw_dense(12, 8, 0.3, torch.float32)
    tensor = target.from_dense(dense, **options).to_torch()
    expected = {COO: torch.sparse_coo, BSR: torch.sparse_bsr}.get(target, torch.sparse_csr)
    assert tensor.layout == expected
    assert torch.equal(tensor.to_dense().float(), dense)
    assert torch.equal(target.from_torch(tensor, **options).to_dense().float(), dense)


def test_ragged_bsr_becomes_csr_in_torch_and_scipy(draw_dense: Callable[..., Tensor]) -> None:
    matrix = BSR.from_dense(draw_dense(7, 9, 0.3, torch.float32), block_size=4)
    assert matrix.to_torch().layout == torch.sparse_csr
    assert matrix.to_scipy().format == "csr"
    whole = BSR.from_dense(draw_dense(8, 12, 0.3, torch.float32), block_size=4)
    assert whole.to_scipy().format == "bsr"
    assert whole.to_scipy().blocksize == (4, 4)


@pytest.mark.parametrize(("target", "options"), CASES)
def test_the_transpose_is_the_transpose(
    target: type[SparseMatrix], options: dict[str, Any], draw_dense: Callable[..., Tensor]
) -> None:
    for name, dense in matrices(draw_dense, torch.float32).items():
        matrix = target.from_dense(dense, **options)
        transposed = matrix.T
        transposed.validate()
        assert type(transposed) is target
        assert transposed.shape == (dense.shape[1], dense.shape[0])
        assert torch.equal(transposed.to_dense().float(), dense.T), name
        assert torch.equal(transposed.T.to_dense().float(), dense), name


@pytest.mark.parametrize(("target", "options"), CASES)
def test_nan_and_infinity_are_kept_and_padding_never_leaks(
    target: type[SparseMatrix], options: dict[str, Any], draw_dense: Callable[..., Tensor]
) -> None:
    dense = draw_dense(11, 9, 0.3, torch.float32)
    dense[2, 0], dense[4, 8], dense[10, 3] = float("nan"), float("inf"), float("-inf")
    matrix = target.from_dense(dense, **options)
    for second, others in FORMATS:
        converted = matrix.to(second, **others)
        np.testing.assert_array_equal(converted.to_dense().float().numpy(), dense.numpy())
        np.testing.assert_array_equal(converted.to_scipy().toarray(), dense.numpy())
        np.testing.assert_array_equal(converted.T.to_dense().float().numpy(), dense.T.numpy())


@pytest.mark.parametrize(("target", "options"), CASES)
def test_explicit_zeros_are_kept(target: type[SparseMatrix], options: dict[str, Any]) -> None:
    row, col = torch.tensor([0, 0, 2]), torch.tensor([1, 3, 0])
    coo = COO(row, col, torch.tensor([0.0, 5.0, 0.0]), (3, 4))
    matrix = target.from_coo(coo, **options)
    entries = set(zip(*(part.tolist() for part in (matrix.to(COO).row, matrix.to(COO).col)), strict=True))
    stored = {(0, 1), (0, 3), (2, 0)}
    assert entries >= stored
    assert (entries == stored) == (target in EXACT)
    assert matrix.to(CSR).without_zeros().nnz == 1
    assert matrix.to(COO).to_scipy().nnz == matrix.nnz


@pytest.mark.parametrize(("target", "options"), CASES)
@pytest.mark.parametrize(("second", "others"), OTHERS)
def test_gradients_flow_through_conversions(
    target: type[SparseMatrix],
    options: dict[str, Any],
    second: type[SparseMatrix],
    others: dict[str, Any],
    draw_dense: Callable[..., Tensor],
) -> None:
    dense = draw_dense(9, 8, 0.4, torch.float64)
    weight = draw_dense(9, 8, 1.0, torch.float64, seed=1)
    leaf = dense.clone().requires_grad_()
    matrix = target.from_dense(leaf, **options).to(second, **others)
    assert matrix.requires_grad
    assert not matrix.detach().requires_grad
    # The transpose of NM leaves out slots of value 0.
    transposed = matrix.to(CSR).T if second is NM else matrix.T
    (transposed.to_dense().double() * weight.T).sum().backward()
    stored = target.from_dense(dense, **options).to(CSR).with_values
    pattern = stored(torch.ones(target.from_dense(dense, **options).nnz)).to_dense().double()
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, weight * pattern)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.uint8])
def test_integers_are_refused_with_the_way_out(dtype: torch.dtype) -> None:
    dense = torch.ones(3, 3).to(dtype)
    for target, _ in FORMATS:
        with pytest.raises(TypeError, match=r"convert with dense\.to\(torch\.float"):
            target.from_dense(dense)
        with pytest.raises(TypeError, match=r"matrix\.astype"):
            target.from_scipy(scipy.sparse.csr_array(dense.numpy()))
        with pytest.raises(TypeError, match=r"convert with "):
            target.from_torch(dense.to_sparse())


def test_what_cannot_be_converted_is_refused() -> None:
    with pytest.raises(ValueError, match=r"two-dimensional, got shape \(2, 3, 4\)"):
        CSR.from_dense(torch.ones(2, 3, 4))
    with pytest.raises(ValueError, match="two-dimensional"):
        BSR.from_dense(torch.ones(3))
    with pytest.raises(ValueError, match="two-dimensional"):
        NM.from_dense(torch.ones(3))
    with pytest.raises(ValueError, match="with 1 dense"):
        CSR.from_torch(torch.ones(2, 3, 4).to_sparse(2))
    with pytest.raises(TypeError, match="expected a scipy sparse matrix or array, got ndarray"):
        CSR.from_scipy(np.ones((2, 2)))
    with pytest.raises(ValueError, match="two-dimensional sparse array"):
        CSR.from_scipy(scipy.sparse.coo_array(np.ones(3)))
    with pytest.raises(TypeError, match="expected a torch tensor, got ndarray"):
        CSR.from_torch(np.ones((2, 2)))  # type: ignore[arg-type]
    matrix = CSR.from_dense(torch.eye(2))
    with pytest.raises(ValueError, match=r"'csr' is no device: .* or a format class such as CSR"):
        matrix.to("csr")
    with pytest.raises(ValueError, match=r"block_size must be one or two numbers .*, got 2\.5"):
        matrix.to(BSR, block_size=2.5)
    with pytest.raises(TypeError, match="expected a format class, a device or a dtype, got 3"):
        matrix.to(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="need a format class"):
        matrix.to(torch.float64, block_size=2)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="block_size"):
        matrix.to(ELL, block_size=2)
    for target in (COO, CSR):
        with pytest.raises(TypeError, match="takes no options, got \\['width'\\]"):
            matrix.to(target, width=2)


def test_wide_indices_are_narrowed_by_conversions_and_kept_by_constructors() -> None:
    row, col = torch.tensor([0, 1]), torch.tensor([1, 0])
    coo = COO(row, col, torch.ones(2), (2, 2))
    assert coo.index_dtype == torch.int64
    assert coo.to(COO).index_dtype == torch.int64
    for target, options in FORMATS[1:]:
        assert coo.to(target, **options).index_dtype == torch.int32
        assert coo.coalesce().to(target, **options).index_dtype == torch.int32
    large = COO(row, col, torch.ones(2), (2, 2**31 + 5))
    assert large.to(CSR).index_dtype == torch.int64
    assert large.T.to(COO).shape == (2**31 + 5, 2)
    far = torch.tensor([0, 2**32])
    with pytest.raises(ValueError, match=r"row\[1\] is 4294967296"):
        COO(far, torch.tensor([0, 0]), torch.ones(2), (2, 2))
    outside = COO(far, torch.tensor([0, 0]), torch.ones(2), (2, 2), validate=False)
    with pytest.raises(ValueError, match=r"row\[1\]"):
        outside.to(CSR)
