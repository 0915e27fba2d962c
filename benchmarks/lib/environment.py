"""Environment of a measurement: code, hardware and versions, as plain values for JSON.

Host names, user names and paths stay out: results are published.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import subprocess
import tarfile
import tempfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
#: Folders whose Python files decide what is measured.
SOURCES = ("sparse_core", "perception", "memory", "benchmarks")
_DISTRIBUTIONS = (
    "numpy",
    "scipy",
    "triton",
    "spconv-cu120",
    "spconv-cu126",
    "safetensors",
    "scikit-learn",
    "sparsight",
)


def data_root() -> Path:
    """Return the folder of the real data: ``$SPARSIGHT_DATA``, or ``../shared/data`` next to the checkout."""
    configured = os.environ.get("SPARSIGHT_DATA")
    return Path(configured) if configured else ROOT.parent / "shared" / "data"


def describe(device: torch.device) -> dict[str, Any]:
    """Commit, hardware and versions of this process.

    Args:
        device: the device that was measured.
    """
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": _code(),
        "hardware": {"cpu": _processor(), "gpu": _accelerator(device)},
        "versions": _versions(),
        "threads": torch.get_num_threads(),
        # A loaded machine makes every time longer; this tells.
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def device_name(values: dict[str, Any]) -> str:
    """Return the model of the device that a result was measured on: the GPU if there is one."""
    hardware: dict[str, Any] = values["environment"]["hardware"]
    model: str = (hardware["gpu"] or hardware["cpu"])["model"]
    return model


def _code() -> dict[str, Any]:
    """Commit and dirty flag (None outside a git checkout), and a digest of the sources that always works."""
    return {"commit": _git("rev-parse", "HEAD"), "dirty": is_dirty(), "source_sha256": source_digest(ROOT)}


def source_digest_of(commit: str) -> str:
    """Digest of the sources of a commit of this repository, as results hold it.

    Raises:
        ValueError: no such commit.
    """
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, *SOURCES], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        raise ValueError(f"{commit}: {packed.stderr.decode(errors='replace').strip()}")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        if hasattr(tarfile, "data_filter"):
            files.extractall(folder, filter="data")
        else:  # Before Python 3.11.4; what git packed is safe.
            files.extractall(folder)
        return source_digest(Path(folder))


def full_commit(commit: str) -> str:
    """All digits of a commit of this repository.

    Raises:
        ValueError: no such commit.
    """
    found = _git("rev-parse", "--verify", f"{commit}^{{commit}}")
    if found is None:
        raise ValueError(f"{commit}: no commit of this repository")
    return found


def is_dirty() -> bool | None:
    """Return True if anything but results differs from the commit; None outside a git checkout.

    New results do not count, so that several benchmarks can be published one after another.
    """
    status = _git("status", "--porcelain", "--", ".", ":(exclude)benchmarks/results")
    return None if status is None else bool(status)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def source_digest(root: Path) -> str:
    """Digest of the Python files of the packages and benchmarks of a checkout."""
    digest = hashlib.sha256()
    for package in SOURCES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _processor() -> dict[str, Any]:
    facts = _colon_file("/proc/cpuinfo")
    flags = set(facts.get("flags", "").split())
    memory_kb = _colon_file("/proc/meminfo").get("MemTotal", "0 kB").split()[0]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "model": facts.get("model name", platform.processor() or platform.machine()),
        "cores": usable,
        "memory_gb": round(int(memory_kb) / 2**20, 1),
        "vector": torch.backends.cpu.get_cpu_capability(),
        "matrix": sorted(
            flags & {"amx_tile", "amx_bf16", "amx_int8", "avx512_bf16", "avx512_fp16", "avx_vnni"}
        ),
    }


def _accelerator(device: torch.device) -> dict[str, Any] | None:
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    return {
        "model": properties.name,
        "memory_gb": round(properties.total_memory / 2**30, 1),
        "capability": f"{properties.major}.{properties.minor}",
    }


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": str(torch.backends.cudnn.version()) if torch.backends.cudnn.is_available() else None,
        "platform": f"{platform.system()} {platform.release()}",
    }
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _colon_file(path: str) -> dict[str, str]:
    """First value of each key in a file of ``key : value`` lines; empty where there is no such file."""
    facts: dict[str, str] = {}
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return facts
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    return facts
