"""Launch plans of products: the recorded kernel launches for a dense operand of one layout.

The first two calls run normally and record their launches. If both recorded equal launches, the third call
uses a plan (:mod:`sparse_core.kernels.launch_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sparse_core.formats import BSR, SparseMatrix
from sparse_core.kernels.launch_plan import ALIGNMENT, LaunchPlan, make_launcher, plans_enabled

if TYPE_CHECKING:
    from sparse_core.kernels.triton_launches import BoundLaunch

#: Most layouts of operands with a plan per matrix.
_MOST = 32
#: Most launches of a plan; with more, Python takes a small part of the time.
_MOST_LAUNCHES = 4
#: Most bytes of scratch memory kept per stream, and most streams.
_MOST_SCRATCH, _MOST_STREAMS = 1 << 20, 8


def multiply_by_plan(matrix: object, dense: object, ordinary: Callable[[], Tensor]) -> Tensor:
    """Multiply by a launch plan if its guard holds, else by ``ordinary``.

    Args:
        matrix, dense: as the caller passed them, unchecked.
    """
    if type(dense) is not Tensor or not isinstance(matrix, SparseMatrix) or not dense.is_cuda:
        return ordinary()
    # float32 products of BSR depend on this global setting of torch.
    setting = torch.get_float32_matmul_precision() if isinstance(matrix, BSR) else None
    key = (dense.shape, dense.dtype, setting)
    known = matrix._plans.get(key)
    if isinstance(known, LaunchPlan):
        y = known((dense,), (matrix.values,)) if dense.is_contiguous() else None
        return ordinary() if y is None else y
    if known is False or torch.cuda.is_current_stream_capturing():
        return ordinary()
    return _multiply_and_record(matrix, dense, ordinary, key, known)


def _multiply_and_record(
    matrix: SparseMatrix, dense: Tensor, ordinary: Callable[[], Tensor], key: object, known: object
) -> Tensor:
    """Multiply and record the launches; from the second call on make a plan of them."""
    from sparse_core.kernels import triton_launches
    from sparse_core.kernels.launches import record

    with record() as found:
        y = ordinary()
    matrix._plans.keep(key, False, _MOST)
    fits = 1 <= len(found.launches) <= _MOST_LAUNCHES and not y.requires_grad
    if not plans_enabled() or not fits or (y.data_ptr() | dense.data_ptr()) % ALIGNMENT:
        return y
    bound = triton_launches.bind(found.launches, (dense, y), found.scratch)
    if bound is None:
        return y
    if known is None:
        matrix._plans.keep(key, bound, _MOST)
    elif isinstance(known, list) and triton_launches.are_same(bound, known):
        plan = _make_plan(bound, matrix.values, y, found.scratch)
        matrix._plans.keep(key, plan or False, _MOST)
    return y


def _make_plan(
    launches: Sequence[BoundLaunch], values: Tensor, y: Tensor, scratch: Sequence[Tensor]
) -> LaunchPlan | None:
    from sparse_core.kernels.triton_launches import make_steps

    steps = make_steps(launches)
    launcher = None if steps is None else make_launcher(steps)
    if launcher is None:
        return None
    memory = StreamScratch(scratch) if scratch else None
    return LaunchPlan(launcher, y, (values,), memory, kept=launches)


class StreamScratch:
    """Scratch memory per stream, like ``tensors``; products on one stream reuse it."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._layouts = [(one.shape, one.dtype, one.device) for one in tensors]
        self._small = sum(one.numel() * one.element_size() for one in tensors) <= _MOST_SCRATCH
        self._by_stream: dict[int, tuple[tuple[int, ...], list[Tensor]]] = {}

    def __call__(self, stream: int) -> tuple[tuple[int, ...], list[Tensor]]:
        """Return addresses, and the memory; a captured graph gets its own."""
        if not self._small or torch.cuda.is_current_stream_capturing():
            return self._make()
        known = self._by_stream.get(stream)
        if known is None:
            if len(self._by_stream) >= _MOST_STREAMS:
                self._by_stream.clear()
            known = self._by_stream[stream] = self._make()
        return known

    def _make(self) -> tuple[tuple[int, ...], list[Tensor]]:
        buffers = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in self._layouts]
        return tuple(one.data_ptr() for one in buffers), buffers
