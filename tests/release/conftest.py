"""The distribution, built, and installed into an environment of its own as a user would."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

#: The pin of the Makefile: a CPU build where one is at hand, so that no CUDA libraries are fetched.
TORCH = "torch==2.13.0"


class Environment(NamedTuple):
    """A virtual environment.

    Attributes:
        folder: of it.
        torch_bytes: its size with torch and what torch needs, before the project came.
    """

    folder: Path
    torch_bytes: int

    @property
    def site_packages(self) -> Path:
        """Where it keeps packages."""
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def run(self, *words: object, cwd: Path) -> str:
        """Run one of its programs outside of the repository; gives what it printed."""
        program = self.folder / "bin" / str(words[0])
        return run([program, *words[1:]], cwd=cwd, env=clean_environment())


@pytest.fixture
def release_module(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a program of the folder ``release`` as a module."""
    monkeypatch.syspath_prepend(str(repository / "release"))
    return importlib.import_module


def clean_environment() -> dict[str, str]:
    """Of this process, without what leads to the repository or another environment."""
    left_out = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def run(words: Sequence[object], *, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a program to its end; a failure shows what it said."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def bytes_in() -> Callable[[Path], int]:
    """Function that tells what the files of a folder hold."""
    return _bytes_in


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.fixture(scope="session")
def distributions(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of what git knows, and the wheel that is built of it."""
    scratch = tmp_path_factory.mktemp("release")
    source, dist = scratch / "source", scratch / "dist"
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=repository)
    for name in filter(None, listed.split("\0")):
        if (repository / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(repository / name, source / name)
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run([sys.executable, "-c", build, dist], cwd=source, env=clean_environment())
    (sdist,) = dist.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*pip, "--wheel-dir", dist, sdist], cwd=scratch, env=clean_environment())
    (wheel,) = dist.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="session")
def installed(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with torch and the wheel, and what the wheel asks for."""
    folder = tmp_path_factory.mktemp("user") / "venv"
    run([sys.executable, "-m", "venv", folder], cwd=folder.parent, env=clean_environment())
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    try:
        run([*pip, TORCH], cwd=folder.parent, env=clean_environment())
    except AssertionError as error:
        pytest.skip(f"pip could not fetch {TORCH}: {str(error)[-300:]}")
    before = _bytes_in(folder)
    run([*pip, distributions[1]], cwd=folder.parent, env=clean_environment())
    return Environment(folder, before)
