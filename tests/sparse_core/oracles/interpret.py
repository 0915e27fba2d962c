"""Run scripts with Triton's interpreter: ``python interpret.py`` with TRITON_INTERPRET=1.

Each line of the input is JSON: a script, its arguments, and files for what it prints. Each is answered by an
exit status. A script runs in a process that is forked from this one: torch and Triton are loaded once.

The interpreter replaces the functions of ``triton.language`` at each launch, and again at each call of a
device function, which takes longer than to interpret most of them: here once a launch and module does. It
also computes twice, in 64 bits, whether integers overflow, and without its debugging tells nobody: here it
does not. It makes the type of each value anew, element by element, and asks a table that it fills for each
question what numpy calls a type: here both are kept. Products are summed in double precision, so that what
a row gives does not depend on where in a tile it stands: the processor's library sums the edges of a
product in another order than its inside.
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
import torch  # noqa: F401  # Loaded once for all scripts.
from triton.language import core
from triton.runtime import interpreter

#: Modules of device functions whose language is replaced in this launch, by the identity of their globals.
replaced: set[int] = set()
launch_whole = interpreter.GridExecutor.__call__
dot_whole = interpreter.InterpreterBuilder.create_dot


def launch(executor: Any, *arguments: Any, **named: Any) -> None:
    """Of a kernel."""
    replaced.clear()
    launch_whole(executor, *arguments, **named)


def call(function: Any, *arguments: Any, **named: Any) -> Any:
    """Of a device function, within a launch."""
    module = id(function.fn.__globals__)
    if module not in replaced:
        interpreter._patch_lang(function.fn)
        replaced.add(module)
    try:
        return function.rewrite()(*arguments, **named)
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


def dot(builder: Any, a: Any, b: Any, start: Any, *options: Any) -> Any:
    """Of two tiles, added to a third."""
    if {a.data.dtype.kind, b.data.dtype.kind, start.data.dtype.kind} != {"f"}:
        return dot_whole(builder, a, b, start, *options)
    product = a.data.astype(np.float64) @ b.data.astype(np.float64)
    return interpreter.TensorHandle(product.astype(start.data.dtype) + start.data, start.dtype.scalar)


unwrap_whole = core._unwrap_if_constexpr
type_whole = core.block_type.__init__
numpy_type_whole = interpreter._get_np_dtype
#: Attributes of types of blocks by the element's and the shape; the element stays, so that its identity does.
block_types: dict[tuple[int, tuple[int, ...]], dict[str, Any]] = {}
#: Number of elements and shape of a value, by the sizes.
shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}
numpy_types: dict[str, Any] = {}
#: Of what nothing is to be unwrapped.
PLAIN = (int, float, bool, str, type(None), core.tensor, core.dtype, core.block_type, core.pointer_type)


def unwrap(value: Any) -> Any:
    """What a constant holds, or what is given."""
    kind = type(value)
    if kind is core.constexpr:
        return value.value
    return value if kind in PLAIN else unwrap_whole(value)


def block_type(made: Any, element: Any, shape: Any) -> None:
    """Make the type of a block."""
    key = id(element), tuple([unwrap(size) for size in unwrap(shape)])
    known = block_types.get(key)
    if known is None:
        type_whole(made, element, shape)
        block_types[key] = dict(made.__dict__)
    else:
        made.__dict__.update(known)


def tensor(made: Any, handle: Any, kind: Any) -> None:
    """Make a value of a type."""
    made.handle, made.type, made.dtype = handle, kind, kind.scalar
    sizes = tuple(kind.shape.values) if kind.is_block() else ()
    known = shapes.get(sizes)
    if known is None:
        count = core.constexpr(math.prod(sizes))
        known = shapes[sizes] = count, core.tuple([core.constexpr(size) for size in sizes])
    made.numel, made.shape = known


def numpy_type(kind: Any) -> Any:
    """What numpy calls a type."""
    found = numpy_types.get(kind.name)
    if found is None:
        found = numpy_types[kind.name] = numpy_type_whole(kind)
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
