"""What Krylov solvers ask of a preconditioner, and the base that gives it both of its names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Preconditioner(Protocol):
    """An approximate inverse: called with a residual, it returns a correction.

    Anything with these two members serves: the factorisations, the relaxations and algebraic multigrid
    of this package, or a class of one's own.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix it stands for; both the same."""
        ...

    def __call__(self, residual: Tensor) -> Tensor:
        """Correction for ``residual``, (M,) or (M, N); same shape, dtype and device."""
        ...


class ApproximateSolver(ABC):
    """Base of what approximates (or is) ``A^-1``: ``solve(b)`` under the name Krylov solvers call.

    Attributes:
        shape: rows and columns of the matrix; both the same.
        graph_safe: whether an application waits for nothing after the first and can be recorded in a
            CUDA graph.
    """

    shape: tuple[int, int]
    graph_safe: ClassVar[bool] = True

    @abstractmethod
    def solve(self, b: Tensor) -> Tensor:
        """The solution, or its approximation, of ``A x = b``; ``b`` is (M,) or (M, N)."""

    def __call__(self, residual: Tensor) -> Tensor:
        """:meth:`solve`, as a preconditioner."""
        return self.solve(residual)


def check_right_side(b: Tensor, shape: tuple[int, int]) -> None:
    """Raise ``ValueError`` unless ``b`` is (M,) or (M, N) for a matrix of ``shape``."""
    if b.ndim not in (1, 2) or b.shape[0] != shape[0]:
        raise ValueError(f"b must have shape ({shape[0]},) or ({shape[0]}, N), got {tuple(b.shape)}")
