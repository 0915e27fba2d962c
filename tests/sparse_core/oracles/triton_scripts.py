"""Scripts that compare Triton kernels with the reference, in a process of their own."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

#: Runs a script and ends without finalizing Python: a thread of autograd that comes back from a kernel while
#: Python is finalized aborts the whole process (pytorch/pytorch#38230).
_RUN_AND_END = """
import os, runpy, sys
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)
"""


def run_script(script: Path, repository: Path, *arguments: str, interpret: bool) -> dict[str, Any]:
    """Run ``script`` with Triton's interpreter or without, and return the JSON of its last line.

    A process of its own, because Triton decides at import whether it interprets kernels.
    """
    pytest.importorskip("triton")
    if interpret:
        done = _interpreter(repository).run(script, arguments)
    else:
        environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        done = subprocess.run(
            [sys.executable, "-c", _RUN_AND_END, str(script), *arguments],
            env=environment | {"PYTHONPATH": str(repository)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(report, dict)
    return report


#: A test runs twice: kernels are interpreted on a CPU, and compiled on a GPU.
interpreted_and_compiled = pytest.mark.parametrize(
    "interpret", [True, pytest.param(False, marks=pytest.mark.gpu)], ids=["interpreted", "compiled"]
)


def compare_both_ways(
    script: Path, repository: Path, *, interpret: bool, sizes: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Run a comparison on a CPU or a GPU; ``sizes`` are those of interpreted and compiled kernels."""
    if not interpret and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    arguments = () if sizes is None else (str(sizes[not interpret]),)
    report = run_script(script, repository, "cpu" if interpret else "cuda", *arguments, interpret=interpret)
    assert report["interpreted"] == interpret
    return report


class _Interpreter:
    """A process of ``interpret.py``, which lasts as long as the tests."""

    def __init__(self, repository: Path) -> None:
        # One thread: what it forks must have all that it needs.
        own = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(repository)}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("interpret.py"))],
            env={**os.environ, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._process.communicate)

    def run(self, script: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        """Run a script in a process of its own."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            printed, remarks = Path(folder, "printed"), Path(folder, "remarks")
            request = {"script": str(script), "arguments": arguments}
            request |= {"printed": str(printed), "remarks": str(remarks)}
            print(json.dumps(request), file=self._process.stdin, flush=True)
            status = int(self._process.stdout.readline())
            words = [str(script), *arguments]
            return subprocess.CompletedProcess(words, status, printed.read_text(), remarks.read_text())


@cache
def _interpreter(repository: Path) -> _Interpreter:
    return _Interpreter(repository)
