"""Real vectors for the benchmarks: which sentences, and that an interrupted run goes on."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def real() -> Any:
    return importlib.import_module("benchmarks.memory.real_embeddings")


class Lengths:
    """A vector for each sentence, and what was asked for."""

    def __init__(self, stop_after: int = 10**9) -> None:
        self.calls: list[int] = []
        self.stop_after = stop_after

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        if len(self.calls) == self.stop_after:
            raise KeyboardInterrupt
        assert [*map(len, sentences)] == sorted(map(len, sentences))
        self.calls.append(len(sentences))
        return np.array([[len(sentence), ord(sentence[0])] for sentence in sentences], np.float32)


def test_sentences_come_once_and_in_the_order_of_files(real: Any, tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text('"""A sentence of the second file. Short one."""\n')
    (tmp_path / "a.py").write_text(
        'def f():\n    """A sentence of the\n    first file.\n\n'
        '    And another paragraph without end\n    """\n'
    )
    (tmp_path / "c.py").write_text(
        '"""A sentence of the second file."""\nclass C:\n    """The last sentence of all."""\n'
    )
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "d.py").write_text('"""Tests are not read at all."""\n')
    assert real.docstring_sentences(10, tmp_path) == [
        "A sentence of the first file.",
        "And another paragraph without end",
        "A sentence of the second file.",
        "The last sentence of all.",
    ]
    assert len(real.docstring_sentences(2, tmp_path)) == 2
    with pytest.raises(ValueError, match="count"):
        real.docstring_sentences(0)


def test_an_interrupted_run_goes_on(real: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        real.real_embeddings(1100, tmp_path, progress=False, encode=Lengths(stop_after=1))
    rest = Lengths()
    found = real.real_embeddings(1100, tmp_path, progress=False, encode=rest)
    assert rest.calls == [512, 76]
    sentences = real.docstring_sentences(1100)
    assert found[:, 0].tolist() == [len(sentence) for sentence in sentences]
    assert found[:, 1].tolist() == [ord(sentence[0]) for sentence in sentences]
    # A damaged part is made again, a whole one is read.
    damaged = sorted(tmp_path.glob("*.npy"))[1]
    damaged.write_bytes(damaged.read_bytes()[:100])
    again = Lengths()
    np.testing.assert_array_equal(real.real_embeddings(1100, tmp_path, progress=False, encode=again), found)
    assert again.calls == [512]
