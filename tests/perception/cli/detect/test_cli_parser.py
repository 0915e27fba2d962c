"""Wrong arguments: errors name the command, guess the option and point to the help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparse_core.common.parser import CommandParser
from tests.perception.cli.conftest import Outcome

Perceive = Callable[..., Outcome]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["detekt"], "perceive: error: no command 'detekt'. Did you mean detect?"),
        (["detect", "a.bin", "--devise", "cuda"], "perceive detect: error: unrecognized arguments: --devise"),
        (["detect", "a.bin", "--devise", "cuda"], "Did you mean --device?"),
        (["detect", "a.bin", "--score", "2"], "argument --score: must be a number from 0 to 1, got '2'"),
        (["detect", "a.bin", "--limits", "-1"], "argument --limits: must be a positive number, got '-1'"),
        (["detect", "a.bin", "--out", "-q"], "argument --out: expected one argument"),
    ],
)
def test_wrong_arguments(
    words: list[str], error: str, perceive: Perceive, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        perceive(*words)
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert error in printed
    assert "--help" in printed
    assert printed.count("\n") <= 4


def test_values_may_start_with_a_minus() -> None:
    parser = CommandParser()
    parser.add_argument("--axes")
    parser.add_argument("--out")
    parser.add_argument("-x", action="store_true")
    assert parser.parse_args(["--axes", "-x,-y,z"]).axes == "-x,-y,z"
    assert parser.parse_args(["--axes", "-51.2,0"]).axes == "-51.2,0"
    assert parser.parse_args(["--axes=-y,x,z", "-x"]).x
    with pytest.raises(SystemExit):
        parser.parse_args(["--out", "-x"])


def test_options_may_stand_between_arguments() -> None:
    parser = CommandParser()
    parser.add_argument("scans", nargs="+")
    parser.add_argument("--score", type=float)
    assert parser.parse_args(["a", "--score", "0.3", "b"]).scans == ["a", "b"]


def test_without_a_command_the_error_lists_the_commands(
    perceive: Perceive, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        perceive()
    assert stopped.value.code == 2
    assert "detect         Detect objects" in capsys.readouterr().err


def test_a_range_is_checked_by_its_option(perceive: Perceive, scans: Path, tmp_path: Path) -> None:
    done = perceive("detect", scans, "--out", tmp_path / "out", "--range", "10,0,0,0,1,1")
    assert done.status == 2
    assert "--range X0,Y0,Z0,X1,Y1,Z1 needs X0 < X1" in done.remarks
