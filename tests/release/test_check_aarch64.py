"""The aarch64 wheel under emulation; and what the check says where it cannot run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def release(release_module: Callable[[str], ModuleType]) -> ModuleType:
    return release_module("check_aarch64")


def test_a_missing_program_is_named(release: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release.sys, "platform", "linux")
    monkeypatch.setattr(release.shutil, "which", lambda name: None if name == "qemu-aarch64" else name)
    assert release.why_not() == "qemu-aarch64 is missing: apt install qemu-user"
    monkeypatch.setattr(release.shutil, "which", lambda name: name)
    monkeypatch.setattr(release.importlib.util, "find_spec", lambda name: None)
    assert "pip install ziglang wheel" in release.why_not()
    with pytest.raises(SystemExit, match="zig is missing"):
        release.main(["--work", "anywhere"])


def test_results_that_differ_are_found(
    release_module: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The comparison with this machine's own results, whole and with one bit changed."""
    import torch

    from sparse_core.kernels import native

    if native.compiler() is None:
        pytest.skip("needs a C++ compiler")
    module = release_module("compiled_results")

    def run(action: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["compiled_results.py", action, str(tmp_path)])
        return module.main(), capsys.readouterr().out

    assert run("write")[0] == 0
    status, printed = run("compare")
    assert (status, printed.count(": equal")) == (0, 7)
    results = torch.load(tmp_path / "results.pt")
    results["sort_points"][0].view(torch.int32).view(-1)[7] ^= 1
    torch.save(results, tmp_path / "results.pt")
    status, printed = run("compare")
    assert (status, printed.count(": equal")) == (1, 6)
    assert "sort_points: DIFFERENT" in printed


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_aarch64_gives_the_same_bits(release: ModuleType, tmp_path: Path) -> None:
    reason = release.why_not()
    if reason is not None:
        pytest.skip(reason)
    if shutil.disk_usage(tmp_path).free < 4e9:
        pytest.skip("needs 4 GB of disk")
    try:
        release.make_system(tmp_path)
        release.install_packages(tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"Debian's or Python's packages cannot be fetched: {error}")
    assert release.main(["--work", str(tmp_path)]) == 0
