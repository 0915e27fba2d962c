"""Result of an eigensolver."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from sparse_core.errors import ConvergenceError


@dataclass(frozen=True, eq=False)
class EigenResult:
    """Eigenpairs ``A v = λ B v`` and their convergence.

    A solver that misses its tolerance does not raise: ``converged`` is False and ``reason`` explains it. Call
    :meth:`raise_if_failed` to raise.

    Attributes:
        values: (K,) real; descending for the largest ones, ascending for the smallest.
        vectors: (M, K), B-orthonormal.
        converged: True if ``‖A v - λ B v‖ <= tolerance`` for every pair, computed from the pairs.
        iterations: number of iterations.
        residuals: the K residual norms before the first and after every iteration.
        tolerance: as used.
        reason: ``"converged"``, ``"max_iterations"`` or a text that starts with ``"breakdown: "``.
        true_residuals: (K,) ``‖A v - λ B v‖`` computed from the final pairs.
    """

    values: Tensor
    vectors: Tensor
    converged: bool
    iterations: int
    residuals: tuple[tuple[float, ...], ...] = field(repr=False)
    tolerance: float
    reason: str
    true_residuals: tuple[float, ...]

    def raise_if_failed(self) -> EigenResult:
        """Return the result itself if it converged.

        Raises:
            ConvergenceError: it did not; the error's ``result`` is this object.
        """
        if self.converged:
            return self
        raise ConvergenceError(
            f"lobpcg did not reach ‖A v - λ B v‖ <= {self.tolerance:.3g} in {self.iterations} iterations"
            f" ({self.reason}); the largest residual is {max(self.true_residuals):.3g}",
            result=self,
        )
