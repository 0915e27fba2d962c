from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg import algebraic_multigrid, cg, rigid_body_modes


def grid_points(size: int) -> Tensor:
    line = torch.arange(size, dtype=torch.float64)
    return torch.stack([line.repeat(size), line.repeat_interleave(size)], dim=1)


@pytest.fixture(scope="module")
def elasticity() -> tuple[Any, Any]:
    """A plate of 40 x 40 nodes, and pyamg's own rigid-body modes."""
    gallery = pytest.importorskip("pyamg.gallery", reason="elasticity is pyamg's: pip install pyamg")
    return gallery.linear_elasticity((40, 40))  # type: ignore[no-any-return]


@pytest.mark.parametrize("cycle", ["V", "W"])
def test_elasticity_needs_rigid_body_modes(elasticity: tuple[Any, Any], cycle: Any) -> None:
    """50 iterations with constants alone, 9 with rotations; pyamg's own cycle needs 8."""
    pyamg = pytest.importorskip("pyamg", reason="multigrid is built by pyamg: pip install pyamg")
    array, candidates = elasticity
    matrix = CSR.from_scipy(array.tocsr())
    b = torch.from_numpy(np.random.default_rng(0).standard_normal(len(matrix)))
    norms: list[float] = []
    pyamg.smoothed_aggregation_solver(array, B=candidates).solve(
        b.numpy(), tol=1e-8, accel="cg", residuals=norms
    )
    counts = {}
    for name, vectors in (("none", None), ("ours", rigid_body_modes(grid_points(40)))):
        multigrid = algebraic_multigrid(matrix, cycle=cycle, near_nullspace=vectors)
        result = cg(matrix, b, rtol=1e-8, preconditioner=multigrid)
        assert result.converged
        counts[name] = result.iterations
    assert counts["none"] >= 40
    assert counts["ours"] <= len(norms) + 2 <= 12


def test_modes_span_those_of_pyamg(elasticity: tuple[Any, Any]) -> None:
    basis = torch.linalg.qr(torch.from_numpy(elasticity[1])).Q
    modes = rigid_body_modes(grid_points(40))
    torch.testing.assert_close(basis @ (basis.mT @ modes), modes)
    assert torch.linalg.matrix_rank(modes) == 3


@pytest.mark.parametrize("axes", [2, 3])
def test_modes_do_not_stretch(axes: int) -> None:
    """To first order the distance of two nodes stays: (u_i - u_j) is normal to (x_i - x_j)."""
    points = torch.rand(7, axes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    modes = rigid_body_modes(points)
    assert modes.shape == (7 * axes, {2: 3, 3: 6}[axes])
    assert torch.linalg.matrix_rank(modes) == modes.shape[1]
    moved = modes.reshape(7, axes, -1)
    between = points[:, None] - points[None]
    stretch = torch.einsum("ija,ijam->ijm", between, moved[:, None] - moved[None])
    torch.testing.assert_close(stretch, torch.zeros_like(stretch))
    torch.testing.assert_close(modes.norm(dim=0), torch.full((modes.shape[1],), 7**0.5, dtype=torch.float64))


def test_few_nodes() -> None:
    assert rigid_body_modes(torch.zeros(0, 3)).shape == (0, 6)
    one = rigid_body_modes(torch.ones(1, 2))
    assert one.tolist() == [[1, 0, 0], [0, 1, 0]]


def test_the_constant_alone_is_the_default() -> None:
    line = torch.full((500,), 2.0, dtype=torch.float64)
    off = -torch.ones(499, dtype=torch.float64)
    matrix = CSR.from_dense(torch.diag(line) + torch.diag(off, 1) + torch.diag(off, -1))
    b = torch.rand(500, dtype=torch.float64)
    ones = torch.ones(500)
    torch.testing.assert_close(
        algebraic_multigrid(matrix, near_nullspace=ones).solve(b), algebraic_multigrid(matrix).solve(b)
    )


@pytest.mark.parametrize(
    ("vectors", "options", "message"),
    [
        (torch.ones(3), {}, r"shape \(4,\) or \(4, K\), got \(3,\)"),
        (torch.ones(4, 0), {}, r"got \(4, 0\)"),
        (torch.ones(4, dtype=torch.complex64), {}, "real floating-point tensor, got torch.complex64"),
        (np.ones(4), {}, "real floating-point tensor, got ndarray"),
        (torch.full((4,), float("nan")), {}, "must be finite"),
        (torch.ones(4), {"method": "ruge_stuben"}, "needs method='smoothed_aggregation'"),
    ],
)
def test_vectors_that_do_not_fit(vectors: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        algebraic_multigrid(CSR.from_dense(torch.eye(4)), near_nullspace=vectors, **options)


def test_coordinates_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        rigid_body_modes(torch.ones(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"\(N, 2\) or \(N, 3\), got \(4, 1\)"):
        rigid_body_modes(torch.ones(4, 1))
    with pytest.raises(ValueError, match="finite"):
        rigid_body_modes(torch.full((4, 2), float("inf")))
