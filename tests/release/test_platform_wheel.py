"""Wheels with compiled parts."""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sparse_core.kernels import native

ROOT = Path(__file__).parents[2]
PARTS = {
    "memory/index/search.cpp",
    "perception/model/points.cpp",
    "perception/run/transfer.cpp",
    "sparse_core/columns/columns.cpp",
    "sparse_core/conv/convolution/cpu/int8/products.cpp",
    "sparse_core/conv/convolution/cpu/planning.cpp",
    "sparse_core/kernels/launch_plan.cpp",
    "sparse_core/linalg/loops.cpp",
}


@pytest.fixture(scope="module")
def platform_wheel() -> ModuleType:
    path = ROOT / "release/platform_wheel.py"
    described = importlib.util.spec_from_file_location("platform_wheel", path)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def test_every_source_is_built_for_the_processors_that_it_is_for(platform_wheel: ModuleType) -> None:
    def names(machine: str) -> set[str]:
        return {source.relative_to(ROOT).as_posix() for source in platform_wheel.sources(ROOT, machine)}

    assert names("aarch64") == PARTS
    assert names("x86_64") == PARTS | {"sparse_core/nm/linear/two_four.cpp"}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs ziglang, see `make wheels`")
@pytest.mark.skipif(sys.platform != "linux", reason="builds for Linux")
def test_a_part_is_found_by_the_package(
    platform_wheel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ROOT / "memory/index/search.cpp"
    library = platform_wheel.compile_part(source, tmp_path, platform.machine())
    monkeypatch.setattr(native, "BUILT", tmp_path)
    monkeypatch.setattr(native, "compiler", lambda: None)
    assert native._build(source) == library
    assert ctypes.CDLL(str(library)) is not None
