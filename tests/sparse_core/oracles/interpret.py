"""Run a script with Triton's interpreter: ``python interpret.py SCRIPT ARGUMENTS`` with TRITON_INTERPRET=1.

The interpreter replaces the functions of ``triton.language`` at each launch, and again at each call of a
device function, which takes longer than to interpret most of them: here once a launch and module does. It
also computes twice, in 64 bits, whether integers overflow, and without its debugging tells nobody: here it
does not. Products are summed in double precision, so that what a row gives does not depend on where in a
tile it stands: the processor's library sums the edges of a product in another order than its inside.
"""

from __future__ import annotations

import dataclasses
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
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


if __name__ == "__main__":
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    interpreter.GridExecutor.__call__ = launch
    interpreter.InterpretedFunction.__call__ = call
    interpreter.InterpreterBuilder.create_dot = dot
    script, sys.argv = Path(sys.argv[1]), sys.argv[1:]
    sys.path[0] = str(script.parent)
    runpy.run_path(str(script), run_name="__main__")
