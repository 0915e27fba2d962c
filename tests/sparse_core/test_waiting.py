"""Threads that wait sleep soon: what the environment says at the moment torch is loaded, and afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
#: In torch's place: tells how threads would wait, and ends the program.
TELLS = "import os, sys; print({name: os.environ[name] for name in %r if name in os.environ}); sys.exit()"


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
def telling_torch(tmp_path: Path) -> Path:
    (tmp_path / "torch.py").write_text(TELLS % (CHOICES,))
    return tmp_path


@pytest.mark.parametrize("module", ["perception", "memory", "perception.detector", "memory.search.attention"])
def test_torch_is_loaded_with_threads_that_sleep_soon(module: str, telling_torch: Path) -> None:
    told = run(f"import {module}, torch", telling_torch).stdout
    assert told == "{'OMP_WAIT_POLICY': 'passive', 'GOMP_SPINCOUNT': '1000'}\n"


@pytest.mark.parametrize("module", ["perception", "memory", "perception.cli", "memory.cli"])
def test_torch_is_not_loaded_before_it_is_needed(module: str, telling_torch: Path) -> None:
    assert run(f"import {module}; print('ready')", telling_torch).stdout == "ready\n"


@pytest.mark.parametrize("name", CHOICES)
def test_what_the_user_chose_stays(name: str, telling_torch: Path) -> None:
    done = run("import perception, torch", telling_torch, **{name: "7"})
    assert done.stdout == str({name: "7"}) + "\n"


def test_the_environment_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    code = (
        "import os; before = dict(os.environ); from sparse_core.waiting import"
        " sleep_while_waiting; sleep_while_waiting(); sleep_while_waiting(); import sys; finders = len("
        "sys.meta_path); import torch; sleep_while_waiting(); print(os.environ == before, finders - len("
        "sys.meta_path), vars(torch.__loader__).keys() & {'exec_module'})"
    )
    assert run(code, tmp_path).stdout == "True 1 set()\n"


def test_an_environment_without_torch_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch here')")
    code = (
        "import os, memory\nfor _ in range(2):\n    try:\n        import torch\n"
        "    except ModuleNotFoundError as error:\n"
        "        print(error, {'OMP_WAIT_POLICY', 'GOMP_SPINCOUNT'} & {*os.environ})"
    )
    assert run(code, tmp_path).stdout == "no torch here set()\n" * 2


@pytest.mark.slow
@pytest.mark.parametrize("module", ["perception", "memory"])
def test_the_openmp_library_takes_it(module: str) -> None:
    told = run(f"import {module}, torch", OMP_DISPLAY_ENV="true").stderr
    if "GOMP_SPINCOUNT" not in told:
        pytest.skip("this torch's OpenMP library does not tell its settings")
    assert "GOMP_SPINCOUNT = '1000'" in told
