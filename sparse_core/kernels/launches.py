"""How Triton kernels are launched: recorded for launch plans, and begun before the launch before them ends.

A launch plan (:mod:`sparse_core.kernels.launch_plan`) needs the kernels that a call launches, in order, with
their arguments. So the kernels of products go through :func:`launch`, which runs a kernel and, within
:func:`record`, keeps what it was given. Memory that one launch of a product writes and the next one reads
comes from :func:`scratch`, because a plan must know that nobody else uses it.

The kernels of all other ops may be launched either way: nothing records them. Tests count launches by putting
another function in the place of :func:`launch`.

With programmatic dependent launch, from Hopper on, a kernel is set up, and its code fetched, while its
predecessor still runs. Before it touches what another launch may write or still reads, it waits until all
memory that was written before is visible; until then it may read what no launch writes, or what was complete
when its predecessor began. It may let its own successor begin early in turn. In a chain of kernels of a few
microseconds each that saves some 0.3 us a kernel.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from threading import local
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def wait_for_launch(DEPENDENT: tl.constexpr):
    """Wait for all that was launched before: every program of every kernel that is launched so must."""
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()


@triton.jit
def begin_next(DEPENDENT: tl.constexpr):
    """Let the next kernel be set up; not too early, because what waits takes the place of what runs."""
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()


@dataclass(frozen=True, eq=False)
class RecordedLaunch:
    """A kernel that was launched.

    Attributes:
        kernel: Triton's function.
        compiled: what it was compiled to; None in the interpreter.
        grid: programs, of up to three dimensions.
        arguments: in the order in which they were given.
        options: arguments by name, and Triton's options.
    """

    kernel: Any
    compiled: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def without(self, places: tuple[int, ...]) -> RecordedLaunch:
        """Return the same with None in these places, so that tensors that change are not kept."""
        rest = tuple(None if at in places else one for at, one in enumerate(self.arguments))
        return replace(self, arguments=rest)


@dataclass(frozen=True, eq=False)
class Record:
    """Launches of a block of code.

    Attributes:
        launches: in their order.
        scratch: memory of :func:`scratch` that they used.
    """

    launches: list[RecordedLaunch] = field(default_factory=list)
    scratch: list[Tensor] = field(default_factory=list)


class _Recorder(local):
    record: Record | None = None


_recorder = _Recorder()


def launch(kernel: Any, programs: int | tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel; tests count launches, or compile instead, by putting another function in its place."""
    grid = programs if isinstance(programs, tuple) else (programs,)
    compiled = kernel[grid](*arguments, **options)
    if _recorder.record is not None:
        _recorder.record.launches.append(RecordedLaunch(kernel, compiled, grid, arguments, options))


def scratch(shape: int | tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return memory that one launch of a product writes and a later one reads, and nothing else."""
    made = torch.empty(shape, dtype=dtype, device=device)
    if _recorder.record is not None:
        _recorder.record.scratch.append(made)
    return made


@contextmanager
def record() -> Iterator[Record]:
    """Record the kernels that this thread launches by :func:`launch` within the block."""
    before, _recorder.record = _recorder.record, Record()
    try:
        yield _recorder.record
    finally:
        _recorder.record = before


def dependent(tensor: Tensor) -> dict[str, bool]:
    """Arguments of a launch: ``DEPENDENT`` for the kernel, and what Triton needs to know.

    Args:
        tensor: one that the kernel works on, for its device.
    """
    if tensor.is_cuda and _runs_on(tensor.device):
        return {"DEPENDENT": True, "launch_pdl": True}
    return {"DEPENDENT": False}


@cache
def _runs_on(device: torch.device) -> bool:
    if torch.cuda.get_device_capability(device)[0] < 9 or not hasattr(tl.extra.cuda, "gdc_wait"):
        return False
    from triton.backends.nvidia.compiler import CUDAOptions

    return any(option.name == "launch_pdl" for option in fields(CUDAOptions))
