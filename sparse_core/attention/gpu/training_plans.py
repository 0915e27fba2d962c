"""Launch plans of attention with gradients: one launch for the forward pass, two for the backward pass.

Python takes several times as long as the kernels of a short sequence: checks, the choice of an
implementation, and Triton's binding of sixty arguments. A plan skips them after it has recorded the launches
once (:mod:`sparse_core.kernels.launch_plan`). The launches and their arguments stay, and so do the bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from sparse_core.attention.gpu import attention, hopper
from sparse_core.attention.gpu.plan import Lists
from sparse_core.attention.operands import (
    DIM_STEP,
    KERNEL_TYPES,
    SMALLEST_DIM,
    AttentionOptions,
    AttentionShape,
)
from sparse_core.kernels import torch_internals
from sparse_core.kernels.gradients import once_differentiable
from sparse_core.kernels.launch_plan import ALIGNMENT, Launcher, make_launcher, plans_enabled
from sparse_core.kernels.launches import RecordedLaunch, record
from sparse_core.kernels.triton_launches import bind_by_identity, make_steps

#: A launcher; None before its first call; False if these launches have no plan.
_Recorded = Launcher | Literal[False] | None


class TrainingPlan:
    """The launches of attention for operands of one layout, and of its backward pass.

    The first forward pass, and the first backward pass for each layout of the gradient, record the launches.

    Args:
        q, k, v: operands of the layout.
        shape: their sizes.
        scale: of the scores.
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, shape: AttentionShape, scale: float) -> None:
        self._index, self._shape = q.get_device(), shape
        self._options = AttentionOptions(scale, impl="auto")
        # The result has no gaps, although the queries may.
        made = torch.empty_like(q, device="meta")
        self._strides = (q.stride(), k.stride(), v.stride(), made.stride())
        self._forward: _Recorded = None
        self._backward: dict[object, _Recorded] = {}
        self._kept: list[object] = []

    @classmethod
    def of(
        cls, q: Tensor, k: Tensor, v: Tensor, lists: Lists, transposed: Lists | None, scale: float
    ) -> TrainingPlan | None:
        """Return a plan for operands of a call that ran; None if its launches cannot be repeated."""
        dim = q.shape[-1]
        fits = q.dtype in KERNEL_TYPES and lists.pattern_heads in (1, q.shape[1]) and q.numel() and k.numel()
        if not fits or dim % DIM_STEP or dim < SMALLEST_DIM or any(one.stride(-1) != 1 for one in (q, k, v)):
            return None
        shape = AttentionShape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], dim)
        works = [lists.work_list(shape.batch, shape.heads)]
        if transposed is not None:
            works.append(transposed.work_list(shape.batch, shape.heads, shape.group))
        # Rows that are cut need memory between launches, and long sequences hide the time of the host.
        if any(work is not None and work.slots for work in works):
            return None
        return cls(q, k, v, shape, scale)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, lists: Lists, transposed: Lists | None
    ) -> Tensor | None:
        """Run attention; None if the operands need the ordinary way.

        Args:
            q, k, v: operands of the layout.
            lists: of the pattern.
            transposed: of the transposed pattern, if k or v need gradients.
        """
        if torch_internals.current_device() != self._index or not self._fits(q, k, v):
            return None
        out: Tensor = _PlannedAttention.apply(q, k, v, self, lists, transposed)
        return out

    def _fits(self, *tensors: Tensor) -> bool:
        """Return True for aligned tensors on the device of the plan."""
        for tensor in tensors:
            if tensor.data_ptr() % ALIGNMENT or tensor.get_device() != self._index:
                return False
        return True

    def forward(self, q: Tensor, k: Tensor, v: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        """Return out and the log-sum-exp of the scores."""
        launcher = self._forward
        if not launcher:
            return self._record_forward(q, k, v, lists)
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        addresses = (q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), lse.data_ptr())
        launcher(torch_internals.raw_stream(self._index), *addresses)
        return out, lse

    def backward(
        self,
        gradient: Tensor,
        saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        lists: Lists,
        transposed: Lists | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the gradients of q, k and v.

        Args:
            gradient: of out.
            saved: q, k, v, out and lse of the forward pass.
            lists, transposed: those of the forward pass.
        """
        q, k, v, out, lse = saved
        launcher = self._backward.get(gradient.stride())
        # Hooks for saved tensors may have returned copies of another layout.
        same = (q.stride(), k.stride(), v.stride(), out.stride()) == self._strides
        ready = launcher and same and torch_internals.current_device() == self._index
        if not ready or not launcher or not self._fits(gradient, *saved):
            return self._record_backward(gradient, saved, lists, transposed, known=not same)
        of_q, delta = torch.empty_like(q), torch.empty_like(lse)
        of_k = of_v = None
        results = [of_q]
        if transposed is not None:
            of_k, of_v = torch.empty_like(k), torch.empty_like(v)
            results += [of_k, of_v]
        addresses = [one.data_ptr() for one in (gradient, *saved, *results, delta)]
        launcher(torch_internals.raw_stream(self._index), *addresses)
        return of_q, of_k, of_v

    def _record_forward(self, q: Tensor, k: Tensor, v: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        shape, options = self._shape, self._options
        with record() as found:
            out, lse = attention.forward(q, k, v, lists, shape, options)
        if self._forward is None:
            operands = (q, k, v, out, lse)
            if found.launches:
                launcher = self._launcher(found.launches, operands, [lists])
            else:
                launch = hopper.known(lists, shape, q.dtype)
                self._kept.append(launch)
                launcher = launch and launch.launcher(q, k, v, options.scale, out, lse)
            self._forward = launcher or False
        return out, lse

    def _record_backward(
        self,
        gradient: Tensor,
        saved: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
        lists: Lists,
        transposed: Lists | None,
        *,
        known: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Run the ordinary backward pass; make a plan of it unless one is known to be of no use."""
        key = gradient.stride()
        with record() as found, torch.cuda.device_of(gradient):
            made = attention.backward(gradient, None, *saved, lists, transposed, self._shape, self._options)
        if not known and key not in self._backward:
            results = [one for one in made if one is not None]
            both = [lists] if transposed is None else [lists, transposed]
            operands = (gradient, *saved, *results, *found.scratch)
            self._backward[key] = self._launcher(found.launches, operands, both) or False
        return made

    def _launcher(
        self, launches: Sequence[RecordedLaunch], operands: Sequence[Tensor], lists: Sequence[Lists]
    ) -> Launcher | None:
        """Return a launcher that takes the addresses of the operands; None if that is not possible."""
        if not plans_enabled() or any(one.data_ptr() % ALIGNMENT for one in operands):
            return None
        fixed = [tensor for one in lists for tensor in one.tensors]
        bound = bind_by_identity(launches, operands, fixed)
        steps = None if bound is None else make_steps(bound)
        if steps is None:
            return None
        self._kept.append(bound)
        return make_launcher(steps)


class _PlannedAttention(torch.autograd.Function):
    """Attention whose passes a :class:`TrainingPlan` launches."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: TrainingPlan, lists: Lists, transposed: Lists | None
    ) -> Tensor:
        out, lse = plan.forward(q, k, v, lists)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.plan, ctx.lists, ctx.transposed = plan, lists, transposed
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found = ctx.plan.backward(gradient, ctx.saved_tensors, ctx.lists, ctx.transposed)
        return *found, None, None, None
