"""Compile the kernels of near cells for a GPU that need not be there; prints how often each was, as JSON.

Run on its own by test_near_triton.py, because Triton decides at import whether it compiles kernels.
Launches are caught and compiled for what they were given: sizes as they occur, and integers of 1, which
Triton takes as constants.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from sparse_core.kernels import op

# Nothing is launched here.
op.interpreted = lambda: True

from near_scenes import BothNecks  # noqa: E402

from sparse_core.conv.grid import FixedGrid, neighbour_table, word_count  # noqa: E402

HOPPER = GPUTarget("cuda", 90, 32)
TYPES = {torch.int32: "*i32", torch.int64: "*i64", torch.float32: "*fp32", torch.float16: "*fp16"}
compiled: dict[str, int] = {}
known: set[str] = set()


def described(value: Any, *, specialised: bool = True) -> Any:
    """The type of an argument, as Triton's launcher would name it."""
    if isinstance(value, tuple):
        return tuple(described(part) for part in value)
    if isinstance(value, Tensor):
        return TYPES[value.dtype]
    return "constexpr" if value is None or (value == 1 and specialised) else "i32"


def aligned(value: Any) -> bool:
    """Whether Triton's launcher would say that 16 divides it."""
    return isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0)


def compile_only(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
    """In place of a launch."""
    given = dict(zip(kernel.arg_names, arguments, strict=False)) | options
    signature, constants, attributes = {}, {}, {}
    for position, name in enumerate(kernel.arg_names):
        parameter = kernel.params[position]
        value, constant = given.get(name, parameter.default), parameter.is_constexpr
        specialised = not kernel.params[position].do_not_specialize
        signature[name] = "constexpr" if constant else described(value, specialised=specialised)
        if signature[name] == "constexpr":
            constants[(position,)] = value
            continue
        parts = (
            {(position, place): part for place, part in enumerate(value)}
            if isinstance(value, tuple)
            else {(position,): value}
        )
        for place, part in parts.items():
            if isinstance(value, tuple) and described(part) == "constexpr":
                constants[place] = part
            elif specialised and aligned(part):
                attributes[place] = [["tt.divisibility", 16]]
    launch = {name: value for name, value in options.items() if name not in kernel.arg_names}
    key = repr((kernel.__name__, signature, constants, attributes, launch))
    if key in known:
        return
    known.add(key)
    made = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    built = triton.compile(made, target=HOPPER, options=launch)
    compiled[kernel.__name__] = compiled.get(kernel.__name__, 0) + (len(built.asm["cubin"]) > 0)


def grid_of(shape: tuple[int, int], frames: int, capacity: int) -> FixedGrid:
    """A grid without content."""

    def zeros(*size: int) -> Tensor:
        return torch.zeros(*size, dtype=torch.int32)

    words = zeros(word_count(shape, frames), 2)
    return FixedGrid(shape, frames, capacity, words, zeros(capacity), zeros(1), zeros(1))


def main() -> None:
    """A neck as the detector has it at long range, and one of odd sizes and a room of one cell."""
    JITFunction.run = compile_only
    for shape, frames, room, blocks, dtype in (
        ((248, 216), 1, 8192, 2, torch.float16),
        ((7, 9), 2, 1, 1, torch.float32),
    ):
        both = BothNecks(
            shape, frames, [room] * (2 * blocks + 2), dtype=dtype, impl="triton", device=torch.device("cpu"),
            blocks=blocks, widths=(128, 128, 96) if room > 1 else (12, 16, 20),
        )  # fmt: skip
        level, first = grid_of(both.finer, frames, room), grid_of(shape, frames, room)
        plan = both.near.plan(first, level)
        table = neighbour_table(level, first, (3, 3), (2, 2), (1, 1), impl="triton")
        features = torch.zeros(room, both.weights.down.weight.shape[1], dtype=dtype)
        both.near.map(features, table, level, plan)
        both.near.heat()
    print(json.dumps(compiled))


if __name__ == "__main__":
    main()
