"""Build a wheel with compiled C++ parts, for machines without a compiler.

    python release/platform_wheel.py --out build/wheels
    python release/platform_wheel.py --out build/wheels --machine aarch64

The parts are shared libraries without torch, loaded with ctypes, or modules with Python's stable interface.
One wheel therefore serves every Python and every torch. zig compiles them against glibc 2.28 for both
processors, from any Linux: ``pip install ziglang wheel``. Variants for AVX2 and AVX-512 are chosen at run
time. The name of a library is a digest of its source, flags and processor, so that a library of another
source is never loaded.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sparse_core.kernels import native  # noqa: E402

PACKAGES = ("memory", "perception", "sparse_core")
#: The oldest C library that the wheel runs with: Debian 10, Ubuntu 20.04, RHEL 8 and later.
GLIBC = "2.28"
MACHINES = ("x86_64", "aarch64")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the wheel")
    parser.add_argument("--machine", choices=MACHINES, default=platform.machine(), help="default: this one")
    options = parser.parse_args(arguments)
    print(build(options.out, options.machine))
    return 0


def build(out: Path, machine: str) -> Path:
    """Build the wheel and return its path."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        _run("pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(work / "pure"), str(ROOT))
        (pure,) = (work / "pure").glob("*.whl")
        _run("wheel", "unpack", "--dest", str(work / "tree"), str(pure))
        (tree,) = (work / "tree").iterdir()
        for source in sources(tree, machine):
            compile_part(source, tree / "sparse_core/kernels" / native.BUILT.name, machine)
        _run("wheel", "pack", "--dest-dir", str(work), str(tree))
        (packed,) = work.glob("*.whl")
        tag = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
        _run("wheel", "tags", "--remove", "--platform-tag", tag, str(packed))
        (tagged,) = work.glob("*.whl")
        return Path(shutil.copy(tagged, out / tagged.name))


def sources(tree: Path, machine: str) -> Iterator[Path]:
    """Yield the C++ files of a tree that are for a processor."""
    for source in sorted(path for package in PACKAGES for path in (tree / package).rglob("*.cpp")):
        if native.machine_of(source.read_bytes()) in (None, machine):
            yield source


def compile_part(source: Path, folder: Path, machine: str) -> Path:
    """Compile a source into a folder and return the library."""
    folder.mkdir(parents=True, exist_ok=True)
    text = source.read_bytes()
    library = folder / native.library_name(text, machine=machine)
    target = ("-target", f"{machine}-linux-gnu.{GLIBC}", "-s")
    flags = (*native.flags_of(text), *native.include_flags(text))
    _run("ziglang", "c++", *target, *flags, str(source), "-o", str(library))
    return library


def _run(module: str, *words: str) -> None:
    """Run a Python module; its output is shown if it fails."""
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{module} {words[0]} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    raise SystemExit(main())
