"""Tensors in pieces that fit a CPU cache, and the difference of two tensors read piece by piece.

The whole package walks over flat tensors piece by piece: a merge needs a dozen operations per number, and in
pieces only the first one waits for memory. Elementwise results do not depend on the piece size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
#: Numbers in a piece on a CPU. Even, because random bits are drawn in pairs. Just below the size from which
#: torch splits an operation over threads, which synchronize after each one; threads get ranges of pieces.
PIECE = (1 << 15) - 2
_GPU_PIECE = 1 << 24
#: Smaller tensors are not split over threads.
_LEAST_PIECES = 8


def piece_size(device: torch.device) -> int:
    """Return the numbers in a piece: few on a CPU, for its cache; many elsewhere."""
    return PIECE if device.type == "cpu" else _GPU_PIECE


def spans(start: int, stop: int, size: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each piece from ``start`` to ``stop``, by default of the CPU's piece size."""
    size = PIECE if size is None else size
    for first in range(start, stop, size):
        yield first, min(first + size, stop)


def ranges(count: int, device: torch.device) -> list[tuple[int, int]]:
    """Split ``count`` numbers into ranges of whole pieces, one per torch thread."""
    size = piece_size(device)
    pieces = -(-count // size)
    threads = torch.get_num_threads() if device.type == "cpu" and pieces >= _LEAST_PIECES else 1
    return list(spans(0, count, size * max(1, math.ceil(pieces / threads))))


def in_threads(tasks: Sequence[Callable[[], Result]], count: int, device: torch.device) -> list[Result]:
    """Run tasks on tensors of ``count`` numbers, in threads if that pays; return their results."""
    threads = min(len(tasks), torch.get_num_threads())
    if threads <= 1 or device.type != "cpu" or count < _LEAST_PIECES * PIECE:
        return [task() for task in tasks]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda task: task(), tasks))


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """Return float64 if a tensor has it, float32 otherwise."""
    return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32


class Delta:
    """The difference of a model from its base, computed when it is read.

    Args:
        values: floating-point tensor of the model, or the difference itself without a base.
        base: tensor of the same shape and device; None if ``values`` is the difference.
        label: name in errors, for example ``model a.safetensors, tensor 'head.weight'``.
        dtype: type of the computation; by default :func:`compute_dtype` of both.
    """

    def __init__(
        self, values: Tensor, base: Tensor | None = None, *, label: str = "", dtype: torch.dtype | None = None
    ) -> None:
        self.values = values.detach().reshape(-1)
        self.base = None if base is None else base.detach().reshape(-1)
        self.label = label
        self.dtype = dtype or compute_dtype(values, *(() if base is None else (base,)))

    @property
    def count(self) -> int:
        """Number of elements."""
        return self.values.numel()

    @property
    def device(self) -> torch.device:
        """Device of the values."""
        return self.values.device

    def buffer(self, count: int | None = None) -> Tensor:
        """Return an empty buffer for a piece, or for ``count`` numbers."""
        size = min(piece_size(self.device), self.count) if count is None else count
        return torch.empty(size, dtype=self.dtype, device=self.device)

    def read(self, start: int, stop: int, out: Tensor) -> Tensor:
        """Write the numbers from ``start`` to ``stop`` to the front of ``out``; return that view."""
        piece = out[: stop - start]
        values = self.values[start:stop]
        if self.base is None:
            return piece.copy_(values)
        base = self.base[start:stop]
        if values.dtype == base.dtype == self.dtype:
            return torch.sub(values, base, out=piece)
        return piece.copy_(values).sub_(base.to(self.dtype))

    def sample(self, count: int) -> Tensor:
        """Return about ``count`` of the numbers, evenly spaced."""
        step = max(1, self.count // count)
        found = self.values[::step].to(self.dtype)
        return found if self.base is None else found - self.base[::step].to(self.dtype)

    def require_finite(self, piece: Tensor) -> None:
        """Raise ``ValueError`` naming this tensor if a piece holds NaN or infinity."""
        if piece.numel() == 0:
            return
        low, high = torch.aminmax(piece)
        self.require_finite_number(float(high) - float(low))

    def require_finite_number(self, number: float) -> None:
        """Raise ``ValueError`` naming this tensor if a number computed from it is NaN or infinite."""
        if not math.isfinite(number):
            raise ValueError(
                f"{self.label or 'a delta'} holds NaN or infinity: repair or leave out that model first"
            )
