"""Run a script with Triton's interpreter: ``python interpret.py SCRIPT ARGUMENTS`` with TRITON_INTERPRET=1.

The interpreter replaces the functions of ``triton.language`` at each launch, and again at each call of a
device function, which takes longer than to interpret most of them: here once a launch and module does. It
also computes twice, in 64 bits, whether integers overflow, and without its debugging tells nobody: here it
does not.
"""

from __future__ import annotations

import dataclasses
import runpy
import sys
from pathlib import Path
from typing import Any

from triton.runtime import interpreter

#: Modules of device functions whose language is replaced in this launch, by the identity of their globals.
replaced: set[int] = set()
launch_whole = interpreter.GridExecutor.__call__


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


if __name__ == "__main__":
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    interpreter.GridExecutor.__call__ = launch
    interpreter.InterpretedFunction.__call__ = call
    script, sys.argv = Path(sys.argv[1]), sys.argv[1:]
    sys.path[0] = str(script.parent)
    runpy.run_path(str(script), run_name="__main__")
