"""The list of what first frames compile names kernels that are there, and compiles without a GPU."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perception.run import graph
from sparse_core.common.libraries import module_available
from sparse_core.kernels.kernel_packs import pack_path, read_pack
from sparse_core.kernels.precompile import job_of, kernel_of

pytestmark = pytest.mark.skipif(not module_available("triton"), reason="needs triton")
ROOT = Path(graph.__file__).parents[2]
LISTED = ROOT / "perception" / "run" / "kernels.json"


def entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(LISTED.read_text())
    return found


def test_every_kernel_has_these_arguments() -> None:
    for entry in entries():
        kernel = kernel_of(entry)
        assert list(entry["signature"]) == list(inspect.signature(kernel.fn).parameters), entry["kernel"]
        constants = [name for name, kind in entry["signature"].items() if kind == "constexpr"]
        named = {place[0] for place, _ in entry["constants"]}
        assert {list(entry["signature"]).index(name) for name in constants} <= named


def test_the_shipped_pack_is_of_these_sources() -> None:
    pack = read_pack(pack_path(LISTED, 90))
    if not pack:
        pytest.skip("nothing is shipped for this version of Triton")
    # Else: python -m benchmarks.detector.list_kernels --pack
    assert set(pack) == {job_of(entry, 90).name for entry in entries()}


def test_compiles_without_a_gpu_and_leaves_the_rest_to_its_launch(tmp_path: Path) -> None:
    short = next(entry for entry in entries() if "scatter_kernel" in entry["kernel"])
    wrong = {**short, "signature": dict.fromkeys(short["signature"], "constexpr")}
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "sparse_core.kernels.precompile", "90"],
        input=json.dumps([wrong, short]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 1, done.stderr
    assert len(list(tmp_path.rglob("*.cubin"))) == 1
