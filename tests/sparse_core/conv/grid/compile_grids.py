"""Compile the kernels of grids for a GPU that need not be there; prints how often each was, as JSON.

Run on its own by test_grid_triton.py, because Triton decides at import whether it compiles kernels. Launches
are caught and compiled for what they were given: sizes as they occur, and integers of 1, which Triton takes
as constants.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sparse_core.conv.grid import (
    DenseGrid,
    FixedGrid,
    FixedHash,
    GridLevel,
    TableRequest,
    hash_pyramid,
    hash_triton,
    neighbour_tables,
    pyramid,
    pyramid_triton,
    tables_triton,
    word_count,
)
from sparse_core.conv.grid import triton as kernels
from sparse_core.kernels import op

HOPPER = GPUTarget("cuda", 90, 32)
compiled: dict[str, int] = {}


def described(value: Any) -> Any:
    """The type of an argument, as Triton's launcher would name it."""
    if isinstance(value, tuple):
        return tuple(described(part) for part in value)
    if isinstance(value, Tensor):
        return {torch.int32: "*i32", torch.int64: "*i64"}[value.dtype]
    return "constexpr" if value == 1 else "i32"


def compile_only(kernel: Any, programs: object, *arguments: Any, **options: Any) -> None:
    """In place of a launch."""
    given = dict(zip(kernel.arg_names, arguments, strict=False)) | options
    signature, constants = {}, {}
    for position, name in enumerate(kernel.arg_names):
        value = given[name]
        constant = kernel.params[position].is_constexpr
        signature[name] = "constexpr" if constant else described(value)
        if constant or signature[name] == "constexpr":
            constants[(position,)] = value
        elif isinstance(value, tuple):
            ones = [place for place, part in enumerate(value) if described(part) == "constexpr"]
            constants |= {(position, place): 1 for place in ones}
    source = ASTSource(kernel, signature, constants)
    made = triton.compile(source, target=HOPPER, options={"num_warps": options.get("num_warps", 4)})
    compiled[kernel.__name__] = compiled.get(kernel.__name__, 0) + (len(made.asm["cubin"]) > 0)


def zeros(*size: int, dtype: torch.dtype = torch.int32) -> Tensor:
    """Stand-in of a tensor that has only a type."""
    return torch.zeros(*size, dtype=dtype)


def grid_of(shape: tuple[int, ...], capacity: int) -> FixedGrid:
    """A bounded grid without content."""
    words = zeros(word_count(shape, 1), 2)
    return FixedGrid(shape, 1, capacity, words, zeros(capacity), zeros(1), zeros(1))


def hash_of(shape: tuple[int, ...], capacity: int) -> FixedHash:
    """A hashed grid without content."""
    keys, slots = zeros(capacity, dtype=torch.int64), zeros(64, dtype=torch.int64)
    return FixedHash(shape, 1, capacity, keys, slots, zeros(64), zeros(1), zeros(1))


def main() -> None:
    """Every kernel as a detector uses it, and on a grid of a single cell."""
    for module in (kernels, hash_triton, pyramid_triton, tables_triton):
        module._launch = compile_only
    op.interpreted = lambda: True
    halved, same = ((3, 3), (2, 2), (1, 1)), ((3, 3), (1, 1), (1, 1))
    for shape, room in (((496, 432), 16384), ((1, 1), 1)):
        levels = [GridLevel(), GridLevel(dilating=False), GridLevel((2, 2), (1, 1), (1, 1))]
        pyramid(zeros(word_count(shape, 1)), shape, 1, [room] * 4, levels, impl="triton")
        kernels.bits_of_cells(zeros(room), 64)
        fine, coarse = grid_of(shape, room), grid_of(tuple((size + 1) // 2 for size in shape), room)
        hashed = hash_of(shape, room)
        hash_pyramid(hashed, [room], [GridLevel()], impl="triton")
        requests = [
            TableRequest(fine, fine, *same),
            TableRequest(fine, coarse, *halved, True),
            TableRequest(hashed, "all", *halved),
            TableRequest(DenseGrid(shape, 1), hashed, *same),
        ]
        neighbour_tables(requests, impl="triton")
    deep = (40, 200, 176)
    levels = [GridLevel((3,) * 3, (2,) * 3, (1,) * 3)] * 3
    pyramid(zeros(word_count(deep, 1)), deep, 1, [20000] * 4, levels, impl="triton")
    fine = grid_of(deep, 20000)
    neighbour_tables([TableRequest(fine, fine, (3,) * 3, (1,) * 3, (1,) * 3)], impl="triton")
    print(json.dumps(compiled))


if __name__ == "__main__":
    main()
