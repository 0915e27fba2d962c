"""Scripts that compare Triton kernels with the reference, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def run_script(script: Path, repository: Path, *arguments: str, interpret: bool) -> dict[str, Any]:
    """Run ``script`` with Triton's interpreter or without, and return the JSON of its last line.

    A process of its own, because Triton decides at import whether it interprets kernels.
    """
    pytest.importorskip("triton")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(repository)
    runner = []
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
        runner = [str(Path(__file__).with_name("interpret.py"))]
    done = subprocess.run(
        [sys.executable, *runner, str(script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(report, dict)
    return report
