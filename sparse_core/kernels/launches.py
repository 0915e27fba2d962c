"""How Triton kernels are launched: noted, repeated without Python's share, and begun before the last ended.

What Triton does for a launch (binding arguments, looking the kernel up) takes longer than a small kernel
runs. Who calls with tensors of the same shapes again can :func:`note` a launch and repeat it
(:class:`Repeated`).

With programmatic dependent launch, from Hopper on, a kernel is set up, and its code fetched, while its
predecessor still runs. Before it touches what another launch may write or still reads, it waits until all
memory that was written before is visible; until then it may read what no launch writes, or what was complete
when its predecessor began. It may let its own successor begin early in turn. In a chain of kernels of a few
microseconds each that saves some 0.3 us a kernel.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from threading import Lock, local
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.kernels import launch_plan as relaunch
from sparse_core.kernels.launch_plan import Place, Placed


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
class Launch:
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

    def without(self, places: tuple[int, ...]) -> Launch:
        """The same with None in these places, which holds no tensor that changes."""
        kept = tuple(None if at in places else one for at, one in enumerate(self.arguments))
        return replace(self, arguments=kept)


@dataclass(frozen=True, eq=False)
class Notes:
    """What a block launched.

    Attributes:
        launches: in their order.
        scratch: memory of :func:`scratch` that they used.
    """

    launches: list[Launch] = field(default_factory=list)
    scratch: list[Tensor] = field(default_factory=list)


class _Notes(local):
    taken: Notes | None = None


_notes = _Notes()


def launch(kernel: Any, programs: int | tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel; tests count launches, or compile instead, by putting another function in its place."""
    grid = programs if isinstance(programs, tuple) else (programs,)
    compiled = kernel[grid](*arguments, **options)
    if _notes.taken is not None:
        _notes.taken.launches.append(Launch(kernel, compiled, grid, arguments, options))


def scratch(shape: int | tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory that one launch of a product writes and a later one reads, and nothing else."""
    made = torch.empty(shape, dtype=dtype, device=device)
    if _notes.taken is not None:
        _notes.taken.scratch.append(made)
    return made


@contextmanager
def note() -> Iterator[Notes]:
    """The kernels that this thread launches by :func:`launch` within the block."""
    before, _notes.taken = _notes.taken, Notes()
    try:
        yield _notes.taken
    finally:
        _notes.taken = before


class Noted(NamedTuple):
    """A launch without the tensors that change.

    Attributes:
        launch: the rest of it.
        places: among its arguments, of those tensors.
        moving: which one is in each place, and how many bytes behind its begin.
    """

    launch: Launch
    places: tuple[int, ...]
    moving: tuple[tuple[int, int], ...]


class Repeated:
    """Launches, again and again, with other tensors in some places of their arguments.

    The tensors must be of the types, and as aligned, as when the kernels were compiled; all other arguments
    stay as they were, and alive. Hooks of Triton (its own profiler) do not see such launches.

    Args:
        noted: once, on a GPU.
    """

    def __init__(self, noted: Sequence[Noted]) -> None:
        self._launches = [_Bound(one) for one in noted]
        steps = [one.step() for one in self._launches]
        whole = [one for one in steps if one is not None]
        #: Past Triton, where what it compiled to can be launched so.
        self._relaunch = relaunch.launcher(whole) if len(whole) == len(steps) else None
        self._lock = Lock()

    def __call__(self, stream: int, *addresses: int) -> None:
        """Launch on a stream of the current device, with these addresses of the tensors that change.

        No other thread's launches come between.
        """
        if self._relaunch is not None:
            self._relaunch(stream, *addresses)
            return
        with self._lock:
            for one in self._launches:
                one.run(stream, addresses)


class _Bound:
    """A noted launch with addresses for tensors, as Triton takes it."""

    def __init__(self, noted: Noted) -> None:
        launched, self._places, self._moving = noted
        signature = launched.kernel.signature
        named = {name: one for name, one in launched.options.items() if name in signature.parameters}
        bound = signature.bind(*launched.arguments, **named)
        bound.apply_defaults()
        # Addresses are all that a launch needs.
        self._held = launched.arguments
        self._arguments = [
            one.data_ptr() if isinstance(one, Tensor) else one for one in bound.arguments.values()
        ]
        compiled = launched.compiled
        self._compiled, self._run = compiled, compiled.run
        self._settings = (compiled.function, compiled.packed_metadata, None, None, None)
        width, height, depth = (*launched.grid, 1, 1)[:3]
        self._grid = (width, height, depth)

    def step(self) -> Placed | None:
        described = described_launch(self._compiled, self._grid, self._arguments)
        if described is None:
            return None
        one, where = described
        places = zip(self._places, self._moving, strict=True)
        return Placed(one, tuple(Place(where[place], 0, which, more) for place, (which, more) in places))

    def run(self, stream: int, addresses: Sequence[int]) -> None:
        arguments = self._arguments.copy()
        for place, (which, more) in zip(self._places, self._moving, strict=True):
            arguments[place] = addresses[which] + more
        self._run(*self._grid, stream, *self._settings, *arguments)


_PACKED = {"i32": "<i", "u32": "<I", "i64": "<q", "u64": "<Q", "fp32": "<f", "fp64": "<d"}


def described_launch(
    compiled: Any, grid: tuple[int, int, int], arguments: list[Any]
) -> tuple[relaunch.Launch, dict[int, int]] | None:
    """A launch as the driver gets it, and which of its arguments each of the function's became.

    Args:
        compiled: what Triton compiled the function to.
        grid: programs.
        arguments: of the function, all of them in order, addresses for tensors.

    Returns:
        None where Triton's launcher does more than to pass them on.
    """
    types, settings = list(compiled.src.signature.values()), compiled.metadata
    more = ("launch_cooperative_grid", "global_scratch_size", "profile_scratch_size", "tensordesc_meta")
    if len(types) != len(arguments) or any(getattr(settings, name, None) for name in more):
        return None
    if getattr(settings, "num_ctas", 1) != 1:
        return None
    sizes = relaunch.argument_sizes(compiled.function)
    packed: list[bytes] = []
    where: dict[int, int] = {}
    for place, (kind, value) in enumerate(zip(types, arguments, strict=True)):
        if kind == "constexpr":
            continue
        form = "<Q" if isinstance(kind, str) and kind.startswith("*") else _PACKED.get(kind)
        if form is None:
            return None
        where[place] = len(packed)
        packed.append(struct.pack(form, 0 if value is None else value))
    # Behind them are addresses of scratch memory, which these kernels have none of.
    packed += [bytes(size) for size in sizes[len(packed) :]]
    if [len(one) for one in packed] != sizes:
        return None
    attributes = relaunch.PROGRAMMATIC if getattr(settings, "launch_pdl", False) else b""
    block = (32 * settings.num_warps, 1, 1)
    return relaunch.Launch(compiled.function, grid, block, settings.shared, attributes, tuple(packed)), where


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
