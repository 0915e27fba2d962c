"""Result of a Krylov solver."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from sparse_core.errors import ConvergenceError


@dataclass(frozen=True, eq=False)
class SolveResult:
    """Solution of ``A x = b`` and its convergence.

    A solver that misses its tolerance does not raise: ``converged`` is False and ``reason`` explains it. Call
    :meth:`raise_if_failed` to raise.

    Attributes:
        x: (M,) or (M, N) the last iterate, in the working dtype. If that is not finite (an overflow, a NaN
            from the preconditioner), it is the finite iterate with the smallest ``‖b - A x‖``.
        converged: True if ``‖b - A x‖ <= tolerance``, computed from ``x``.
        iterations: number of iterations (CG, MINRES, GMRES: one product with A each, BiCGSTAB: two).
        residuals: ``‖b - A x‖`` of the recurrence before the first and after every iteration:
            ``iterations + 1`` entries.
        tolerance: ``max(rtol * ‖b‖, atol)``.
        reason: ``"converged"``, ``"max_iterations"``,
            ``"stopped by callback"``, or a text that starts with ``"breakdown: "``,
            ``"not positive definite: "``, ``"stagnation: "`` or ``"least squares: "``.
        true_residual: final ``‖b - A x‖`` computed from ``x``.
        method: ``"cg"``, ``"minres"``, ``"bicgstab"`` or ``"gmres"``.
        execution: for example ``"CUDA graph of 10 iterations"``.
        columns: one result per right-hand side if there are several. The fields above then describe the
            first column that failed or, if all converged, the one with most iterations.
    """

    x: Tensor
    converged: bool
    iterations: int
    residuals: tuple[float, ...] = field(repr=False)
    tolerance: float
    reason: str
    true_residual: float
    method: str
    execution: str = "plain"
    columns: tuple[SolveResult, ...] = field(default=(), repr=False)

    def raise_if_failed(self) -> SolveResult:
        """Return the result itself if it converged.

        Raises:
            ConvergenceError: it did not; the error's ``result`` is this object.
        """
        if self.converged:
            return self
        raise ConvergenceError(
            f"{self.method} did not reach ‖b - A x‖ <= {self.tolerance:.3g} in {self.iterations} iterations"
            f" ({self.reason}); the residual is {self.true_residual:.3g}",
            result=self,
        )
