"""Run the compiled parts of the aarch64 wheel under emulation, and compare their results with this machine's.

    python release/check_aarch64.py --work build/aarch64

It needs Linux with qemu-user (``apt install qemu-user``), apt, zig (``pip install ziglang wheel``) and 2 GB.
Nothing is installed on the machine: the work folder holds Python for arm64 and the packages. It has torch
2.10, the last one whose wheel for aarch64 needs no CUDA libraries. The compiled parts do not depend on torch.

1. Compare the results of the compiled parts with this machine's to the bit (``compiled_results.py``).
2. Run the tests of the compiled parts, which compare them with array code.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import platform_wheel

ROOT = platform_wheel.ROOT
#: A processor with NEON and half precision, without SVE, such as those of Jetson Orin.
PROCESSOR = "cortex-a76"
DEBIAN = (
    "libc6", "libgcc-s1", "libstdc++6", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib",
    "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1",
)  # fmt: skip
PACKAGES = (
    "numpy", "scipy", "safetensors", "packaging", "pyyaml", "rich", "matplotlib", "pillow", "sympy",
    "networkx", "jinja2", "fsspec", "filelock", "typing_extensions",
    "pytest", "pytest-timeout", "pytest-xdist", "hypothesis",
)  # fmt: skip
TORCH = "torch==2.10.0"
TAGS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
TESTS = (
    "tests/memory/index/test_memory_index_compiled.py::test_bits_do_not_depend_on_what_is_asked_together",
    "tests/memory/index/test_memory_index_compiled.py::test_half_precision_is_read_to_the_bit",
    "tests/perception/model/test_compiled_points.py",
    "tests/sparse_core/conv/convolution/cpu/test_compiled.py",
    "tests/sparse_core/conv/convolution/cpu/int8/test_byte_layers.py::test_every_path_of_this_processor",
    "tests/sparse_core/conv/convolution/cpu/int8/test_byte_layers.py::test_rows_are_rounded_to_the_nearest_bytes",
    "tests/sparse_core/conv/convolution/cpu/int8/test_byte_layers.py::test_largest_bytes_of_runs",
    "tests/sparse_core/linalg/test_loops.py",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 1 if a result differs or a test fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for everything; kept between runs")
    parser.add_argument("--wheel", type=Path, help="wheel to check (default: build one)")
    parser.add_argument("--no-tests", action="store_true", help="compare results only")
    options = parser.parse_args(arguments)
    reason = why_not()
    if reason is not None:
        raise SystemExit(f"check_aarch64: {reason}")
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    make_system(work)
    install_packages(work)
    tree = unpack(options.wheel or platform_wheel.build(work / "dist", "aarch64"), work / "tree")
    script, results = str(ROOT / "release/compiled_results.py"), str(work / "results")
    subprocess.run([sys.executable, script, "write", results], env=environment(ROOT), check=True)
    failed = emulate(work, tree, script, "compare", results)
    if not options.no_tests:
        failed = emulate(work, tree, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *TESTS) or failed
    return int(failed != 0)


def why_not() -> str | None:
    """Return what is missing on this machine, or None."""
    if sys.platform != "linux":
        return "emulation needs Linux"
    for program, package in (("qemu-aarch64", "qemu-user"), ("apt-get", "apt"), ("dpkg-deb", "dpkg")):
        if shutil.which(program) is None:
            return f"{program} is missing: apt install {package}"
    if importlib.util.find_spec("ziglang") is None:
        return "zig is missing: pip install ziglang wheel"
    return None


def make_system(work: Path) -> None:
    """Unpack Debian's C library and Python for arm64 into the folder ``system``, with lists of their own."""
    if (work / "system/usr/bin/python3.11").is_file():
        return
    lists, archives = work / "apt/lists/partial", work / "apt/archives"
    for folder in (lists, archives / "archives/partial"):
        folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "APT::Architecture": "arm64", "APT::Architectures::": "arm64", "Dir::State::Lists": lists.parent,
        "Dir::Cache": archives, "Dir::State::status": "/dev/null", "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",
    }  # fmt: skip
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", *options, "-qq", "update"], check=True)
    subprocess.run(["apt-get", *options, "-qq", "download", *DEBIAN], cwd=archives, check=True)
    for archive in archives.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, work / "system"], check=True)


def install_packages(work: Path) -> None:
    """Install Python packages for aarch64 into the folder ``packages``."""
    if (work / "packages/torch").is_dir():
        return
    tags = [word for tag in TAGS for word in ("--platform", f"{tag}_aarch64")]
    kinds = [word for abi in ("cp311", "abi3", "none") for word in ("--abi", abi)]
    target = ["--target", str(work / "packages"), "--only-binary", ":all:", "--python-version", "3.11"]
    common = [sys.executable, "-m", "pip", "install", "--quiet", *target, *tags, *kinds]
    subprocess.run([*common, *PACKAGES], check=True)
    # Its dependencies are listed above: pip would judge their conditions by this machine.
    subprocess.run([*common, "--no-deps", TORCH], check=True)


def unpack(wheel: Path, tree: Path) -> Path:
    """Unpack a wheel next to the tests of this tree, and return the folder."""
    shutil.rmtree(tree, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree)
    for name in ("tests", "benchmarks", "demos", "pyproject.toml"):
        (tree / name).symlink_to(ROOT / name)
    return tree


def environment(*folders: Path) -> dict[str, str]:
    """Return the environment of a program that imports from some folders."""
    paths = os.pathsep.join(map(str, folders))
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "QEMU_CPU": PROCESSOR}


def emulate(work: Path, tree: Path, *words: str) -> int:
    """Run the emulated Python in the unpacked wheel, and return the exit status."""
    system = work / "system"
    # With another cache, libraries that this machine compiled are out of reach.
    given = environment(tree, work / "packages") | {"XDG_CACHE_HOME": str(work / "cache")}
    command = ["qemu-aarch64", "-L", str(system), str(system / "usr/bin/python3.11"), *words]
    return subprocess.run(command, cwd=tree, env=given, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
