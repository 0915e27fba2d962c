"""Attention that was done before with operands of these shapes: nothing is checked or chosen again.

Checks, the choice of an implementation and what leads to a launch take twice as long as torch's dense call.
What the CUDA kernel of Hopper took before, with the same pattern, it is given straight: the same kernel on
the same work, so the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sparse_core.attention.gpu import hopper
from sparse_core.attention.gpu.plan import Lists
from sparse_core.attention.operands import AttentionShape, default_scale
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.gradients import perhaps_followed

#: Bulk copies read from addresses that this divides.
_ALIGNED = 16


class Again:
    """Attention by one launch.

    Args:
        launch: of the kernel, with everything fixed but its tensors; no rows are cut.
        q, k, v: of the attention that was done.
        scale: of the scores.
    """

    def __init__(self, launch: hopper.Launch, q: Tensor, k: Tensor, v: Tensor, scale: float) -> None:
        self._launch, self._scale = launch, scale
        self._index, self._device, self._dtype = q.get_device(), q.device, q.dtype
        out = torch.empty_like(q)
        self._shape, self._strides = out.shape, out.stride()
        self._run = launch.repeated(q, k, v, scale, out)
        # The kernel writes pieces of rows that are cut alone.
        self._nothing = torch.empty(0, dtype=torch.float32, device=q.device)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
        """The output; None where it has to go the whole way."""
        at_q, at_k, at_v = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if (
            perhaps_followed(q, k, v)
            or (at_q | at_k | at_v) % _ALIGNED
            or torch._C._cuda_getDevice() != self._index
        ):
            return None
        out = torch.empty_strided(self._shape, self._strides, dtype=self._dtype, device=self._device)
        if self._run is not None:
            self._run(torch._C._cuda_getCurrentRawStream(self._index), at_q, at_k, at_v, out.data_ptr())
            return out
        lse = torch.empty(self._shape[:3], dtype=torch.float32, device=self._device)
        self._launch(q, k, v, self._scale, out, lse, self._nothing, self._nothing)
        return out


def again(
    q: object, k: object, v: object, pattern: object, scale: float | None, whole: Callable[[], Tensor]
) -> Tensor:
    """Attention without options, by what was done before where that fits, else by ``whole``.

    Args:
        q, k, v, pattern, scale: as the caller got them, unchecked.
        whole: the whole way; raises where something does not fit.
    """
    if type(q) is not Tensor or type(k) is not Tensor or type(v) is not Tensor or not q.is_cuda:
        return whole()
    lists = pattern.plans.get("blocks") if isinstance(pattern, BlockPattern) else None
    if not isinstance(lists, Lists) or k.get_device() != q.get_device() or v.get_device() != q.get_device():
        return whole()
    key = (
        *(q.shape, q.stride(), q.dtype, k.shape, k.stride(), k.dtype, v.shape, v.stride(), v.dtype),
        scale,
    )
    found = lists.launches.get(key)
    if isinstance(found, Again):
        out = found(q, k, v)
        return whole() if out is None else out
    out = whole()
    if found is None and not perhaps_followed(q, k, v):
        lists.keep_launch(key, _noted(q, k, v, lists, default_scale(scale, q.shape[-1])) or False)
    return out


def _noted(q: Tensor, k: Tensor, v: Tensor, lists: Lists, scale: float) -> Again | None:
    """What to do again after attention was done; None where it was not one launch of the kernel."""
    if lists.pattern_heads not in (1, q.shape[1]) or not hopper.supports(q, k, v, lists, scale):
        return None
    shape = AttentionShape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3])
    launch = hopper.known(lists, shape, q.dtype)
    work = lists.work_list(shape.batch, shape.heads)
    if launch is None or (work is not None and work.slots):
        return None
    return Again(launch, q, k, v, scale)
