"""Scaling of a system by powers of two, so that squares neither overflow nor underflow.

A power of two changes only the exponents, so a solver takes the same steps as with an unlimited range.
Systems of a usual size are not scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sparse_core.formats.base import SparseMatrix
from sparse_core.linalg.operands import WORKING_DTYPES

#: Magnitudes from ``2^-usual`` to ``2^usual`` are not scaled, by the bits of a real number. Squares of a
#: product
#: of a matrix, a vector and a small tolerance are then in range.
_USUAL = {32: 16, 64: 200}
#: ``A x0`` may exceed ``b`` by this power of two; beyond it both are scaled to its size.
_ROOM = {32: 32, 64: 400}
#: Any ratio of two numbers of a dtype is the product of four powers of two that the dtype holds.
_FACTORS = 4


@dataclass(frozen=True)
class Scaling:
    """Scaled system ``(A / 2^matrix) y = b / 2^right`` for ``A x = b``, with ``x = y 2^(right - matrix)``.

    Attributes:
        matrix: exponent for A.
        right: exponent per right-hand side, one for a vector.
    """

    matrix: int
    right: tuple[int, ...]

    @property
    def identity(self) -> bool:
        """True if nothing is scaled."""
        return self.matrix == 0 and not any(self.right)

    def column(self, at: int) -> Scaling:
        """Return the scaling of one right-hand side."""
        return replace(self, right=(self.right[at],))

    def solution(self, y: Tensor) -> Tensor:
        """Return ``x`` from a solution of the scaled system, (M,) or (M, N)."""
        return times_power(y, [one - self.matrix for one in self.right])

    def start(self, x: Tensor) -> Tensor:
        """Invert :meth:`solution`."""
        return times_power(x, [self.matrix - one for one in self.right])

    def right_side(self, b: Tensor) -> Tensor:
        """Scale a right-hand side or a residual."""
        return times_power(b, [-one for one in self.right])

    def norm(self, value: float, column: int = 0) -> float:
        """Return the norm of a residual of ``A x = b`` from that of the scaled system."""
        return scaled_number(value, self.right[column])

    def tolerances(self, rtol: float, atol: float, norms: Tensor) -> Tensor:
        """Return ``max(rtol * ‖b‖, atol)`` of the scaled system, from the norms of its right-hand sides."""
        floors = [scaled_number(atol, -one) for one in self.right]
        if len(set(floors)) == 1:
            return (rtol * norms).clamp(min=floors[0])
        return torch.maximum(rtol * norms, norms.new_tensor(floors))


def times_power(vectors: Tensor, exponents: Sequence[int]) -> Tensor:
    """Return ``vectors * 2^exponent``: (M,) with one exponent, (M, N) with one per column or one for all."""
    if not any(exponents):
        return vectors
    for part in range(_FACTORS):
        # Every working dtype holds each factor, and no partial product exceeds the range needed.
        powers = [2.0 ** ((one + part) // _FACTORS) for one in exponents]
        vectors = vectors * (powers[0] if len(powers) == 1 else vectors.real.new_tensor(powers))
    return vectors


def scaled_number(value: float, exponent: int) -> float:
    """Return ``value * 2^exponent``, which may be infinite."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def choose_scaling(magnitude: Callable[[Tensor], float], b: Tensor, x0: Tensor | None) -> Scaling:
    """Choose the scaling of a system.

    Args:
        magnitude: returns about the largest number of the matrix, given a right-hand side of usual size.
        b: (M,) or (M, N), working dtype.
    """
    bits = torch.finfo(b.dtype).bits
    usual, room = _USUAL[bits], _ROOM[bits]
    sizes = [_exponent(one) for one in largest_of(b)]
    right = [one if abs(one) > usual else 0 for one in sizes]
    size = _exponent(magnitude(times_power(b, [-one for one in right])))
    if x0 is not None:
        images = [_exponent(one) + size if one else None for one in largest_of(x0)]
        right = [
            one if image is None else max(one, image - room) for one, image in zip(right, images, strict=True)
        ]
    return Scaling(size if abs(size) > usual else 0, tuple(right))


def largest_of(vectors: Tensor) -> list[float]:
    """Return the largest magnitude of a vector, or of each column; 0 for an empty one."""
    if vectors.shape[0] == 0:
        return [0.0] * (1 if vectors.ndim == 1 else vectors.shape[1])
    largest: list[float] = vectors.abs().amax(dim=0).reshape(-1).tolist()
    return largest


def _exponent(value: float) -> int:
    return math.frexp(value)[1] if math.isfinite(value) and value > 0 else 0


def magnitude_of(operand: SparseMatrix | Tensor) -> float:
    """Return the largest stored magnitude."""
    if isinstance(operand, SparseMatrix):
        return operand.cached_values("largest magnitude", lambda: _largest(operand.values.detach()))
    return _largest(operand.detach())


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def scaled_operand(operand: object, exponent: int) -> SparseMatrix | Tensor | None:
    """Divide a matrix by ``2^exponent``; None for a function, and for half precision."""
    if not isinstance(operand, SparseMatrix | Tensor) or operand.dtype not in WORKING_DTYPES:
        return None
    if isinstance(operand, SparseMatrix):
        return operand.with_values(times_power(operand.values.detach(), [-exponent]))
    return times_power(operand.detach(), [-exponent])


def scaled_product(
    operand: object, apply: Callable[[Tensor], Tensor], exponent: int
) -> Callable[[Tensor], Tensor]:
    """Divide a product by ``2^exponent``; stored values are scaled once instead of every product."""
    if exponent == 0:
        return apply
    scaled = scaled_operand(operand, exponent)
    if isinstance(scaled, SparseMatrix):
        return scaled.__matmul__
    if scaled is not None:
        return lambda x: scaled.to(x.dtype) @ x
    return lambda x: times_power(apply(x), [-exponent])
