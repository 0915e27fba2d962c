"""Interface of preconditioners for the Krylov solvers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Preconditioner(Protocol):
    """Protocol of an approximate inverse: called with a residual, it returns a correction.

    The factorisations, relaxations and algebraic multigrid of this package follow it, and so can your own
    class.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix, both the same."""
        ...

    def __call__(self, residual: Tensor) -> Tensor:
        """Return the correction for ``residual``, (M,) or (M, N); same shape, dtype and device."""
        ...


class ApproximateSolver(ABC):
    """Base class of ``A^-1`` or an approximation; calling it calls :meth:`solve`.

    Attributes:
        shape: rows and columns of the matrix, both the same.
        graph_safe: True if calls after the first never wait and can be captured in a CUDA graph.
    """

    shape: tuple[int, int]
    graph_safe: ClassVar[bool] = True

    @abstractmethod
    def solve(self, b: Tensor) -> Tensor:
        """Return the solution, or its approximation, of ``A x = b``; ``b`` is (M,) or (M, N)."""

    def __call__(self, residual: Tensor) -> Tensor:
        """Call :meth:`solve`, as a preconditioner."""
        return self.solve(residual)


def check_right_side(b: Tensor, shape: tuple[int, int]) -> None:
    """Raise ``TypeError`` unless ``b`` is a tensor, ``ValueError`` unless it is (M,) or (M, N)."""
    if not isinstance(b, Tensor):
        raise TypeError(f"b must be a torch tensor, got {type(b).__name__}: convert it with torch.as_tensor")
    if b.ndim not in (1, 2) or b.shape[0] != shape[0]:
        raise ValueError(f"b must have shape ({shape[0]},) or ({shape[0]}, N), got {tuple(b.shape)}")
