"""Tests of the waiting policy: programs set it before they import torch; imports do not change it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparse_core.common.commands import sleep_while_waiting

ROOT = Path(__file__).parents[3]
CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
#: Replacement of torch that prints the waiting policy and exits.
PRINTS = "import os, sys; print({name: os.environ[name] for name in %r if name in os.environ}); sys.exit()"
#: State that an import must not change. The last line loads most of both packages.
UNCHANGED = """
import os, sys
def state():
    return dict(os.environ), list(sys.meta_path), list(sys.path_hooks)
before = state()
import perception, memory
print(state() == before, "torch" in sys.modules)
import torch
before = *state(), torch.get_num_threads(), torch.get_num_interop_threads()
import perception.detector, memory.encode.scene
print((*state(), torch.get_num_threads(), torch.get_num_interop_threads()) == before)
"""


def run(code: str, *paths: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in CHOICES}
    search = os.pathsep.join(map(str, (*paths, ROOT)))
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, "PYTHONPATH": search, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture
def printing_torch(tmp_path: Path) -> Path:
    (tmp_path / "torch.py").write_text(PRINTS % (CHOICES,))
    return tmp_path


def test_importing_changes_neither_environment_nor_import_machinery() -> None:
    assert run(UNCHANGED).stdout == "True False\nTrue\n"


@pytest.mark.parametrize("program", ["perception", "memory"])
def test_a_command_lets_threads_sleep_soon(program: str, printing_torch: Path) -> None:
    code = f"from {program}.cli import main\ntry: main(['--version'])\nexcept SystemExit: import torch"
    printed = run(code, printing_torch).stdout.splitlines()[-1]
    assert printed == "{'OMP_WAIT_POLICY': 'passive', 'GOMP_SPINCOUNT': '1000'}"


@pytest.mark.parametrize("name", CHOICES)
def test_a_policy_of_the_user_stays(name: str, printing_torch: Path) -> None:
    code = "from sparse_core.common.commands import sleep_while_waiting; sleep_while_waiting(); import torch"
    assert run(code, printing_torch, **{name: "7"}).stdout == str({name: "7"}) + "\n"


def test_a_loaded_torch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CHOICES:
        monkeypatch.delenv(name, raising=False)
    assert "torch" in sys.modules
    before = dict(os.environ)
    sleep_while_waiting()
    assert os.environ == before


@pytest.mark.parametrize("module", ["perception", "memory", "perception.cli", "memory.cli"])
def test_torch_is_not_loaded_before_it_is_needed(module: str, printing_torch: Path) -> None:
    assert run(f"import {module}; print('ready')", printing_torch).stdout == "ready\n"


@pytest.mark.slow
def test_the_openmp_library_takes_it() -> None:
    code = "from sparse_core.common.commands import sleep_while_waiting; sleep_while_waiting(); import torch"
    printed = run(code, OMP_DISPLAY_ENV="true").stderr
    if "GOMP_SPINCOUNT" not in printed:
        pytest.skip("this torch's OpenMP library does not print its settings")
    assert "GOMP_SPINCOUNT = '1000'" in printed
