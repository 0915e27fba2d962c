"""Tests of the thread number of numpy's products."""

from __future__ import annotations

import subprocess
import sys

from sparse_core.common import blas

_PROGRAM = """
import numpy, sparse_core.common.blas as blas
before = blas.threads()
told = blas.set_threads(1)
assert told == (before is not None)
assert before is None or blas.threads() == 1
assert not told or blas.set_threads(2) and blas.threads() == 2
print(numpy.ones((300, 300)) @ numpy.ones(300) == 300, "torch" in __import__("sys").modules)
"""


def test_threads_are_set_and_returned() -> None:
    # In a separate process, because it changes the whole process.
    said = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True).stdout
    assert "False" not in said.rpartition("]")[0]
    assert said.split()[-1] == "False"


def test_threads_of_numpy_wheels_are_found() -> None:
    import numpy

    if "openblas" in str(numpy.show_config(mode="dicts")).lower():
        assert blas.threads() is not None
