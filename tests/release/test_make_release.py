"""A release is signed, and refused where something is missing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


@pytest.fixture
def release(release_module: Callable[[str], ModuleType]) -> ModuleType:
    return release_module("make_release")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")]
    subprocess.run(command, check=True)
    return tmp_path / "key"


def test_signatures_fit_their_files_only(release: ModuleType, key: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dist"
    folder.mkdir()
    files = [folder / "one.whl", folder / "two.tar.gz"]
    for file in files:
        file.write_bytes(file.name.encode())
    release.sign(files, key)
    signers = folder / release.SIGNERS
    assert all(release.verified(file, signers) for file in (*files, folder / release.SUMS))
    assert "  one.whl\n" in (folder / release.SUMS).read_text()
    files[0].write_bytes(b"another")
    assert not release.verified(files[0], signers)
    stranger = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)], check=True)
    (folder / "two.tar.gz.sig").unlink()
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(stranger), "-n", "sparsight", str(files[1])]
    subprocess.run(command, check=True)
    assert not release.verified(files[1], signers), "signed by another key"


def test_a_tree_that_is_not_ready_is_refused(
    release: ModuleType, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "CHANGELOG.md").write_text("## [9.9.9] - not released yet\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    wrong = release.problems("9.9.9", rehearse=False)
    assert len(wrong) == 2
    assert "no date for 9.9.9" in wrong[0]
    assert "git status" in wrong[1]
    assert release.problems("9.9.9", rehearse=True) == []
    (tmp_path / "pyproject.toml").write_text('version = "9.9.9"\n')
    with pytest.raises(SystemExit, match=r"No release:\n- CHANGELOG.md has no date"):
        release.main(["--out", str(tmp_path / "out"), "--key", str(key)])


def test_files_in_the_way_are_kept(release: ModuleType, key: Path, tmp_path: Path) -> None:
    (tmp_path / "old.whl").write_text("")
    with pytest.raises(SystemExit, match="not empty"):
        release.main(["--out", str(tmp_path), "--key", str(key), "--rehearse"])
    assert (tmp_path / "old.whl").exists()
