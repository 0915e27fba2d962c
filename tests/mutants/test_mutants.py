"""Mutants change behaviour in one place, and leave annotations, errors and texts alone."""

from __future__ import annotations

import pytest
from mutants import mutants_of

SOURCE = '''
def f(x: int | None = None, *, fast: bool = True) -> int | str:
    """Return 1."""
    if x is None or x < 3 and not fast:
        raise ValueError("x + 1 is too small")
    note(f"{x + 1}")
    return min(x * 2, -1)
'''


def test_every_place_changes_once() -> None:
    found = [(mutant.line, mutant.before, mutant.after) for mutant in mutants_of(SOURCE)]
    assert found == [
        (2, "True", "False"),
        (4, "3", "4"),
        (4, "not fast", "fast"),
        (4, "x < 3", "x <= 3"),
        (4, "x < 3 and (not fast)", "x < 3 or not fast"),
        (4, "x is None", "x is not None"),
        (4, "x is None or (x < 3 and (not fast))", "not (x is None or (x < 3 and (not fast)))"),
        (4, "x is None or (x < 3 and (not fast))", "x is None and (x < 3 and (not fast))"),
        (6, "note(f'{x + 1}')", "pass"),
        (7, "-1", "1"),
        (7, "1", "2"),
        (7, "2", "3"),
        (7, "min(x * 2, -1)", "max(x * 2, -1)"),
        (7, "return min(x * 2, -1)", "return None"),
        (7, "x * 2", "x / 2"),
    ]


@pytest.mark.parametrize("source", [SOURCE, "ü = 'ä' + chr(1)\nwhile ü:\n    ü -= 1\n    break\n"])
def test_mutants_are_python_and_differ(source: str) -> None:
    sources = [mutant.source for mutant in mutants_of(source)]
    assert len({source, *sources}) == len(sources) + 1
    for changed in sources:
        compile(changed, "mutant", "exec")
