"""The first result of a process is that of all later ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CHECK = """
import torch
from sparse_core.determinism import VECTOR_FUNCTIONS

calls = set()
def watch(name, function):
    def called(tensor):
        assert tensor.numel() == 1 and tensor.is_contiguous(), "a single element stays with one thread"
        calls.add((name, tensor.dtype))
        return function(tensor)
    return called

import sys
del sys.modules["sparse_core.determinism"]
for name in VECTOR_FUNCTIONS:
    setattr(torch, name, watch(name, getattr(torch, name)))
import {module}
assert calls == {{(name, dtype) for name in VECTOR_FUNCTIONS for dtype in (torch.float32, torch.float64)}}
"""


@pytest.mark.parametrize(
    "module",
    [
        "sparse_core.attention",
        "sparse_core.conv",
        "sparse_core.linalg",
        "sparse_core.nm",
        "perception.detector",
    ],
)
def test_import_resolves_the_vector_functions(module: str) -> None:
    command = [sys.executable, "-c", CHECK.format(module=module)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
