"""Every example in a docstring runs, with the names of its module and of the fixture."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from memory import MemoryStore
from perception import Detector, Tracker
from sparse_core.nm import NMPattern, prune

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("perception", "memory", "sparse_core")


class Example(NamedTuple):
    """Lines after ``>>>`` in one docstring.

    Attributes:
        module: dotted name.
        place: class or function of the docstring.
        text: code.
    """

    module: str
    place: str
    text: str


def examples_in(source: str, module: str) -> Iterator[Example]:
    """Yield the examples of a module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        found = doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")
        if found:
            name = getattr(node, "name", "module")
            yield Example(module, name, "".join(example.source for example in found))


@functools.cache
def all_examples() -> list[Example]:
    found: list[Example] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if ">>>" not in path.read_text(encoding="utf-8"):
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found += examples_in(path.read_text(encoding="utf-8"), module)
    return found


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Names that examples use: a detector, a short drive, a store, a network to prune."""
    if not (ROOT / "perception/weights/pointpillars-kitti.safetensors").is_file():
        pytest.skip("no shipped weights in this checkout")
    from perception.data.sample import sample_frames

    frame, detector = sample_frames()[-1], Detector.from_pretrained("pointpillars-kitti")
    detections, tracker = detector(frame.cloud), Tracker()
    drive = [(detections, np.eye(4), 10**18 + at * 10**8) for at in range(3)]
    tracked = [(tracker.update(seen, pose=pose, time_ns=at), at) for seen, pose, at in drive]
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    with MemoryStore.open(tmp_path_factory.mktemp("store") / "store", dim=4) as store:
        yield {
            "detector": detector, "points": frame.cloud.points, "detections": detections, "drive": drive,
            "tracked": tracked, "tracks": tracked[-1][0], "tracker": tracker, "store": store, "model": model,
            "batches": [torch.ones(2, 8)], "loss": torch.Tensor.mean, "prune": prune, "NMPattern": NMPattern,
        }  # fmt: skip


def parameters() -> Iterator[Any]:
    """Yield every example; mark those that measure a detector as slow."""
    for example in all_examples():
        marks = [pytest.mark.slow] if example.place == "BudgetedDetector" else []
        yield pytest.param(example, marks=marks, id=f"{example.module}.{example.place}")


@pytest.mark.filterwarnings("ignore::sparse_core.dynamic.BudgetWarning")
@pytest.mark.parametrize("example", list(parameters()))
def test_an_example_runs(example: Example, given: dict[str, Any]) -> None:
    names = {**given, **vars(importlib.import_module(example.module))}
    exec(compile(example.text, f"{example.module}.{example.place}", "exec"), names)


def test_examples_are_found_wherever_they_stand() -> None:
    source = '''"""Text.

>>> first = 1
"""

class One:
    """Text.

    >>> for row in rows:
    ...     row
    """

    def two(self):
        """>>> self.nothing"""
'''
    found = list(examples_in(source, "m"))
    assert [(one.place, one.text) for one in found] == [
        ("module", "first = 1\n"),
        ("One", "for row in rows:\n    row\n"),
        ("two", "self.nothing\n"),
    ]
    assert len(all_examples()) >= 9


def test_code_in_docstrings_is_marked_as_examples() -> None:
    """Code in docstrings starts with ``>>>``, so that it is run."""
    unmarked = [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"Examples?:|^ *>>[^>]", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ]
    assert unmarked == []
