"""``make`` asks nobody for a password: root installs system packages, others are told the command."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

#: Programs that note their calls; ``id`` says who calls, ``dpkg`` that nothing is installed.
_NOTED = '#!/bin/sh\necho "$(basename "$0") $*" >> "$CALLS"\n'


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    if shutil.which("make") is None:
        pytest.skip("no make")
    made = tmp_path / "bin"
    made.mkdir()
    for name in ("sudo", "apt-get"):
        (made / name).write_text(_NOTED)
    (made / "dpkg").write_text("#!/bin/sh\nexit 1\n")
    (made / "id").write_text("#!/bin/sh\necho $USER_ID\n")
    for path in made.iterdir():
        path.chmod(0o755)
    return made


def make(target: str, user: int, programs: Path, repository: Path) -> tuple[str, list[str]]:
    calls = programs.parent / "calls"
    calls.unlink(missing_ok=True)
    done = subprocess.run(
        ["make", "--no-print-directory", "-f", repository / "Makefile", target, "BROWSER=no-such-browser"],
        cwd=programs.parent,
        env={
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "USER_ID": f"{user}", "CALLS": str(calls)
        },
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return done.stdout, calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.parametrize(
    ("target", "package"), [("system-packages", "libgl1"), ("browser", "no-such-browser")]
)
def test_system_packages(target: str, package: str, programs: Path, repository: Path) -> None:
    said, called = make(target, 1000, programs, repository)
    assert called == []
    (command,) = (line.strip() for line in said.splitlines() if "sudo" in line)
    assert command.startswith("sudo apt-get install ")
    assert package in command.split()
    said, called = make(target, 0, programs, repository)
    assert "sudo" not in said
    assert [line.split()[:2] for line in called] == [["apt-get", "update"], ["apt-get", "install"]]
    assert package in called[1].split()
