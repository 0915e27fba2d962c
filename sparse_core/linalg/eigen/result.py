"""What an eigensolver hands back."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from sparse_core.errors import ConvergenceError


@dataclass(frozen=True, eq=False)
class EigenResult:
    """Eigenpairs ``A v = λ B v`` and how they came about.

    A solver that does not reach its tolerance is not an error: ``converged`` is False and ``reason``
    says why. :meth:`raise_if_failed` makes it one.

    Attributes:
        values: (K,) real; falling for the largest ones, rising for the smallest.
        vectors: (M, K), orthonormal in the inner product of B.
        converged: whether ``‖A v - λ B v‖ <= tolerance`` for every pair, computed from the pairs.
        iterations: iterations done.
        residuals: the K residual norms before the first and after every iteration.
        tolerance: as used.
        reason: ``"converged"``, ``"max_iterations"`` or a text that starts with ``"breakdown: "``.
        true_residuals: (K,) ``‖A v - λ B v‖`` computed from the pairs at the end.
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
        """Return the result itself when it converged.

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
