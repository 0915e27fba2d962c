"""What a Krylov solver hands back."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from sparse_core.errors import ConvergenceError


@dataclass(frozen=True, eq=False)
class SolveResult:
    """Solution of ``A x = b`` and how it came about.

    A solver that does not reach its tolerance is not an error: ``converged`` is False and ``reason``
    says why. :meth:`raise_if_failed` makes it one.

    Attributes:
        x: (M,) or (M, N) the last iterate, with the working dtype. Where that is not finite (an overflow, a
            NaN from the preconditioner) it is the finite iterate with the smallest ``‖b - A x‖``.
        converged: whether ``‖b - A x‖ <= tolerance``, with the residual computed from ``x``; for lsqr also
            where ``A^H (b - A x)`` is as small as was asked for.
        iterations: iterations done (CG, MINRES, GMRES: one product with A each, BiCGSTAB: two).
        residuals: ``‖b - A x‖`` before the first and after every iteration, as the method's recurrence
            has it: ``iterations + 1`` entries.
        tolerance: ``max(rtol * ‖b‖, atol)``.
        reason: ``"converged"`` (lsqr: also ``"converged: least squares"``), ``"max_iterations"``,
            ``"stopped by callback"``, or a text that starts with ``"breakdown: "``,
            ``"not positive definite: "``, ``"stagnation: "`` or ``"least squares: "``.
        true_residual: ``‖b - A x‖`` computed from ``x`` at the end.
        method: ``"cg"``, ``"minres"``, ``"bicgstab"``, ``"gmres"`` or ``"lsqr"``.
        execution: how the iterations ran, such as ``"CUDA graph of 10 iterations"``.
        columns: with several right-hand sides one result for each; the fields above then describe the
            column that failed first or, where all converged, took longest.
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
        """Return the result itself when it converged.

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
