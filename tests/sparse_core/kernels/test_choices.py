"""How a tuner comes to a choice; its files are tested with n:m products."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from sparse_core.kernels.choices import Tuner, key_of


class Case(NamedTuple):
    device: str
    rows: int


def tuner(folder: Path, version: int = 1) -> Tuner[Case, str]:
    return Tuner(
        "words",
        version,
        folder / "shipped.json",
        parse=lambda entry: str(entry[0]),
        entry=lambda choice: [choice],
        mode="table",
    )


def never() -> str:
    raise AssertionError("not to be called")


def test_what_is_known_and_usable_is_taken(tmp_path: Path) -> None:
    words, case = tuner(tmp_path), Case("GPU", 8)
    words.write(words.shipped, {key_of(case): "shipped"})
    with words.tuning("measure", folder=tmp_path / "own"):
        known = words.choose(case, usable=lambda choice: True, fallback=never, measure=never)
        assert known == "shipped"
        other = words.choose(
            case, usable=lambda choice: choice != "shipped", fallback=never, measure=lambda: "new"
        )
        assert other == words.lookup(case) == "new"


def test_nothing_is_measured_where_it_may_not(tmp_path: Path) -> None:
    words, case = tuner(tmp_path), Case("GPU", 8)
    with words.tuning("table", folder=tmp_path):
        assert words.choose(case, usable=bool, fallback=lambda: "guess", measure=never) == "guess"
    with words.tuning("measure", folder=tmp_path):
        assert words.choose(case, usable=bool, fallback=lambda: "guess", measure=None) == "guess"
        assert words.lookup(case) is None
        with pytest.raises(MemoryError):
            words.choose(case, usable=bool, fallback=never, measure=_full)
        assert words.lookup(case) is None


def _full() -> str:
    raise MemoryError


def test_versions_do_not_read_each_other(tmp_path: Path) -> None:
    old, new, case = tuner(tmp_path), tuner(tmp_path, version=2), Case("GPU", 8)
    old.write(tmp_path / "shipped.json", {key_of(case): "old"})
    with new.tuning("table", folder=tmp_path):
        assert new.lookup(case) is None
        assert new.file.name == "words-2.json"


def test_processes_keep_each_others_choices(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from test_choices import Case, tuner\n"
        "children = []\n"
        "for name in 'abc':\n"
        "    if child := os.fork():\n"
        "        children.append(child)\n"
        "        continue\n"
        "    words = tuner(Path(sys.argv[1]))\n"
        "    with words.tuning('table', folder=sys.argv[1]):\n"
        "        for row in range(5): words.remember(Case(name, row), 'x')\n"
        "    os._exit(0)\n"
        "assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]\n"
    )
    # The three are forked from one that has imported all.
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).parent, check=True)
    words = tuner(tmp_path)
    with words.tuning("table", folder=tmp_path):
        assert len(words.read(words.file)) == 15
