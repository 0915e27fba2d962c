"""Completion scripts of both programs, read by a shell."""

from __future__ import annotations

import subprocess
import sys

import pytest

import memory.cli
import perception.cli
from sparse_core.common import completion


def complete(script: str, program: str, *words: str) -> list[str]:
    """Return the completions that bash offers for the last word."""
    line = " ".join([program, *words])
    asked = (
        f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; COMPREPLY=()\n"
        f"_shtab_{program} {program} '{words[-1]}' '{words[-2] if len(words) > 1 else program}'\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("main", "program", "command", "option"),
    [(perception.cli.main, "perceive", "detect", "--score"), (memory.cli.main, "recall", "query", "--near")],
)
def test_bash_completes_commands_and_options(
    main, program: str, command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert command in complete(script, program, command[:3])
    assert option in complete(script, program, command, option[:4])


def test_a_missing_library_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "module_available", lambda name: False)
    assert perception.cli.main(["completion", "bash"]) == 2
    assert "pip install 'sparsight[completion]'" in capsys.readouterr().err


def test_help_imports_no_library_of_a_command() -> None:
    program = (
        "import sys, perception.cli\n"
        "try: perception.cli.main(['--help'])\n"
        "except SystemExit: print('torch' in sys.modules, 'shtab' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["False", "False"]
