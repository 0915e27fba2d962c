"""Wheel and sdist: whole, and enough for the first minute without the repository."""

from __future__ import annotations

import json
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
MOST_BESIDE_TORCH_BYTES = 1.5e9
#: Weights and samples are 18 MB of it.
MOST_IN_WHEEL_BYTES = 25e6
#: Extras only: each is hundreds of megabytes, or a library to compare with.
NOT_IN_BASE = {"open3d", "rerun-sdk", "playwright", "triton", "spconv-cu120", "spconv-cu126", "faiss-cpu"}


def test_wheel_and_sdist_hold_every_file_of_the_packages(
    distributions: tuple[Path, Path], repository: Path
) -> None:
    sdist, wheel = distributions
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    packages = ["sparse_core", "perception", "memory"]
    done = subprocess.run([*listed, *packages], cwd=repository, capture_output=True, text=True, check=True)
    # What is vendored says of itself where it came from; nobody reads that in a package.
    files = {name for name in done.stdout.splitlines() if (repository / name).is_file()}
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert files - in_wheel == set()
    assert in_wheel - files == set()
    assert files - in_sdist == set()
    assert wheel.stat().st_size < MOST_IN_WHEEL_BYTES


def test_the_demos_run_without_the_repository(installed: Any, tmp_path: Path) -> None:
    seen = installed.run("perceive", "demo", cwd=tmp_path)
    lines = seen.splitlines()
    named = [line.split()[0] for line in lines[lines.index("Open") + 1 : lines.index("Next")]]
    assert [Path(name).suffix for name in named] == [".html", ".png", ".html", ".png"]
    assert all((tmp_path / name).stat().st_size > 10_000 for name in named)
    imported = [line.strip() for line in lines if line.strip().startswith("recall import ")]
    assert installed.run(*imported[0].split(), cwd=tmp_path)
    kept = installed.run("recall", "demo", "--json", cwd=tmp_path)
    found = json.loads(kept[kept.index("{") :])
    assert len(found["answers"]) == 4
    assert (tmp_path / found["picture"]).is_file()
    assert installed.run("recall", "check", found["store"], cwd=tmp_path)
    where = "import perception, memory, sparse_core; print(perception.__file__)"
    assert str(installed.folder) in installed.run("python", "-c", where, cwd=tmp_path)


def test_an_environment_is_small_beside_torch(installed: Any, tmp_path: Path, bytes_in: Any) -> None:
    beside = bytes_in(installed.folder) - installed.torch_bytes
    assert 0 < beside < MOST_BESIDE_TORCH_BYTES
    print(f"beside torch: {beside / 1e6:.0f} MB")
    listed = json.loads(installed.run("python", "-m", "pip", "list", "--format", "json", cwd=tmp_path))
    names = {entry["name"].lower() for entry in listed}
    assert "sparsight" in names
    assert names & NOT_IN_BASE == set()
    assert installed.run("python", "-m", "pip", "check", cwd=tmp_path).startswith("No broken requirements")


def test_what_an_extra_is_for_is_told(installed: Any, tmp_path: Path) -> None:
    """Commands of extras that are not there say which to install, and end with status 2."""
    installed.run("recall", "init", "store", cwd=tmp_path)
    for words, extra in (
        (("perceive", "simulate", "--out", "sim", "--frames", "1"), "simulate"),
        (("recall", "serve", "store"), "serve"),
        (("recall", "mcp", "store"), "mcp"),
        (("perceive", "export", "pointpillars-kitti", "--format", "onnx", "--out", "x.onnx"), "onnx"),
    ):
        program = installed.folder / "bin" / words[0]
        done = subprocess.run(
            [program, *words[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2, done.stderr
        assert f"sparsight[{extra}]" in done.stderr
        assert "Traceback" not in done.stderr
