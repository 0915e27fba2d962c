from __future__ import annotations

import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.formats import COO, CSR
from sparse_core.linalg import MulticolourOrder, multicolour_order


def check(matrix: CSR, order: MulticolourOrder) -> None:
    """Every unknown has one colour, and no two coupled unknowns the same."""
    size = matrix.shape[0]
    assert torch.equal(order.permutation.sort().values.cpu(), torch.arange(size))
    assert order.colour_ptr[0] == 0
    assert order.colour_ptr[-1] == size
    colour = torch.empty(size, dtype=torch.int64)
    for index in range(order.colours):
        members = order.permutation[order.colour_ptr[index] : order.colour_ptr[index + 1]].cpu()
        assert torch.equal(members, members.sort().values)
        assert len(members) > 0
        colour[members] = index
    entries = matrix.to("cpu").to_scipy().tocoo()
    coupled = entries.row != entries.col
    assert (colour.numpy()[entries.row] != colour.numpy()[entries.col])[coupled].all()


def grid(*shape: int, diagonals: bool = False) -> CSR:
    """Pattern of a grid: neighbours along axes, or also along diagonals."""
    matrix = scipy.sparse.eye_array(1)
    for size in shape:
        line = scipy.sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(size, size))
        one, left = scipy.sparse.eye_array(size), scipy.sparse.eye_array(matrix.shape[0])
        if diagonals:
            matrix = scipy.sparse.kron(matrix, line + one)
        else:
            matrix = scipy.sparse.kron(matrix, one) + scipy.sparse.kron(left, line)
    array = scipy.sparse.csr_array(matrix)
    array.eliminate_zeros()
    return CSR.from_scipy(array)


@pytest.mark.parametrize("shape", [(50,), (9, 8), (4, 5, 6), (1, 1), (300, 1)])
def test_grids_take_two_colours(shape: tuple[int, ...], device: torch.device) -> None:
    matrix = grid(*shape).to(device)
    order = multicolour_order(matrix)
    check(matrix, order)
    assert order.colours == (1 if max(shape) == 1 else 2)


@pytest.mark.parametrize("shape", [(12, 13), (6, 7, 5)])
def test_grids_with_diagonals_take_the_least_colours(shape: tuple[int, ...], device: torch.device) -> None:
    matrix = grid(*shape, diagonals=True).to(device)
    order = multicolour_order(matrix)
    check(matrix, order)
    assert order.colours == 2 ** len(shape)
    # The same on every device and in every run.
    again = multicolour_order(grid(*shape, diagonals=True))
    assert torch.equal(again.permutation, order.permutation.cpu())


@settings(max_examples=60)
@given(
    size=st.integers(1, 15), places=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=60)
)
def test_random_patterns(size: int, places: list[tuple[int, int]]) -> None:
    dense = torch.zeros(size, size)
    for row, col in places:
        dense[row % size, col % size] = 1
    matrix = CSR.from_dense(dense)
    order = multicolour_order(matrix)
    check(matrix, order)
    joined = scipy.sparse.csr_array(((dense + dense.T) > 0).fill_diagonal_(False).numpy().astype(float))
    # Greedy colouring never needs more than one colour above the largest degree.
    assert order.colours <= joined.sum(axis=1).max() + 1


def test_a_long_chain_of_triangles_is_coloured_in_hashed_order() -> None:
    size = 2000
    offsets = [-2, -1, 1, 2]
    array = scipy.sparse.diags_array([1.0] * 4, offsets=offsets, shape=(size, size), format="csr")
    matrix = CSR.from_scipy(array)
    order = multicolour_order(matrix)
    check(matrix, order)
    # Vertex by vertex from one end it would be three.
    assert 3 < order.colours <= 5


def test_complete_graph_and_no_row() -> None:
    order = multicolour_order(CSR.from_dense(torch.ones(6, 6)))
    assert order.colour_ptr == (0, 1, 2, 3, 4, 5, 6)
    empty = multicolour_order(CSR.from_dense(torch.zeros(0, 0)))
    assert empty.colours == 0
    assert empty.permutation.shape == (0,)


def test_the_order_is_kept_on_the_structure() -> None:
    matrix = grid(4, 4)
    assert multicolour_order(matrix) is multicolour_order(matrix.with_values(2 * matrix.values))


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="must be CSR, got COO"):
        multicolour_order(grid(2).to(COO))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be square, got 2 x 3"):
        multicolour_order(CSR.from_dense(torch.ones(2, 3)))
