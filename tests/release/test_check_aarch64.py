"""The aarch64 wheel under emulation; and what the check says where it cannot run."""

from __future__ import annotations

import shutil
import subprocess
import sys
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


def test_results_that_differ_are_found(repository: Path, tmp_path: Path) -> None:
    """The comparison with this machine's own results, whole and with one bit changed."""
    import torch

    from sparse_core.kernels import native

    if native.compiler() is None:
        pytest.skip("needs a C++ compiler")
    script = repository / "release/compiled_results.py"

    def run(action: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(script), action, str(tmp_path)]
        return subprocess.run(words, cwd=repository, capture_output=True, text=True, check=False)

    assert run("write").returncode == 0
    same = run("compare")
    assert (same.returncode, same.stdout.count(": equal")) == (0, 7)
    results = torch.load(tmp_path / "results.pt")
    results["sort_points"][0].view(torch.int32).view(-1)[7] ^= 1
    torch.save(results, tmp_path / "results.pt")
    changed = run("compare")
    assert (changed.returncode, changed.stdout.count(": equal")) == (1, 6)
    assert "sort_points: DIFFERENT" in changed.stdout


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
