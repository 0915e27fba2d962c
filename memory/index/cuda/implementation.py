"""Which implementation runs."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from sparse_core.dispatch import Impl, check_triton_runs, triton_or_reference


def chosen(impl: Impl, tensor: Tensor) -> Literal["reference", "triton"]:
    """The implementation for this tensor, see :func:`sparse_core.dispatch.triton_or_reference`."""
    return triton_or_reference(impl, tensor, operation="the index", check_runs=_check_runs)


def _check_runs(tensor: Tensor) -> None:
    from memory.index.cuda import codes_triton

    check_triton_runs(tensor, codes_triton.levels_kernel)
