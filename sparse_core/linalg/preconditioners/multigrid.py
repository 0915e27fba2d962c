"""Algebraic multigrid: pyamg builds the hierarchy on the CPU, the cycle runs on any device."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sparse_core.common.libraries import module_available
from sparse_core.formats import CSR
from sparse_core.kernels.autocast import without_autocast
from sparse_core.linalg.factorisation.pattern import check_factorisable
from sparse_core.linalg.krylov.scaling import choose_scaling, magnitude_of, times_power
from sparse_core.linalg.preconditioner import ApproximateSolver, check_right_side
from sparse_core.linalg.products import spmm

#: Chebyshev smoothing damps eigenvalues of ``D^-1 A`` above this share of the largest.
_SMOOTHED_PART = 1 / 4
_POWER_STEPS = 20


@dataclass(frozen=True, eq=False)
class MultigridLevel:
    """One level above the coarsest.

    Attributes:
        matrix: (M, M).
        prolongation: (M, Mc) from the next coarser level.
        restriction: (Mc, M) to it.
        inverse_diagonal: (M,).
        largest_eigenvalue: upper estimate for ``D^-1 A``.
    """

    matrix: CSR
    prolongation: CSR
    restriction: CSR
    inverse_diagonal: Tensor
    largest_eigenvalue: float


class AlgebraicMultigrid(ApproximateSolver):
    """One multigrid cycle from zero, as a preconditioner.

    Attributes:
        shape: rows and columns.
        levels: from fine to coarse, without the coarsest.
        coarse_inverse: (Mc, Mc) dense pseudo-inverse of the coarsest matrix.
        setup_s: setup time in seconds.
    """

    def __init__(
        self,
        levels: list[MultigridLevel],
        coarse_inverse: Tensor,
        coarse_entries: int,
        *,
        method: str,
        visits: int,
        setup_s: float,
    ) -> None:
        self.levels, self.coarse_inverse, self.setup_s = levels, coarse_inverse, setup_s
        self._coarse_entries, self._method, self._visits = coarse_entries, method, visits
        size = levels[0].matrix.shape[0] if levels else len(coarse_inverse)
        self.shape = (size, size)

    @without_autocast
    def solve(self, b: Tensor) -> Tensor:
        """Return an approximate solution for ``b`` of shape (M,) or (M, N)."""
        check_right_side(b, self.shape)
        return self._cycle(0, b)

    def _cycle(self, index: int, b: Tensor) -> Tensor:
        if index == len(self.levels):
            return self.coarse_inverse.to(b.dtype) @ b
        level = self.levels[index]
        x = _chebyshev(level, b, None)
        for _ in range(self._visits):
            coarse = spmm(level.restriction, b - spmm(level.matrix, x))
            x = x + spmm(level.prolongation, self._cycle(index + 1, coarse))
        return _chebyshev(level, b, x)

    def describe(self) -> str:
        """Describe the unknowns and entries of each level, and the setup time."""
        sizes = [(level.matrix.shape[0], level.matrix.nnz) for level in self.levels]
        sizes.append((len(self.coarse_inverse), self._coarse_entries))
        ratio = sum(nnz for _, nnz in sizes) / max(1, sizes[0][1])
        lines = [f"{self._method} multigrid, {len(sizes)} levels, setup {self.setup_s:.3f} s"]
        for index, (rows, nnz) in enumerate(sizes):
            lines.append(f"  level {index}: {rows} unknowns, {nnz} entries")
        lines.append(f"  entries of all levels over those of the finest: {ratio:.2f}")
        return "\n".join(lines)


def algebraic_multigrid(
    matrix: CSR,
    *,
    method: Literal["smoothed_aggregation", "ruge_stuben"] = "smoothed_aggregation",
    cycle: Literal["V", "W"] = "V",
) -> AlgebraicMultigrid:
    """Build an algebraic multigrid preconditioner with pyamg (``pip install pyamg``).

    The cycle runs on the matrix's device with two Chebyshev steps before and after the coarse correction
    (Adams, Brezina, Hu and Tuminaro, "Parallel multigrid smoothing: polynomial versus Gauss-Seidel", 2003).
    The preconditioner of a symmetric matrix is symmetric.

    Args:
        matrix: (M, M) CSR, float32 or float64; best for symmetric positive definite ones.
        method: pyamg's coarsening method.
        cycle: the V or the W cycle.

    Raises:
        TypeError: not CSR, or values of another type.
        ValueError: not square, another ``method`` or ``cycle``, or a zero on the diagonal of a level.
        ModuleNotFoundError: pyamg is not installed.
    """
    check_factorisable(matrix)
    if matrix.dtype.is_complex:
        raise TypeError(f"algebraic_multigrid supports real values, got {matrix.dtype}: use ilu0")
    if method not in ("smoothed_aggregation", "ruge_stuben"):
        raise ValueError(f"method must be 'smoothed_aggregation' or 'ruge_stuben', got {method!r}")
    if cycle not in ("V", "W"):
        raise ValueError(f"cycle must be 'V' or 'W', got {cycle!r}")
    if not module_available("pyamg"):
        raise ModuleNotFoundError(
            "algebraic_multigrid needs pyamg, which is not installed: pip install pyamg"
        )
    begin = time.perf_counter()
    # Scale the entries, because pyamg squares them.
    exponent = choose_scaling(lambda _: magnitude_of(matrix), matrix.values.new_zeros(1), None).matrix
    hierarchy = _hierarchy(matrix, exponent, method)
    levels = [_level(level, matrix, exponent) for level in hierarchy[:-1]]
    coarsest = hierarchy[-1].A
    # A pseudo-inverse also works for singular problems, such as pure Neumann ones.
    inverse = torch.linalg.pinv(torch.from_numpy(coarsest.toarray()), hermitian=_is_symmetric(coarsest))
    return AlgebraicMultigrid(
        levels,
        times_power(inverse, [-exponent]).to(matrix.dtype).to(matrix.device),
        coarsest.nnz,
        method=method,
        visits=1 if cycle == "V" else 2,
        setup_s=time.perf_counter() - begin,
    )


def _hierarchy(matrix: CSR, exponent: int, method: str) -> list[Any]:
    """Build the levels of ``A / 2^exponent``."""
    pyamg = importlib.import_module("pyamg")
    usual = matrix.with_values(times_power(matrix.values.detach().double(), [-exponent]))
    array = usual.to("cpu").to_scipy().tocsr()
    array.sort_indices()
    build = getattr(pyamg, f"{method}_solver")
    # pyamg starts its eigenvalue estimates from numpy's global generator.
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    try:
        levels: list[Any] = build(array, max_coarse=300).levels
    finally:
        np.random.set_state(before)  # noqa: NPY002
    return levels


def _level(level: Any, matrix: CSR, exponent: int) -> MultigridLevel:
    array = level.A.tocsr()
    diagonal = array.diagonal()
    zero = np.flatnonzero(diagonal == 0)
    if len(zero):
        raise ValueError(
            f"a multigrid level of {array.shape[0]} unknowns has a zero diagonal in row {zero[0]}"
        )

    def moved(part: Any, power: int = 0) -> CSR:
        whole = CSR.from_scipy(part.tocsr())
        return whole.with_values(times_power(whole.values, [power])).to(matrix.dtype).to(matrix.device)

    return MultigridLevel(
        moved(array, exponent),
        moved(level.P),
        moved(level.R),
        times_power(torch.from_numpy(1 / diagonal), [-exponent]).to(matrix.dtype).to(matrix.device),
        _largest_eigenvalue(array, diagonal),
    )


def _largest_eigenvalue(array: Any, diagonal: Any) -> float:
    """Estimate that of ``D^-1 A`` from above: power iteration with a margin, at most Gershgorin's bound."""
    bound = float((abs(array).sum(axis=1) / np.abs(diagonal)).max())
    vector = np.sin(np.arange(1, len(diagonal) + 1) * 12.9898) + 0.1
    estimate = 0.0
    for _ in range(_POWER_STEPS):
        vector /= np.linalg.norm(vector)
        vector = (array @ vector) / diagonal
        estimate = float(np.linalg.norm(vector))
    return min(bound, 1.1 * estimate)


def _is_symmetric(array: Any) -> bool:
    return bool(abs(array - array.T).max() <= 1e-12 * abs(array).max()) if array.nnz else True


def _chebyshev(level: MultigridLevel, b: Tensor, x: Tensor | None) -> Tensor:
    """Run two steps of the Chebyshev iteration on ``D^-1 A``; ``x`` None starts from zero."""
    high = level.largest_eigenvalue
    centre, radius = (1 + _SMOOTHED_PART) / 2 * high, (1 - _SMOOTHED_PART) / 2 * high
    inverse = level.inverse_diagonal if b.ndim == 1 else level.inverse_diagonal[:, None]
    residual = b if x is None else b - spmm(level.matrix, x)
    step = inverse * residual / centre
    x = step if x is None else x + step
    # Second step of the three-term recurrence of Saad, algorithm 12.1.
    rho = 1 / (2 * centre / radius - radius / centre)
    residual = b - spmm(level.matrix, x)
    return x + rho * (radius / centre) * step + (2 * rho / radius) * (inverse * residual)
