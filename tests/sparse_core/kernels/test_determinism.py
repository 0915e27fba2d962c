"""The first result of a process is that of all later ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
#: The module of every op, and one that needs many ops.
MODULES = ("sparse_core.kernels.op", "perception.detector")
#: Each module is imported first in a process that is forked before any of them was.
CHECK = """
import importlib, os, sys
import torch
from sparse_core.kernels.determinism import VECTOR_FUNCTIONS

calls = set()
def watch(name, function):
    def called(tensor):
        assert tensor.numel() == 1 and tensor.is_contiguous(), "a single element stays with one thread"
        calls.add((name, tensor.dtype))
        return function(tensor)
    return called

del sys.modules["sparse_core.kernels.determinism"]
for name in VECTOR_FUNCTIONS:
    setattr(torch, name, watch(name, getattr(torch, name)))
for module in sys.argv[1:]:
    if child := os.fork():
        print(module, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    importlib.import_module(module)
    assert calls == {(name, dtype) for name in VECTOR_FUNCTIONS for dtype in (torch.float32, torch.float64)}
    os._exit(0)
"""


def test_import_resolves_the_vector_functions() -> None:
    command = [sys.executable, "-c", CHECK, *MODULES]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.split() == [word for module in MODULES for word in (module, "0")], done.stderr
