"""Launch plans of attention: one launch of the CUDA kernel for Hopper.

After a call that was one launch, the pattern keeps a plan for operands of the same layout
(:mod:`sparse_core.kernels.launch_plan`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sparse_core.attention.gpu import hopper
from sparse_core.attention.gpu.plan import Lists
from sparse_core.attention.operands import AttentionShape, default_scale
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.kernels.launch_plan import LaunchPlan, plans_enabled
from sparse_core.kernels.torch_internals import may_need_autograd


def attend_by_plan(
    q: object, k: object, v: object, pattern: object, scale: float | None, ordinary: Callable[[], Tensor]
) -> Tensor:
    """Run attention without options by a launch plan if its guard holds, else by ``ordinary``.

    Args:
        q, k, v, pattern, scale: as the caller passed them, unchecked.
    """
    if type(q) is not Tensor or type(k) is not Tensor or type(v) is not Tensor:
        return ordinary()
    lists = pattern.plans.get("blocks") if isinstance(pattern, BlockPattern) else None
    if not isinstance(lists, Lists):
        return ordinary()
    key = (
        *(q.shape, q.stride(), q.dtype, k.shape, k.stride(), k.dtype, v.shape, v.stride(), v.dtype),
        scale,
    )
    known = lists.launches.get(key)
    if isinstance(known, LaunchPlan):
        out = known((q, k, v))
        return ordinary() if out is None else out
    out = ordinary()
    if known is None and not may_need_autograd(q, k, v):
        plan = _make_plan(q, k, v, lists, scale) if plans_enabled() else None
        lists.keep_launch(key, plan or False)
    return out


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
