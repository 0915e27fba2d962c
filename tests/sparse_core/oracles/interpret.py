"""Run scripts with Triton's interpreter: ``python interpret.py`` with TRITON_INTERPRET=1.

Each line of the input is JSON: a script, its arguments, and the files for its output. The answer is its exit
status. Each script runs in a process forked from this one, so that torch and Triton are loaded once.

This makes the interpreter faster, with the same results:

- It replaces the functions of ``triton.language`` once per launch and module, not at each call of a device
  function.
- It does not compute everything again in 64 bits to find overflows, which only its debugger reports.
- It caches the types of blocks, the sizes of values and numpy's types.

Products are summed in double precision, because numpy sums the edges of a product in another order than its
inside: results of a row must not depend on its place in a tile.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch._dynamo  # noqa: F401  # Loaded once for all scripts, like torch itself: attention imports it.
from triton.language import core
from triton.runtime import interpreter

#: Identities of the globals of modules whose language is replaced in this launch.
replaced: set[int] = set()
original_launch = interpreter.GridExecutor.__call__
original_dot = interpreter.InterpreterBuilder.create_dot


def launch(executor: Any, *arguments: Any, **named: Any) -> None:
    """Launch a kernel."""
    replaced.clear()
    original_launch(executor, *arguments, **named)


def call(function: Any, *arguments: Any, **named: Any) -> Any:
    """Call a device function within a launch."""
    module = id(function.fn.__globals__)
    if module not in replaced:
        interpreter._patch_lang(function.fn)
        replaced.add(module)
    try:
        return function.rewrite()(*arguments, **named)
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


def dot(builder: Any, a: Any, b: Any, start: Any, *options: Any) -> Any:
    """Return the product of two tiles plus a third."""
    if {a.data.dtype.kind, b.data.dtype.kind, start.data.dtype.kind} != {"f"}:
        return original_dot(builder, a, b, start, *options)
    product = a.data.astype(np.float64) @ b.data.astype(np.float64)
    return interpreter.TensorHandle(product.astype(start.data.dtype) + start.data, start.dtype.scalar)


original_unwrap = core._unwrap_if_constexpr
original_block_type = core.block_type.__init__
original_numpy_type = interpreter._get_np_dtype
#: Attributes of block types by identity of the element type and by shape; they keep the element type alive.
block_types: dict[tuple[int, tuple[int, ...]], dict[str, Any]] = {}
#: Number of elements and shape of a value, by its sizes.
shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}
numpy_types: dict[str, Any] = {}
#: Types of values that are no constants.
PLAIN = (int, float, bool, str, type(None), core.tensor, core.dtype, core.block_type, core.pointer_type)


def unwrap(value: Any) -> Any:
    """Return the value of a constant, or the value itself."""
    kind = type(value)
    if kind is core.constexpr:
        return value.value
    return value if kind in PLAIN else original_unwrap(value)


def block_type(made: Any, element: Any, shape: Any) -> None:
    """Initialise the type of a block."""
    key = id(element), tuple([unwrap(size) for size in unwrap(shape)])
    known = block_types.get(key)
    if known is None:
        original_block_type(made, element, shape)
        block_types[key] = dict(made.__dict__)
    else:
        made.__dict__.update(known)


def tensor(made: Any, handle: Any, kind: Any) -> None:
    """Initialise a value."""
    made.handle, made.type, made.dtype = handle, kind, kind.scalar
    sizes = tuple(kind.shape.values) if kind.is_block() else ()
    known = shapes.get(sizes)
    if known is None:
        count = core.constexpr(math.prod(sizes))
        known = shapes[sizes] = count, core.tuple([core.constexpr(size) for size in sizes])
    made.numel, made.shape = known


def numpy_type(kind: Any) -> Any:
    """Return numpy's type for a type of Triton."""
    found = numpy_types.get(kind.name)
    if found is None:
        found = numpy_types[kind.name] = original_numpy_type(kind)
    return found


def run(script: str, arguments: list[str], printed: str, remarks: str) -> NoReturn:
    """Run a script in this process, which ends with it."""
    status = 1
    try:
        for name, number in ((printed, 1), (remarks, 2)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv, sys.path[0] = [script, *arguments], str(Path(script).parent)
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    interpreter.GridExecutor.__call__ = launch
    interpreter.InterpretedFunction.__call__ = call
    interpreter.InterpreterBuilder.create_dot = dot
    interpreter._get_np_dtype = numpy_type
    core._unwrap_if_constexpr = unwrap
    core.block_type.__init__ = block_type
    core.tensor.__init__ = tensor
    for request in map(json.loads, sys.stdin):
        child = os.fork()
        if child == 0:
            run(**request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
