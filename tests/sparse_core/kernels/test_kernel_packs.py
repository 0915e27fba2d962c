"""Kernels that were compiled before are found by Triton, and only where they still fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparse_core.common.libraries import module_available
from sparse_core.kernels.kernel_packs import read_pack

pytestmark = pytest.mark.skipif(not module_available("triton"), reason="needs triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def add_kernel(x, y, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + place, tl.load(x + place, mask=place < count) + {added}, mask=place < count)
"""
ENTRY = {
    "kernel": "packed_sample:add_kernel",
    "signature": {"x": "*fp32", "y": "*fp32", "count": "i32", "BLOCK": "constexpr"},
    "constants": [[[3], 64]],
    "attributes": [[[0], [["tt.divisibility", 16]]]],
    "options": {"num_warps": 4},
}
PACK = """
import json, sys
from pathlib import Path
from sparse_core.kernels.precompile import job_of
from sparse_core.kernels.kernel_packs import pack_path, write_pack
listed = Path(sys.argv[1])
jobs = [job_of(entry, 90) for entry in json.loads(listed.read_text())]
write_pack(pack_path(listed, 90), jobs)
"""
LAUNCHERS = """
import sys
from pathlib import Path
from sparse_core.kernels import precompile
made = []
precompile._make_launcher = made.append
precompile._compile_list(Path(sys.argv[1]), 90)
assert [job.source.name for job in made] == ["add_kernel"], made
"""
COMPILE = """
import sys
from pathlib import Path
from sparse_core.kernels.precompile import _compile_list
_compile_list(Path(sys.argv[1]), 90)
"""


def run(program: str, listed: Path, cache: Path, repository: Path) -> None:
    paths = os.pathsep.join([str(listed.parent), str(repository)])
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "TRITON_INTERPRET": "0", "PYTHONPATH": paths}
    subprocess.run(
        [sys.executable, "-c", program, str(listed)], check=True, env=environment, cwd=repository, timeout=600
    )


def made(cache: Path, suffix: str) -> list[Path]:
    return sorted(cache.rglob(f"*.{suffix}"))


def test_what_is_packed_is_not_compiled_again(tmp_path: Path, repository: Path) -> None:
    listed, source = tmp_path / "list.json", tmp_path / "packed_sample.py"
    listed.write_text(json.dumps([ENTRY]))
    source.write_text(KERNEL.format(added=1.0))
    run(PACK, listed, tmp_path / "first", repository)
    (pack,) = tmp_path.glob("list-sm_90-triton-*.tar.xz")
    (binary,) = read_pack(pack).values()
    assert "hash" not in json.loads(binary.metadata)
    assert made(tmp_path / "first", "ttir")
    run(COMPILE, listed, tmp_path / "second", repository)
    # Triton found machine code and no reason to translate anything.
    (code,) = made(tmp_path / "second", "cubin")
    assert code.read_bytes() == binary.code
    assert not made(tmp_path / "second", "ttir")
    # The same pack to the bit.
    before = pack.read_bytes()
    run(PACK, listed, tmp_path / "third", repository)
    assert pack.read_bytes() == before


def test_what_has_changed_is_not_taken_from_a_pack(tmp_path: Path, repository: Path) -> None:
    listed, source = tmp_path / "list.json", tmp_path / "packed_sample.py"
    listed.write_text(json.dumps([ENTRY]))
    source.write_text(KERNEL.format(added=1.0))
    run(PACK, listed, tmp_path / "first", repository)
    source.write_text(KERNEL.format(added=2.0))
    run(COMPILE, listed, tmp_path / "second", repository)
    # Left to its launch, or compiled by a process beside: never the code of the source before.
    packed = next(iter(read_pack(next(tmp_path.glob("*.tar.xz"))).values()))
    assert all(code.read_bytes() != packed.code for code in made(tmp_path / "second", "cubin"))


def test_kernels_of_the_same_types_share_a_launcher(tmp_path: Path, repository: Path) -> None:
    listed, source = tmp_path / "list.json", tmp_path / "packed_sample.py"
    listed.write_text(json.dumps([ENTRY, ENTRY | {"constants": [[[3], 128]]}]))
    source.write_text(KERNEL.format(added=1.0))
    run(PACK, listed, tmp_path / "first", repository)
    run(LAUNCHERS, listed, tmp_path / "second", repository)
    assert len(made(tmp_path / "second", "cubin")) == 2


def test_no_pack_is_no_fault(tmp_path: Path) -> None:
    assert read_pack(tmp_path / "none.tar.xz") == {}
