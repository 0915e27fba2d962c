from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.formats import BSR, CSR
from sparse_core.formats.generators import (
    banded,
    block_sparse,
    convection_diffusion,
    diagonal,
    generate,
    names,
    poisson_2d,
    poisson_3d,
    power_law,
    random_uniform,
    stencil,
    stencil_27,
)

MAKERS: dict[str, Callable[..., CSR | BSR]] = {
    "poisson-2d:9": lambda **options: poisson_2d(9, **options),
    "poisson-3d:4x3x5": lambda **options: poisson_3d(4, 3, 5, **options),
    "stencil-27:4": lambda **options: stencil_27(4, **options),
    "convection-diffusion:5x6": lambda **options: convection_diffusion(5, 6, **options),
    "random-uniform:30x40x7": lambda **options: random_uniform(30, 40, 7, **options),
    "power-law:50,max_length=20": lambda **options: power_law(50, max_length=20, **options),
    "block-sparse:20x27x4": lambda **options: block_sparse(20, 27, 4, **options),
    "banded:9x2": lambda **options: banded(9, 2, **options),
    "diagonal:9": lambda **options: diagonal(9, **options),
}


@pytest.mark.parametrize("name", MAKERS)
def test_every_generator_gives_a_valid_matrix_by_its_name(name: str, device: torch.device) -> None:
    made = MAKERS[name](device=device, dtype=torch.float64)
    made.validate()
    assert made.device.type == device.type
    assert made.dtype == torch.float64
    assert made.index_dtype == torch.int32
    by_name = generate(name, dtype=torch.float64)
    assert type(by_name) is type(made)
    assert torch.equal(by_name.to_dense(), made.to_dense().cpu())


def test_there_is_a_maker_for_each_name() -> None:
    assert [name.partition(":")[0] for name in MAKERS] == names()


@pytest.mark.parametrize("grid", [(1, 1), (1, 7), (6, 1), (5, 8), (2, 2)])
def test_poisson_2d_is_pyamgs(grid: tuple[int, int]) -> None:
    gallery = pytest.importorskip("pyamg.gallery")
    expected = gallery.poisson(grid, format="csr").toarray()
    assert np.array_equal(poisson_2d(*grid, dtype=torch.float64).to_dense().numpy(), expected)


@pytest.mark.parametrize("grid", [(1, 1, 1), (3, 4, 5), (2, 1, 2), (2, 2, 2)])
def test_three_dimensional_stencils_are_pyamgs(grid: tuple[int, int, int]) -> None:
    gallery = pytest.importorskip("pyamg.gallery")
    expected = gallery.poisson(grid, format="csr").toarray()
    assert np.array_equal(poisson_3d(*grid, dtype=torch.float64).to_dense().numpy(), expected)
    weights = np.full((3, 3, 3), -1.0)
    weights[1, 1, 1] = 26.0
    expected = gallery.stencil_grid(weights, grid).toarray()
    made = stencil_27(*grid, dtype=torch.float64)
    made.validate()
    assert np.array_equal(made.to_dense().numpy(), expected)


@settings(max_examples=40)
@given(
    grid=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
    reach=st.integers(0, 3),
)
def test_a_stencil_is_a_loop_over_points(grid: list[int], seed: int, reach: int) -> None:
    random = np.random.default_rng(seed)
    offsets = {tuple(offset) for offset in random.integers(-reach, reach + 1, (4, len(grid))).tolist()}
    weights = {offset: float(number + 1) for number, offset in enumerate(offsets)}
    made = stencil(weights, grid, dtype=torch.float64)
    made.validate()
    expected = np.zeros(made.shape)
    for point in np.ndindex(*grid):
        for offset, weight in weights.items():
            other = tuple(a + b for a, b in zip(point, offset, strict=True))
            if all(0 <= place < size for place, size in zip(other, grid, strict=True)):
                expected[np.ravel_multi_index(point, grid), np.ravel_multi_index(other, grid)] = weight
    assert np.array_equal(made.to_dense().numpy(), expected)
    assert made.nnz == np.count_nonzero(expected)


@pytest.mark.parametrize("velocity", [(0.0, 0.0), (0.5, 1.0), (-2.0, 0.25)])
def test_convection_diffusion_is_laplace_plus_upwind_differences(velocity: tuple[float, float]) -> None:
    rows, cols = 5, 7
    expected = poisson_2d(rows, cols, dtype=torch.float64).to_scipy()
    for axis, speed in enumerate(velocity):
        sizes = (rows, cols)
        # Backward difference for flow towards rising numbers, forward difference otherwise.
        difference = scipy.sparse.diags_array(
            [1.0, -1.0], offsets=[0, -1 if speed > 0 else 1], shape=(sizes[axis], sizes[axis])
        )
        parts = [scipy.sparse.eye_array(size) for size in sizes]
        parts[axis] = difference
        expected = expected + abs(speed) * scipy.sparse.kron(*parts)
    made = convection_diffusion(rows, cols, velocity=velocity, dtype=torch.float64)
    np.testing.assert_allclose(made.to_dense().numpy(), expected.toarray(), atol=1e-12)
    assert torch.equal(made.to_dense(), made.T.to_dense()) == (velocity == (0.0, 0.0))


def test_uniform_rows_have_distinct_random_columns() -> None:
    made = random_uniform(400, 50, 10, seed=1)
    made.validate()
    assert made.row_lengths().unique().tolist() == [10]
    # Every column is as likely as another: 80 expected, standard deviation about 8.
    share = torch.bincount(made.col, minlength=50)
    assert int(share.min()) > 40
    assert int(share.max()) < 120
    assert abs(float(made.values.mean())) < 0.1
    assert abs(float(made.values.std()) - 1) < 0.1
    assert torch.equal(random_uniform(4, 4, 4).col, torch.arange(4, dtype=torch.int32).repeat(4))


@pytest.mark.parametrize("make", [random_uniform, power_law, block_sparse, banded, diagonal])
def test_seeds(make: Callable[..., CSR | BSR]) -> None:
    first, again, other = (make(60, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.values, again.values)
    assert torch.equal(first.col, again.col)
    assert first.values.shape != other.values.shape or not torch.equal(first.values, other.values)


def test_power_law_lengths_follow_zipf() -> None:
    made = power_law(20_000, 1600, alpha=1.8, seed=3)
    made.validate()
    lengths = made.row_lengths()
    weight = torch.arange(1, 101, dtype=torch.float64) ** -1.8
    expected = weight / weight.sum()
    assert (int(lengths.min()), int(lengths.max()) <= 100) == (1, True)
    found = torch.bincount(lengths.long(), minlength=101)[1:].double() / 20_000
    assert float((found - expected).abs().max()) < 0.012
    mean = float((expected * torch.arange(1, 101)).sum())
    assert abs(float(lengths.double().mean()) - mean) < 0.05 * mean
    # Long rows are not sorted to one end.
    assert 0.4 < float((lengths > 10).nonzero().double().mean()) / 20_000 < 0.6


def test_power_law_bounds() -> None:
    lengths = power_law(500, 40, min_length=3, max_length=5).row_lengths()
    assert lengths.unique().tolist() == [3, 4, 5]
    assert power_law(5, 8).row_lengths().tolist() == [1] * 5
    assert power_law(3, 0, min_length=1).nnz == 0
    with pytest.raises(ValueError, match="1 <= min_length <= max_length <= 4 columns, got 2 and 9"):
        power_law(4, min_length=2, max_length=9)


def test_block_sparse_has_the_density_asked_for_and_zeros_outside() -> None:
    made = block_sparse(64, 96, 8, 0.25)
    assert made.values.shape == (24, 8, 8)
    assert made.sparsity == 0.75
    ragged = block_sparse(10, 7, 4, 1.0)
    ragged.validate()
    assert ragged.values.shape == (6, 4, 4)
    assert ragged.nnz == 70
    assert not ragged.values[4:, 2:].any()
    with pytest.raises(ValueError, match=r"density in \[0, 1\], got 0 and 0\.1"):
        block_sparse(4, 4, 0)


def test_bands_are_where_they_are_asked_for() -> None:
    made = banded(6, 2, 1)
    row = torch.repeat_interleave(torch.arange(6), made.row_ptr.diff().long())
    assert (row - made.col).unique().tolist() == [-1, 0, 1, 2]
    assert made.nnz == 6 + 5 + 5 + 4
    assert diagonal(3).col.tolist() == [0, 1, 2]


@pytest.mark.parametrize("size", [0, 1])
def test_smallest_sizes(size: int) -> None:
    for make in (poisson_2d, poisson_3d, stencil_27, convection_diffusion, banded, diagonal, block_sparse):
        made = make(size)
        made.validate()
        assert made.shape == (size, size)
    assert random_uniform(0, 5, 3).shape == (0, 5)
    assert random_uniform(size, size, size).nnz == size


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("poisson", r"no generator 'poisson'; use one of poisson-2d, poisson-3d, .*diagonal"),
        ("", "no generator ''"),
        ("poisson-2d", r"missing a required argument: 'rows'; poisson-2d takes rows, cols, dtype, device"),
        ("poisson-2d:big", r"'poisson-2d:big': 'big' is not a number"),
        ("poisson-2d:1x2x3", "too many positional"),
        ("poisson-2d:-4", r"grid must be a whole number and not negative, got -4"),
        ("diagonal:1.5", "whole number"),
        ("banded:5,colour=3", r"unexpected keyword argument 'colour'"),
        ("random-uniform:4x4x9", "per_row must be from 0 to the 4 columns, got 9"),
    ],
)
def test_wrong_generator_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(name)


def test_wrong_stencils() -> None:
    with pytest.raises(ValueError, match=r"offsets of 2 numbers for the grid \(3, 3\)"):
        stencil({(0,): 1.0}, (3, 3))
    with pytest.raises(ValueError, match="offsets of 1 numbers"):
        stencil({}, (3,))


def test_indices_become_wide_only_when_they_must(monkeypatch: pytest.MonkeyPatch) -> None:
    assert generate("poisson-2d:4").index_dtype == torch.int32
    wide = "sparse_core.formats.generators.stencils.index_dtype_for"
    monkeypatch.setattr(wide, lambda *_: torch.int64)
    made = generate("poisson-2d:4")
    assert made.index_dtype == torch.int64
    made.validate()
