"""Check the installation: versions, devices, extras, compiled parts and caches."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.console import Group, RenderableType
from rich.text import Text

import sparse_core
from perception.doctor.report import format_finding, format_summary, sorted_findings
from perception.run.precision import has_bfloat16
from perception.scans.finding import Finding
from sparse_core.common.files import cache_folder
from sparse_core.common.libraries import module_available
from sparse_core.common.machine import processor_name
from sparse_core.common.table import Table, cell
from sparse_core.errors import ImplementationError
from sparse_core.kernels import kernel_packs, native

_PROJECT = "sparsight"
_PACKAGES = ("memory", "perception", "sparse_core")
_ROOT = Path(sparse_core.__file__).parents[1]
#: NVIDIA's driver creates this file, also if torch cannot use the driver.
_DRIVER = Path("/proc/driver/nvidia/version")
_REINSTALL = f"Reinstall the package: pip install --force-reinstall --no-deps {_PROJECT}"


@dataclass(frozen=True)
class Package:
    """An installed or missing package.

    Attributes:
        name: name on the package index.
        version: installed version, or None.
        wanted: versions that work, such as ``>=2.11``; empty for any.
    """

    name: str
    version: str | None
    wanted: str

    @property
    def works(self) -> bool:
        """True if the installed version is one that works."""
        if self.version is None:
            return False
        return SpecifierSet(self.wanted).contains(self.version, prereleases=True)


@dataclass(frozen=True)
class Extra:
    """An extra of the package and what it lacks.

    Attributes:
        name: name, as in ``pip install 'sparsight[name]'``.
        missing: packages that are not installed, or too old.
    """

    name: str
    missing: tuple[str, ...]


@dataclass(frozen=True)
class CompiledPart:
    """A compiled part.

    Attributes:
        source: its C++ file, relative to the packages.
        state: ``"in the wheel"``, ``"in the cache"``, ``"compiled at first use"``, ``"missing"``, or
            ``"for x86_64 only"``.
    """

    source: str
    state: str


@dataclass(frozen=True)
class Device:
    """A processor or GPU.

    Attributes:
        name: name, such as ``"cuda:0"``.
        description: model, memory and instruction sets.
    """

    name: str
    description: str


@dataclass(frozen=True)
class Cache:
    """A cache folder.

    Attributes:
        path: folder.
        holds: what is stored there.
        files: number of files.
        size_bytes: their size.
        writable: True if it exists and can be written, or can be created.
    """

    path: str
    holds: str
    files: int
    size_bytes: int
    writable: bool


@dataclass(frozen=True)
class InstallationReport:
    """The installation and what should be fixed, errors first."""

    versions: dict[str, str]
    packages: tuple[Package, ...]
    devices: tuple[Device, ...]
    extras: tuple[Extra, ...]
    parts: tuple[CompiledPart, ...]
    caches: tuple[Cache, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True if no finding is an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        findings = [{name: getattr(finding, name) for name in _SHOWN} for finding in self.findings]
        return asdict(self) | {"findings": findings, "ok": self.ok}


_SHOWN = ("severity", "check", "message", "fix")


def examine_installation() -> InstallationReport:
    """Check this Python environment and this machine; compiles and downloads nothing."""
    packages, extras = _requirements()
    parts, broken = _parts()
    caches = (
        _cache(cache_folder(), "compiled C++, measured choices"),
        _cache(_triton_folder(), "kernels compiled by Triton"),
    )
    findings = [
        *_check_packages(packages), *broken, *_check_parts(parts), *_check_gpu(), *_check_caches(caches),
    ]  # fmt: skip
    return InstallationReport(
        _versions(), packages, tuple(_devices()), extras, parts, caches, sorted_findings(findings)
    )


def format_installation(report: InstallationReport) -> RenderableType:
    """Format the report as tables and paragraphs for a ``rich`` console."""
    lacking = [(extra.name, ", ".join(extra.missing)) for extra in report.extras if extra.missing]
    complete = ", ".join(extra.name for extra in report.extras if not extra.missing)
    parts: list[RenderableType] = [
        Table(("", "version"), list(report.versions.items())),
        Table(("device", ""), [(device.name, device.description) for device in report.devices]),
        Table(("compiled part", "state"), [(part.source, part.state) for part in report.parts]),
        Table(
            ("cache", "holds", "files", "MB"),
            [(one.path, one.holds, one.files, cell(one.size_bytes / 1e6, ".1f")) for one in report.caches],
        ),
    ]
    if report.extras:
        parts.append(Text(f"Extras that are complete: {complete or 'none'}"))
    if lacking:
        command = f"pip install '{_PROJECT}[NAME]'"
        parts.append(Table(("extra", f"packages that {command} installs"), lacking))
    parts += map(format_finding, report.findings)
    return Group(*parts, format_summary(report.findings))


def _versions() -> dict[str, str]:
    return {
        _PROJECT: sparse_core.__version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "CUDA of torch": torch.version.cuda or "none (CPU build)",
        "C++ compiler": native.compiler() or "none",
        "system": f"{_system()}, {platform.machine()}",
    }


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:  # Not Linux, or a container without that file.
        return platform.system()


def _requirements() -> tuple[tuple[Package, ...], tuple[Extra, ...]]:
    """Return the packages of the plain install and the extras, or nothing for a source tree."""
    try:
        described = metadata.metadata(_PROJECT)
    except metadata.PackageNotFoundError:
        return (), ()
    wanted = [Requirement(line) for line in described.get_all("Requires-Dist") or []]
    names = described.get_all("Provides-Extra") or []
    packages = tuple(_package(one) for one in _needed(wanted, ""))
    extras = []
    for name in sorted(names):
        needed = {package.name: package for package in map(_package, _needed(wanted, name))}
        missing = [package for package in needed.values() if not package.works and package not in packages]
        extras.append(Extra(name, tuple(f"{package.name}{package.wanted}" for package in missing)))
    return packages, tuple(extras)


def _needed(
    wanted: list[Requirement], extra: str, seen: frozenset[str] = frozenset()
) -> Iterator[Requirement]:
    """Yield the requirements of an extra that apply here; those of extras within it too."""
    for one in wanted:
        conditional = one.marker is not None and "extra" in str(one.marker)
        applies = one.marker is None or one.marker.evaluate({"extra": extra})
        if not applies or conditional != bool(extra):
            continue
        if one.name != _PROJECT:
            yield one
            continue
        for inner in sorted(one.extras - seen):
            yield from _needed(wanted, inner, seen | {extra, inner})


def _package(wanted: Requirement) -> Package:
    try:
        version = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        version = None
    return Package(wanted.name, version, str(wanted.specifier))


def _parts() -> tuple[tuple[CompiledPart, ...], list[Finding]]:
    parts: list[CompiledPart] = []
    broken: list[Finding] = []
    for source in sorted(path for name in _PACKAGES for path in (_ROOT / name).rglob("*.cpp")):
        machine = native.machine_of(source.read_bytes())
        library = native.existing_library(source)
        name = source.relative_to(_ROOT).as_posix()
        if machine not in (None, platform.machine()):
            state = f"for {machine} only"
        elif library is not None:
            state = "in the wheel" if library.parent == native.BUILT else "in the cache"
            broken += _check_library(name, source, library)
        else:
            state = "missing" if native.compiler() is None else "compiled at first use"
        parts.append(CompiledPart(name, state))
    return tuple(parts), broken


def _check_library(name: str, source: Path, library: Path) -> Iterator[Finding]:
    try:
        native.load(source)
    except ImplementationError as error:
        fix = _REINSTALL if library.parent == native.BUILT else f"Delete {library}; it is compiled again."
        yield Finding("error", "compiled parts", f"{name}: {error}", fix)


def _check_packages(packages: tuple[Package, ...]) -> Iterator[Finding]:
    if not packages:
        yield Finding(
            "info", "packages", "The package is not installed; this is a source tree.", "pip install ."
        )
    for package in packages:
        if not package.works:
            have = "is not installed" if package.version is None else f"{package.version} is installed"
            fix = f"pip install '{package.name}{package.wanted}'"
            yield Finding("error", "packages", f"{package.name}{package.wanted} is needed; {have}.", fix)


def _check_parts(parts: tuple[CompiledPart, ...]) -> Iterator[Finding]:
    missing = [part.source for part in parts if part.state == "missing"]
    if missing:
        yield Finding(
            "warning",
            "compiled parts",
            f"There is no C++ compiler, so slower code runs instead of {', '.join(missing)}.",
            "Install a platform wheel (make wheels), or a compiler (apt install g++).",
        )


def _check_gpu() -> Iterator[Finding]:
    if not torch.cuda.is_available():
        if _DRIVER.is_file() and torch.version.cuda is None:
            yield Finding(
                "error", "GPU", "There is an NVIDIA driver, but torch is a build for the CPU.",
                "Install a CUDA build of torch, see https://pytorch.org/get-started/locally",
            )  # fmt: skip
        elif _DRIVER.is_file():
            yield Finding(
                "error", "GPU", f"torch for CUDA {torch.version.cuda} cannot use the NVIDIA driver.",
                "Update the driver, install torch for an older CUDA, or pass the device to the container.",
            )  # fmt: skip
        return
    for index in range(torch.cuda.device_count()):
        yield from _check_device(index)
    if not module_available("triton"):
        fix = f"pip install '{_PROJECT}[triton]'"
        yield Finding("error", "Triton", "Kernels for a GPU need Triton, which is not installed.", fix)
    elif not any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))):
        yield Finding(
            "warning", "Triton", "Triton compiles its launcher with a C compiler, and there is none.",
            "Install one (apt install gcc), or name one in CC.",
        )  # fmt: skip


def _check_device(index: int) -> Iterator[Finding]:
    capability = torch.cuda.get_device_capability(index)
    try:
        torch.ones(8, device=f"cuda:{index}").sum().item()
    except RuntimeError as error:
        yield Finding(
            "error", "GPU", f"cuda:{index} fails: {str(error).splitlines()[0]}",
            f"Install a torch build for compute capability {capability[0]}.{capability[1]}.",
        )  # fmt: skip
        return
    if module_available("triton"):
        # Checks of data sets, which load this module too, need no graphs.
        from perception.run.graph import KERNELS

        pack = kernel_packs.pack_path(KERNELS, 10 * capability[0] + capability[1])
        if not pack.is_file():
            yield Finding(
                "info", "kernels", f"cuda:{index}: there are no shipped kernels ({pack.name}).",
                "Nothing to do: Triton compiles them at the first frame, which takes about a minute.",
            )  # fmt: skip


def _check_caches(caches: tuple[Cache, ...]) -> Iterator[Finding]:
    for cache in caches:
        if not cache.writable:
            yield Finding(
                "warning", "caches", f"{cache.path} is not writable. Every process makes {cache.holds}.",
                "Make it writable, or set XDG_CACHE_HOME (Triton: TRITON_CACHE_DIR) to a folder that is.",
            )  # fmt: skip


def _devices() -> Iterator[Device]:
    features = [torch.backends.cpu.get_cpu_capability(), *(["bfloat16"] if has_bfloat16() else [])]
    threads = f"{torch.get_num_threads()} threads of torch on {os.cpu_count()} cores"
    yield Device("cpu", f"{processor_name()}, {', '.join(features)}, {threads}")
    for index in range(torch.cuda.device_count()):
        known = torch.cuda.get_device_properties(index)
        size = f"{known.total_memory / 2**30:.0f} GiB"
        yield Device(f"cuda:{index}", f"{known.name}, {size}, compute capability {known.major}.{known.minor}")


def _triton_folder() -> Path:
    named = os.environ.get("TRITON_CACHE_DIR")
    return Path(named) if named else Path(os.environ.get("TRITON_HOME", Path.home())) / ".triton" / "cache"


def _cache(folder: Path, holds: str) -> Cache:
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    # The nearest folder that exists decides whether a missing one can be created.
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK)
    return Cache(str(folder), holds, len(files), sum(path.stat().st_size for path in files), writable)
