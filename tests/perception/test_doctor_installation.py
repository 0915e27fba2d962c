"""The doctor of the installation: on this machine, and on one that lacks each part."""

from __future__ import annotations

import os
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
import torch
from rich.console import Console

from perception.doctor import examine_installation, format_installation, installation
from perception.doctor.installation import Extra, InstallationReport, Package
from perception.scans.finding import Finding
from sparse_core.kernels import native


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "cache" / "sparsight"


def findings(report: InstallationReport, check: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.check == check]


def test_every_source_is_a_part(caches: Path, repository: Path) -> None:
    report = examine_installation()
    packages = ("memory", "perception", "sparse_core")
    sources = [path for name in packages for path in (repository / name).rglob("*.cpp")]
    assert {part.source for part in report.parts} == {
        path.relative_to(repository).as_posix() for path in sources
    }
    assert report.versions["torch"] == torch.__version__
    assert report.devices[0].name == "cpu"
    assert report.caches[0].path == str(caches)
    assert not caches.exists(), "the doctor compiles nothing"
    for cache in report.caches:
        assert (cache.files, cache.size_bytes, cache.writable) == (0, 0, True)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "compiler", lambda: None)
    report = examine_installation()
    states = {part.source: part.state for part in report.parts}
    assert states["memory/index/search.cpp"] == "missing"
    (finding,) = findings(report, "compiled parts")
    assert finding.severity == "warning"
    assert "memory/index/search.cpp" in finding.message
    assert "make wheels" in finding.fix


def test_a_damaged_library_is_named(caches: Path) -> None:
    source = installation._ROOT / "memory/index/search.cpp"
    caches.mkdir(parents=True)
    library = caches / f"search-{native.library_name(source.read_bytes())}"
    library.write_bytes(b"no library")
    native.load.cache_clear()
    try:
        report = examine_installation()
    finally:
        native.load.cache_clear()
    assert not report.ok
    (finding,) = findings(report, "compiled parts")
    assert finding.severity == "error"
    assert str(library) in finding.fix
    assert report.caches[0].files == 1
    assert report.caches[0].size_bytes == len(b"no library")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_without_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert len(findings(examine_installation(), "caches")) == 2
    finally:
        tmp_path.chmod(0o700)


def test_a_file_in_the_place_of_the_cache(caches: Path) -> None:
    caches.parent.mkdir()
    caches.write_text("")
    (finding,) = findings(examine_installation(), "caches")
    assert str(caches) in finding.message


def test_a_driver_without_a_build_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "version"
    driver.write_text("")
    monkeypatch.setattr(installation, "_DRIVER", driver)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for cuda, expected in ((None, "a build for the CPU"), ("13.0", "torch for CUDA 13.0 cannot use")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        (finding,) = findings(examine_installation(), "GPU")
        assert finding.severity == "error"
        assert expected in finding.message


def described(*requirements: str) -> Message:
    """Return the metadata of a package with three extras."""
    message = Message()
    for line in requirements:
        message["Requires-Dist"] = line
    for name in ("near", "far", "both"):
        message["Provides-Extra"] = name
    return message


def test_requirements_and_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"one": "2.1", "two": "1.0", "three": "3.0rc1", "old": "1.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    wanted = described(
        "one>=2",
        "old>=2",
        'elsewhere; sys_platform == "none"',
        'two>=1; extra == "near"',
        'three>=2; extra == "far"',
        'absent>=4; extra == "far"',
        'sparsight[near,far]; extra == "both"',
    )
    monkeypatch.setattr(installation.metadata, "metadata", lambda name: wanted)
    monkeypatch.setattr(installation.metadata, "version", version)
    report = examine_installation()
    assert report.packages == (Package("one", "2.1", ">=2"), Package("old", "1.0", ">=2"))
    assert report.extras == (
        Extra("both", ("absent>=4",)),
        Extra("far", ("absent>=4",)),
        Extra("near", ()),
    )
    (finding,) = findings(report, "packages")
    assert (finding.severity, finding.fix) == ("error", "pip install 'old>=2'")
    console = Console(width=200)
    with console.capture() as printed:
        console.print(format_installation(report))
    text = printed.get()
    assert "old>=2 is needed; 1.0 is installed." in text
    assert "Extras that are complete: near" in text


def test_a_source_tree_has_no_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(installation.metadata, "metadata", missing)
    report = examine_installation()
    assert (report.packages, report.extras) == ((), ())
    (finding,) = findings(report, "packages")
    assert (finding.severity, finding.fix) == ("info", "pip install .")
