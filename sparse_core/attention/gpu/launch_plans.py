"""Choice of a launch plan for a call of attention.

After a call that was one launch of the CUDA kernel for Hopper, the pattern keeps a plan for operands of the
same layout (:mod:`sparse_core.kernels.launch_plan`). Calls with gradients get a plan at their second call
(:mod:`.training_plans`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sparse_core.attention.gpu import hopper
from sparse_core.attention.gpu.plan import Lists, lists_of
from sparse_core.attention.operands import AttentionShape, default_scale
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.kernels import torch_internals
from sparse_core.kernels.launch_plan import LaunchPlan, plans_enabled
from sparse_core.kernels.torch_internals import may_need_autograd

#: Entry of a pattern after the first call with gradients.
_SEEN = "seen"


def attend_by_plan(
    q: object, k: object, v: object, pattern: object, scale: float | None, ordinary: Callable[[], Tensor]
) -> Tensor:
    """Run attention without options by a launch plan if its guard holds, else by ``ordinary``.

    Args:
        q, k, v, pattern, scale: as the caller passed them, unchecked.
    """
    if type(q) is not Tensor or type(k) is not Tensor or type(v) is not Tensor:
        return ordinary()
    if not isinstance(pattern, BlockPattern):
        return ordinary()
    lists = pattern.plans.get("blocks")
    if not isinstance(lists, Lists):
        return ordinary()
    key = (
        *(q.shape, q.stride(), q.dtype, k.shape, k.stride(), k.dtype, v.shape, v.stride(), v.dtype),
        scale,
    )
    known = lists.launches.get(key)
    if isinstance(known, LaunchPlan):
        made = known((q, k, v))
        if made is not None:
            return made
    if may_need_autograd(q, k, v):
        return _attend_in_training(q, k, v, pattern, lists, key, ordinary)
    out = ordinary()
    if known is None:
        plan = _make_plan(q, k, v, lists, scale) if plans_enabled() else None
        lists.keep_launch(key, plan or False)
    return out


def _attend_in_training(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: BlockPattern,
    lists: Lists,
    layout: tuple[Any, ...],
    ordinary: Callable[[], Tensor],
) -> Tensor:
    """Run attention that autograd follows by a plan, if there is one for the layout of the operands."""
    if torch_internals.transforms_active() or torch_internals.forward_mode_active():
        return ordinary()
    # Triton's kernels import Triton, which plans without gradients do not need.
    from sparse_core.attention.gpu.training_plans import TrainingPlan

    of_keys = k.requires_grad or v.requires_grad
    # Products of float32 depend on this global setting of torch.
    setting = q.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    key = (*layout, of_keys, setting)
    known = lists.launches.get(key)
    if not isinstance(known, TrainingPlan):
        out = ordinary()
        if known is None:
            # Patterns that are used once, as selections are, need no plan.
            lists.keep_launch(key, _SEEN if plans_enabled() else False)
        elif known is _SEEN:
            transposed = lists_of(pattern.transposed()) if of_keys else None
            scale = default_scale(layout[-1], q.shape[-1])
            lists.keep_launch(key, TrainingPlan.of(q, k, v, lists, transposed, scale) or False)
        return out
    made = known(q, k, v, lists, lists_of(pattern.transposed()) if of_keys else None)
    return ordinary() if made is None else made


def _make_plan(q: Tensor, k: Tensor, v: Tensor, lists: Lists, scale: float | None) -> LaunchPlan | None:
    """Make a plan after a call; None if that call was not one launch of the kernel."""
    number = default_scale(scale, q.shape[-1])
    if lists.pattern_heads not in (1, q.shape[1]) or not hopper.supports(q, k, v, lists, number):
        return None
    shape = AttentionShape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3])
    launch = hopper.known(lists, shape, q.dtype)
    work = lists.work_list(shape.batch, shape.heads)
    if launch is None or (work is not None and work.slots):
        return None
    out = torch.empty_like(q)
    launcher = launch.launcher(q, k, v, number, out)
    return None if launcher is None else LaunchPlan(launcher, out, kept=launch)
