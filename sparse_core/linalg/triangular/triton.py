"""Level-scheduled solve in Triton.

A wide level is one launch with parallel rows. A run of narrow levels is one launch of a single program with a
barrier between levels, because a launch costs more than such a level. The plan fixes the launches, so a solve
can be captured in a CUDA graph. Runs on CUDA, and on a CPU with
``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.linalg.triangular.common import TriangularPlan, TriangularValues

if TYPE_CHECKING:
    from sparse_core.formats import CSR
    from sparse_core.linalg.triangular.common import System

#: Most rows of a level that one program solves in about the time of a launch.
_NARROW_ROWS = 512
#: Elements of a tile of rows x entries x right-hand sides.
_TILE, _NARROW_TILE = 512, 2048
_MOST_COLUMNS = 16


@triton.jit
def _solve_tile(  # type: ignore[no-untyped-def]
    first,
    last,
    order,
    entry_ptr,
    column,
    entry,
    inverse_diagonal,
    b,
    x,
    width,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Solve the equations ``order[first:min(last, first + ROWS)]``, whose unknowns are known."""
    place = first + tl.arange(0, ROWS)
    inside = place < last
    row = tl.load(order + place, mask=inside, other=0)
    begin = tl.load(entry_ptr + place, mask=inside, other=0)
    end = tl.load(entry_ptr + place + 1, mask=inside, other=0)
    side = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    wanted = inside[:, None] & (side < width)[None, :]
    target = row[:, None] * width + side[None, :]
    total = tl.load(b + target, mask=wanted, other=0.0)
    longest = tl.max(end - begin, axis=0)
    done = 0
    # A while loop is never pipelined: no load of x may move ahead of an earlier level's store.
    while done < longest:
        k = begin[:, None] + done + tl.arange(0, ENTRIES)[None, :]
        taken = k < end[:, None]
        unknown = tl.load(column + k, mask=taken, other=0).to(tl.int64)
        value = tl.load(entry + k, mask=taken, other=0.0)
        known = tl.load(
            x + unknown[:, :, None] * width + side[None, None, :],
            mask=taken[:, :, None] & (side < width)[None, None, :],
            other=0.0,
        )
        total -= tl.sum(value[:, :, None] * known, axis=1)
        done += ENTRIES
    if not UNIT:
        total *= tl.load(inverse_diagonal + row, mask=inside, other=0.0)[:, None]
    tl.store(x + target, total, mask=wanted)


@triton.jit(do_not_specialize=["first", "last"])
def _wide_kernel(  # type: ignore[no-untyped-def]
    first,
    last,
    order,
    entry_ptr,
    column,
    entry,
    inverse_diagonal,
    b,
    x,
    width,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One level: ``ROWS`` equations a program."""
    start = first + tl.program_id(0).to(tl.int64) * ROWS
    _solve_tile(
        start,
        last,
        order,
        entry_ptr,
        column,
        entry,
        inverse_diagonal,
        b,
        x,
        width,
        UNIT,
        ROWS,
        ENTRIES,
        COLUMNS,
    )


@triton.jit(do_not_specialize=["levels"])
def _narrow_kernel(  # type: ignore[no-untyped-def]
    bounds,
    levels,
    order,
    entry_ptr,
    column,
    entry,
    inverse_diagonal,
    b,
    x,
    width,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A run of levels: one program solves them one after the other."""
    level = 0
    while level < levels:
        first = tl.load(bounds + level)
        last = tl.load(bounds + level + 1)
        while first < last:
            _solve_tile(
                first,
                last,
                order,
                entry_ptr,
                column,
                entry,
                inverse_diagonal,
                b,
                x,
                width,
                UNIT,
                ROWS,
                ENTRIES,
                COLUMNS,
            )
            first += ROWS
        # Orders this level's stores before the next level's loads, by all threads of the program.
        tl.debug_barrier()
        level += 1


@dataclass(frozen=True)
class LevelLaunch:
    """One launch: levels ``first`` to ``last``, and the entries of a row that are read at once."""

    first: int
    last: int
    entries: int
    narrow: bool


@dataclass(frozen=True, eq=False)
class LaunchSchedule:
    """The launches of a plan, and the bounds of its levels on the device."""

    launches: tuple[LevelLaunch, ...]
    bounds: Tensor


def schedule(matrix: CSR, system: System, plan: TriangularPlan) -> LaunchSchedule:
    """Return the launches of ``plan``, cached per structure."""

    def build() -> LaunchSchedule:
        bounds = torch.tensor(plan.levels.bounds, device=matrix.device)
        return LaunchSchedule(_plan_launches(plan), bounds)

    return matrix.cached(system.key("launches"), build)


def _plan_launches(plan: TriangularPlan) -> tuple[LevelLaunch, ...]:
    bounds, entries = plan.levels.bounds, plan.entry_bounds
    launches: list[LevelLaunch] = []
    for level in range(len(plan.levels)):
        rows = bounds[level + 1] - bounds[level]
        mean = (entries[level + 1] - entries[level]) // rows
        at_once = min(1024, 1 << max(0, mean - 1).bit_length())
        narrow = rows <= _NARROW_ROWS and at_once <= 32
        previous = launches[-1] if launches else None
        if narrow and previous is not None and previous.narrow:
            launches[-1] = LevelLaunch(previous.first, level + 1, max(previous.entries, at_once), True)
        else:
            launches.append(LevelLaunch(level, level + 1, at_once, narrow))
    return tuple(launches)


def solve(plan: TriangularPlan, launches: LaunchSchedule, values: TriangularValues, b: Tensor) -> Tensor:
    """Return the solution (M, N) of the planned system for ``b`` (M, N), float32 or float64 as the values."""
    b = b.contiguous()
    x = torch.empty_like(b)
    columns = min(_MOST_COLUMNS, triton.next_power_of_2(b.shape[1]))
    unit = values.inverse_diagonal is None
    arrays = (
        plan.levels.order,
        plan.entry_ptr,
        plan.column,
        values.entry,
        # Not read for a unit diagonal, but the kernel needs a pointer.
        b if values.inverse_diagonal is None else values.inverse_diagonal,
        b,
        x,
        b.shape[1],
    )
    sides = triton.cdiv(b.shape[1], columns)
    for launch in launches.launches:
        alone = launch.narrow and launch.last - launch.first > 1
        rows = max(1, (_NARROW_TILE if alone else _TILE) // (launch.entries * columns))
        sizes = {"UNIT": unit, "ROWS": rows, "ENTRIES": launch.entries, "COLUMNS": columns}
        if alone:
            bounds = launches.bounds[launch.first :]
            count = launch.last - launch.first
            _narrow_kernel[(1, sides)](bounds, count, *arrays, **sizes, num_warps=8, num_stages=1)
        else:
            first, last = plan.levels.bounds[launch.first], plan.levels.bounds[launch.last]
            _wide_kernel[(triton.cdiv(last - first, rows), sides)](
                first, last, *arrays, **sizes, num_warps=4, num_stages=1
            )
    return x
