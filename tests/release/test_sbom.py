"""The SBOM and the licence report: everything in the wheel that is not code of ours has an entry."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tomllib


@pytest.fixture
def release(release_module: Callable[[str], ModuleType]) -> ModuleType:
    sys.modules.pop("report", None)
    return release_module("report")


@pytest.fixture
def components(release: ModuleType) -> list[dict[str, Any]]:
    return list(release.brought())


def test_weights_data_and_files_of_others_are_listed(
    components: list[dict[str, Any]], repository: Path
) -> None:
    listed = {
        file["name"]: file["hashes"][0]["content"] for part in components for file in part["components"]
    }
    wanted = [
        path
        for package in ("sparse_core", "perception", "memory")
        for pattern in ("*.safetensors", "*.npz", "*.gz", "vendor/*/*", "imagenet_classes.txt")
        for path in (repository / package).rglob(pattern)
        if path.is_file()
    ]
    assert len(wanted) >= 10
    assert {path.relative_to(repository).as_posix() for path in wanted} <= listed.keys()
    for name, digest in listed.items():
        assert hashlib.sha256((repository / name).read_bytes()).hexdigest() == digest


def test_the_licence_of_the_project_covers_what_it_brings(
    components: list[dict[str, Any]], release: ModuleType, repository: Path
) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    said = set(project["license"].split(" AND "))
    brought = {one for part in components for one in release.licence_of(part).split(" AND ")}
    assert brought - {"not stated"} == said
    assert all((repository / name).is_file() for name in project["license-files"])
    weights = [part for part in components if part["name"].startswith("pointpillars-")]
    assert {part["name"]: release.licence_of(part) for part in weights} == {
        "pointpillars-kitti": "CC-BY-NC-SA-3.0",
        "pointpillars-anywhere": "CC-BY-NC-SA-3.0 AND CC-BY-NC-SA-4.0",
    }
    assert all("has to be asked" in part["description"] for part in weights)


def test_licences_are_told_as_they_are_stated(release: ModuleType) -> None:
    for said, expected in (
        ([{"expression": "MIT OR Apache-2.0", "acknowledgement": "declared"}], "MIT OR Apache-2.0"),
        ([{"license": {"name": "License :: OSI Approved :: BSD License"}}], "BSD License"),
        ([{"license": {"name": "MIT License"}}, {"license": {"id": "MIT"}}], "MIT"),
        ([], "not stated"),
    ):
        assert release.licence_of({"licenses": said}) == expected


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_make_sbom(repository: Path, tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("no make")
    words = ["make", "--no-print-directory", "sbom", f"SBOM={tmp_path}", f"PYTHON={sys.executable}"]
    done = subprocess.run(words, cwd=repository, capture_output=True, text=True, check=False)
    if "Could not find a version" in done.stderr or "No matching distribution" in done.stderr:
        pytest.skip(f"pip could not fetch what it needs: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr[-3000:]
    bom = json.loads((tmp_path / "sparsight.cdx.json").read_text())
    assert bom["bomFormat"] == "CycloneDX"
    names = {part["name"] for part in bom["components"]}
    assert {"torch", "numpy", "scipy", "matplotlib", "leaflet", "pointpillars-kitti"} <= names
    assert names.isdisjoint({"pip", "sparsight", "spconv-cu120", "open3d", "cyclonedx-bom"})
    page = (tmp_path / "licences.md").read_text()
    assert all(f"| {name} |" in page for name in names)
