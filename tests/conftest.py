"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
import resource
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from poisoned_memory import poisoned_memory
from spconv_on_cpu import leave_out_gpu_kernels

from sparse_core.conv.convolution import vendor

REPOSITORY = Path(__file__).parent.parent
#: Seconds for tests that are marked slow: enough beside other programs.
_SLOW_S = 7200

# How long an example takes depends on what else runs on the machine.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from modules and collected tests, which stay until the end.

    It would visit their millions of objects during collection, and again in each test that collects garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests more time, unless they say how much they need."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_S))


@pytest.fixture(scope="session", autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, before))
    yield
    torch.set_num_threads(before)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Set the number of torch's threads, for the test only."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _quick_spconv() -> Iterator[None]:
    """spconv is imported without its CUDA kernels where none of them can run."""
    whole = vendor.import_spconv

    def quick() -> Any:
        leave_out_gpu_kernels()
        return whole()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vendor, "import_spconv", quick)
        yield


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Started in the background by a shell, a process ignores Ctrl-C, and all that it starts does too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """Folder with the real data sets: ``SPARSIGHT_DATA``, by default ``../shared/data`` of the repository."""
    directory = Path(os.environ.get("SPARSIGHT_DATA", REPOSITORY.parent / "shared" / "data"))
    if not directory.is_dir():
        pytest.skip(f"no real data at {directory} (set SPARSIGHT_DATA)")
    return directory


@pytest.fixture(scope="session")
def kitti_directory(data_directory: Path) -> Path:
    """The KITTI object folder within the real data."""
    directory = data_directory / "kitti"
    if not directory.is_dir():
        pytest.skip(f"no KITTI data at {directory} (set SPARSIGHT_DATA)")
    return directory


@pytest.fixture
def run_demo(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a demo with arguments in this process: a process of its own takes seconds to import torch."""
    folder = repository / "demos"

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        before, status = set(sys.modules), 0
        monkeypatch.setattr("sys.argv", [name, *arguments])
        monkeypatch.syspath_prepend(str(folder))
        try:
            runpy.run_path(str(folder / name), run_name="__main__")
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        for own in set(sys.modules) - before:
            if str(getattr(sys.modules[own], "__file__", "")).startswith(str(folder)):
                del sys.modules[own]
        return subprocess.CompletedProcess([name, *arguments], status, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def limit_file_size() -> Callable[[int], AbstractContextManager[None]]:
    """Let the system refuse files above a size in bytes, as a full disk does, while a ``with`` block runs.

    The limit holds for the whole process: Python must not leave cut bytecode of modules that it imports.
    """

    @contextmanager
    def limit(size: int) -> Iterator[None]:
        writes_no_bytecode, handler = sys.dont_write_bytecode, signal.getsignal(signal.SIGXFSZ)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        sys.dont_write_bytecode = True
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, handler)
            sys.dont_write_bytecode = writes_no_bytecode

    return limit


@pytest.fixture(name="poisoned_memory")
def _poisoned_memory() -> Iterator[None]:
    """Uninitialised memory is filled so that reading it shows."""
    with poisoned_memory():
        yield


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device in turn; CUDA skips itself where there is none."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@pytest.fixture
def cuda() -> torch.device:
    """The CUDA device, or a skip."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device("cuda")
