"""Tensors in pieces that fit a processor's cache, and the difference of two tensors read that way.

Everything in this package walks over flat tensors piece by piece: a merge needs a dozen operations for each
number, and in pieces only the first of them waits for memory. Elementwise results do not depend on the size
of a piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
#: Numbers in a piece on a CPU: even, because random bits are drawn in pairs, and just below the size from
#: which torch shares an operation among threads, which would wait for each other after each of them. Threads
#: get ranges of pieces instead.
PIECE = (1 << 15) - 2
_GPU_PIECE = 1 << 24
#: Tensors of fewer pieces are not worth a thread.
_LEAST_PIECES = 8


def piece_size(device: torch.device) -> int:
    """Numbers in a piece: few on a CPU, for its cache; many elsewhere."""
    return PIECE if device.type == "cpu" else _GPU_PIECE


def spans(start: int, stop: int, size: int | None = None) -> Iterator[tuple[int, int]]:
    """Start and stop of each piece from ``start`` to ``stop``; on a CPU unless ``size`` says otherwise."""
    size = PIECE if size is None else size
    for first in range(start, stop, size):
        yield first, min(first + size, stop)


def ranges(count: int, device: torch.device) -> list[tuple[int, int]]:
    """``count`` numbers in ranges of whole pieces, one for each thread that torch may use."""
    size = piece_size(device)
    pieces = -(-count // size)
    threads = torch.get_num_threads() if device.type == "cpu" and pieces >= _LEAST_PIECES else 1
    return list(spans(0, count, size * max(1, math.ceil(pieces / threads))))


def in_threads(tasks: Sequence[Callable[[], Result]], count: int, device: torch.device) -> list[Result]:
    """Results of tasks on tensors of ``count`` numbers, computed side by side where that pays."""
    threads = min(len(tasks), torch.get_num_threads())
    if threads <= 1 or device.type != "cpu" or count < _LEAST_PIECES * PIECE:
        return [task() for task in tasks]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda task: task(), tasks))


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 where a tensor has it, float32 otherwise."""
    return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32


class Delta:
    """What a model adds to its base, computed when it is read.

    Args:
        values: of the model, or the difference itself where there is no base; any shape, floating point.
        base: of the same shape and on the same device; None for a difference that is there already.
        label: how errors name it, such as ``model a.safetensors, tensor 'head.weight'``.
        dtype: to compute in; by default :func:`compute_dtype` of both.
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
        """How many numbers there are."""
        return self.values.numel()

    @property
    def device(self) -> torch.device:
        """Where the values are."""
        return self.values.device

    def buffer(self, count: int | None = None) -> Tensor:
        """Room for a piece, or for ``count`` numbers."""
        size = min(piece_size(self.device), self.count) if count is None else count
        return torch.empty(size, dtype=self.dtype, device=self.device)

    def read(self, start: int, stop: int, out: Tensor) -> Tensor:
        """Return the numbers from ``start`` to ``stop``, in the front of ``out``: a view of it."""
        piece = out[: stop - start]
        values = self.values[start:stop]
        if self.base is None:
            return piece.copy_(values)
        base = self.base[start:stop]
        if values.dtype == base.dtype == self.dtype:
            return torch.sub(values, base, out=piece)
        return piece.copy_(values).sub_(base.to(self.dtype))

    def sample(self, count: int) -> Tensor:
        """About ``count`` of the numbers, evenly spaced."""
        step = max(1, self.count // count)
        found = self.values[::step].to(self.dtype)
        return found if self.base is None else found - self.base[::step].to(self.dtype)

    def require_finite(self, piece: Tensor) -> None:
        """Raise ``ValueError`` naming this tensor when a piece holds NaN or infinity."""
        if piece.numel() == 0:
            return
        low, high = torch.aminmax(piece)
        self.require_finite_number(float(high) - float(low))

    def require_finite_number(self, number: float) -> None:
        """Raise ``ValueError`` naming this tensor when a number made from it is NaN or infinite."""
        if not math.isfinite(number):
            raise ValueError(
                f"{self.label or 'a delta'} holds NaN or infinity: repair or leave out that model first"
            )
