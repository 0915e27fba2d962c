"""The compiler of CUDA kernels: what it says without a GPU, and its errors on one."""

from __future__ import annotations

import ctypes
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path

import pytest
import tomllib
import torch

from sparse_core.errors import ImplementationError
from sparse_core.kernels import nvrtc
from sparse_core.nm.linear import decode_cuda


def test_not_available_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not nvrtc.available()


def test_missing_library_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.version.cuda is not None:
        pytest.skip("the library is installed here")
    nvrtc._compiler.cache_clear()
    with pytest.raises(ImplementationError, match=r"libnvrtc was not found: .* nvidia-cuda-nvrtc"):
        nvrtc._compiler()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert not nvrtc.available()


def test_sources_are_in_the_package(repository: Path) -> None:
    """Every kernel source is found next to its module and covered by the package data."""
    sources = sorted((repository / "sparse_core").rglob("*.cu"))
    assert decode_cuda._SOURCE in sources
    assert files("sparse_core.nm.linear").joinpath("decode.cu").is_file()
    with (repository / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["sparse_core"]
    for source in sources:
        name = source.relative_to(repository / "sparse_core").as_posix()
        # As setuptools does: a star does not cross folders.
        assert any(
            fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in patterns
        ), name


def test_sources_include_nothing() -> None:
    # The compiler library has no header files with it.
    assert "#include" not in decode_cuda._SOURCE.read_text(encoding="utf-8")


# On a GPU

SQUARES = """
extern "C" __global__ void squares(const float* x, float* y, int count, float factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = SCALE * factor * x[i] * x[i];
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "squares.cu"
    path.write_text(SQUARES)
    return path


def stream_of(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream


@pytest.mark.gpu
def test_a_kernel_runs_and_its_arguments_may_change(cuda: torch.device, source: Path) -> None:
    assert nvrtc.available()
    kernel = nvrtc.compile_kernel(source, "squares", {"SCALE": 3}, cuda)
    x = torch.arange(1000, dtype=torch.float32, device=cuda)
    y = torch.zeros_like(x)
    count, factor = ctypes.c_int(1000), ctypes.c_float(1)
    launch = kernel.prepare(
        (8, 1, 1), 128, (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), count, factor)
    )
    launch(stream_of(cuda))
    assert torch.equal(y, 3 * x * x)
    y.zero_()
    count.value, factor.value = 10, 2
    launch(stream_of(cuda))
    assert torch.equal(y[:10], 6 * x[:10] * x[:10])
    assert not y[10:].any()


@pytest.mark.gpu
def test_kernels_are_compiled_once(cuda: torch.device, source: Path) -> None:
    first = nvrtc.compile_kernel(source, "squares", {"SCALE": 2}, cuda)
    assert nvrtc.compile_kernel(source, "squares", {"SCALE": 2}, cuda) is first
    assert nvrtc.compile_kernel(source, "squares", {"SCALE": 5}, cuda) is not first


@pytest.mark.gpu
def test_errors_of_the_compiler_are_reported(cuda: torch.device, tmp_path: Path) -> None:
    path = tmp_path / "broken.cu"
    path.write_text('extern "C" __global__ void broken(int* x) { *x = nothing; }')
    with pytest.raises(ImplementationError, match=r'(?s)compiling broken.cu failed:.*"nothing" is undefined'):
        nvrtc.compile_kernel(path, "broken", {}, cuda)


@pytest.mark.gpu
def test_a_function_that_is_not_there(cuda: torch.device, source: Path) -> None:
    with pytest.raises(ImplementationError, match="cubes"):
        nvrtc.compile_kernel(source, "cubes", {"SCALE": 1}, cuda)


@pytest.mark.gpu
def test_a_launch_that_the_driver_refuses(cuda: torch.device, source: Path) -> None:
    kernel = nvrtc.compile_kernel(source, "squares", {"SCALE": 1}, cuda)
    arguments = (ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(0), ctypes.c_float(0))
    with pytest.raises(ImplementationError, match="launch with 4 arguments failed with CUDA driver error"):
        kernel.prepare((1, 1, 1), 4096, arguments)(stream_of(cuda))
