from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

import sparse_core.formats
from sparse_core.formats import (
    BSR,
    COO,
    CSR,
    ELL,
    HYB,
    NM,
    CompactCSR,
    SlicedELL,
    SparseMatrix,
    index_dtype_for,
)

FORMATS = [COO, CSR, ELL, SlicedELL, HYB, BSR, NM, CompactCSR]
DENSE = torch.tensor(
    [[1.0, 0.0, 0.0, 2.0, 0.0], [0.0] * 5, [0.0, 0.0, 3.0, 0.0, 4.0], [5.0, 0.0, 0.0, 0.0, 0.0]]
)


@pytest.fixture(params=FORMATS, ids=lambda target: target.__name__)
def matrix(request: pytest.FixtureRequest) -> SparseMatrix:
    made: SparseMatrix = request.param.from_dense(DENSE)
    return made


def test_numbers_of_a_matrix(matrix: SparseMatrix) -> None:
    assert matrix.shape == (4, 5)
    assert len(matrix) == 4
    assert matrix.nnz == {BSR: 20, NM: 12}.get(type(matrix), 5)
    assert matrix.sparsity == pytest.approx(1 - matrix.nnz / 20)
    assert matrix.dtype == (torch.float16 if isinstance(matrix, CompactCSR) else torch.float32)
    assert matrix.device == torch.device("cpu")
    assert matrix.index_dtype == torch.int32
    assert not matrix.requires_grad
    name = type(matrix).__name__
    dtype = str(matrix.dtype).removeprefix("torch.")
    assert repr(matrix) == f"{name}(4x5, nnz={matrix.nnz}, {dtype}, cpu)"


def test_bytes_are_those_of_all_tensors() -> None:
    expected = {
        COO: 5 * (4 + 4 + 4),
        CSR: 5 * 4 + 5 * (4 + 4),
        ELL: 2 * 4 * (4 + 4) + 4 * 4,
        SlicedELL: 2 * 4 + 2 * 32 * (4 + 4) + 4 * 4,
        HYB: 2 * 4 * (4 + 4) + 4 * 4,
        BSR: 2 * 4 + 4 + 16 * 16 * 4,
        NM: 4 * 2 * 2 * (4 + 1),
        CompactCSR: 5 * 4 + 5 * (2 + 2),
    }
    for target in FORMATS:
        assert target.from_dense(DENSE).nbytes == expected[target], target


def test_with_values_shares_structure_and_its_cache(matrix: SparseMatrix) -> None:
    calls = []

    def build() -> int:
        calls.append(1)
        return len(calls)

    assert matrix.cached("plan", build) == matrix.cached("plan", build) == 1
    other = matrix.with_values(matrix.values * 2)
    assert other.cached("plan", build) == 1
    assert torch.equal(other.to_dense(), matrix.to_dense() * 2)
    for name, tensor in matrix._index_tensors().items():
        assert other._index_tensors()[name] is tensor
    assert other.cached("later", lambda: 7) == matrix.cached("later", lambda: 8) == 7
    assert type(other) is type(matrix)
    wide = matrix.with_values(matrix.values.to(torch.bfloat16))
    assert wide.dtype == torch.bfloat16
    assert matrix.values.data_ptr() != other.values.data_ptr()


def test_plans_of_values_follow_the_values(matrix: SparseMatrix) -> None:
    calls = []

    def build() -> int:
        calls.append(1)
        return len(calls)

    assert [matrix.cached_values("plan", build) for _ in range(3)] == [1, 1, 1]
    matrix._value_tensors()[0].mul_(2)
    assert [matrix.cached_values("plan", build) for _ in range(2)] == [2, 2]
    other = matrix.with_values(matrix.values.clone())
    assert [other.cached_values("plan", build) for _ in range(2)] == [3, 3]
    assert matrix.cached_values("plan", build) == 2
    with torch.inference_mode():
        unversioned = matrix.with_values(matrix.values.clone())
        assert [unversioned.cached_values("plan", build) for _ in range(2)] == [4, 5]


def test_plans_made_in_inference_mode_serve_gradients_later() -> None:
    with torch.inference_mode():
        matrix = CSR.from_dense(DENSE)
        assert torch.equal(matrix.T.to_dense(), DENSE.T)
    values = torch.ones(matrix.nnz, requires_grad=True)
    matrix.with_values(values).T.to_dense().sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1.0] * 5


def test_with_values_refuses_what_does_not_fit(matrix: SparseMatrix) -> None:
    values = matrix.values
    with pytest.raises(ValueError, match="values must have shape"):
        matrix.with_values(torch.cat([values, values]))
    with pytest.raises(TypeError, match=r"torch\.int32"):
        matrix.with_values(values.to(torch.int32))
    with pytest.raises(ValueError, match="values are on meta"):
        matrix.with_values(values.to("meta"))


def test_dtype_and_device(matrix: SparseMatrix) -> None:
    assert matrix.to(matrix.dtype) is matrix
    assert matrix.to("cpu") is matrix
    assert matrix.to(torch.device("cpu")) is matrix
    assert matrix.to(type(matrix)) is matrix
    moved = matrix.to("meta")
    assert {tensor.device.type for tensor in moved._index_tensors().values()} == {"meta"}
    assert moved.values.device.type == "meta"
    if isinstance(matrix, CompactCSR):
        with pytest.raises(TypeError, match=r"float16 or bfloat16 values, got torch\.float64"):
            matrix.to(torch.float64)
        assert torch.equal(matrix.to(torch.bfloat16).to_dense().float(), DENSE)
        return
    double = matrix.to(torch.float64)
    assert double.dtype == torch.float64
    assert torch.equal(double.to_dense(), DENSE.double())
    assert matrix.to(torch.complex64).to_dense().dtype == torch.complex64


def test_copies_leave_caches_behind(matrix: SparseMatrix) -> None:
    assert torch.equal(matrix.T.to_dense().float(), DENSE.T)
    matrix.cached("plan", lambda: torch.ones(1000))
    pickled = pickle.dumps(matrix)
    stream = io.BytesIO()
    torch.save(matrix, stream)
    stream.seek(0)
    for again in (
        pickle.loads(pickled),
        torch.load(stream, weights_only=False),
        copy.deepcopy(matrix),
        copy.copy(matrix),
    ):
        assert type(again) is type(matrix)
        assert again._structure_cache == {}
        assert again.nnz == matrix.nnz
        again.validate()
        assert torch.equal(again.to_dense().float(), DENSE)
    assert len(pickled) < 6000
    assert copy.deepcopy(matrix).values.data_ptr() != matrix.values.data_ptr()


def test_the_transpose_keeps_its_plans() -> None:
    matrix = CSR.from_dense(DENSE)
    assert matrix.T.cached("plan", lambda: 1) == matrix.T.cached("plan", lambda: 2) == 1
    assert matrix.with_values(matrix.values * 3).T.cached("plan", lambda: 2) == 1
    assert torch.equal(matrix.with_values(matrix.values * 3).T.to_dense(), 3 * DENSE.T)
    assert matrix.T.row_ptr is matrix.T.row_ptr


def test_products_go_to_linalg(matrix: SparseMatrix) -> None:
    dense = matrix.to_dense().float()
    right, left = torch.arange(15.0).reshape(5, 3), torch.arange(8.0).reshape(2, 4)
    torch.testing.assert_close((matrix @ right).float(), dense @ right)
    torch.testing.assert_close((matrix @ right[:, 0]).float(), dense @ right[:, 0])
    torch.testing.assert_close((matrix @ right.expand(2, 5, 3)).float(), dense @ right.expand(2, 5, 3))
    torch.testing.assert_close((left @ matrix).float(), left @ dense)
    torch.testing.assert_close((left[0] @ matrix).float(), left[0] @ dense)
    product = matrix @ CSR.from_dense(DENSE.T.contiguous())
    torch.testing.assert_close(product.to_dense().float(), dense @ DENSE.T)
    with pytest.raises(TypeError):
        matrix @ 3
    with pytest.raises(TypeError):
        "a" @ matrix


def test_index_dtype_for() -> None:
    assert index_dtype_for() == index_dtype_for(0, 2**31 - 1) == torch.int32
    assert index_dtype_for(3, 2**31) == torch.int64


def test_public_names() -> None:
    for name in [*(target.__name__ for target in FORMATS), "SparseMatrix", "Description", "choose_format"]:
        assert name in sparse_core.formats.__all__
        assert hasattr(sparse_core.formats, name)


@pytest.mark.parametrize("block_size", [(2, 3), (32, 48)])
def test_blocks_of_any_size_transpose(block_size: tuple[int, int]) -> None:
    dense = torch.arange(1.0, 96 * 96 + 1).reshape(96, 96)
    transposed = BSR.from_dense(dense, block_size=block_size).T
    transposed.validate()
    assert transposed.values.is_contiguous()
    assert transposed.block_size == block_size[::-1]
    assert torch.equal(transposed.to_dense(), dense.T)


@pytest.mark.parametrize("shape", [(7, 10), (6, 12), (1, 1), (0, 5), (5, 0)])
def test_blocks_become_rows_alike_with_and_without_scipy(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = torch.arange(1.0, shape[0] * shape[1] + 1).reshape(shape)
    dense[: shape[0] // 2, shape[1] // 2 :] = 0
    matrix = BSR.from_dense(dense, block_size=(2, 3))
    found = matrix.to(CSR)
    found.validate()
    monkeypatch.setattr("sparse_core.formats.blocks.scipy_can_read", lambda col: False)
    expected = matrix.to(CSR)
    assert torch.equal(found.to_dense(), dense)
    for name in ("row_ptr", "col", "values"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
