"""``demos/query.py``: it finds what it put there, and draws it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from matplotlib.image import imread


@pytest.fixture
def demo(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("query_demo", repository / "demos" / "query.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "query_demo", module)
    spec.loader.exec_module(module)
    return module


def test_what_it_shows(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    monkeypatch.setattr("sys.argv", ["query.py", "--out", str(tmp_path / "out"), "--store", str(store)])
    demo.main()
    printed = capsys.readouterr().out
    parts = {block.splitlines()[0]: block for block in printed.split("\n\n")}
    seen, kept = map(int, re.findall(r"(\d+) sights, (\d+) worth", printed)[0])
    assert kept * 5 < seen
    assert "bunch of keys on the kitchen table" in parts["Words: 'kitchen keys'"]
    likeness = parts["Likeness: 'water spilled on the floor'"].splitlines()
    assert "puddle of spilled water" in likeness[1]
    assert "front door of brown wood" in parts["Place: within 1.5 m of the front door"]
    assert parts["Time: last evening, the dog"].count("Fri 20:") == 1
    (together,) = (block for title, block in parts.items() if title.startswith("All of it"))
    assert together.count("on the desk in the office") == 2
    assert "its importance was" in printed
    before, after = map(int, re.findall(r"(\d+) memories became (\d+)", printed)[0])
    assert kept == before > 3 * after
    newest = parts["Words again: 'keys'"].splitlines()[1:]
    assert "kitchen table" in newest[0]
    assert "hall" in newest[-1]
    assert "merged into" in printed
    picture = imread(tmp_path / "out" / "memories.png")
    assert min(picture.shape[:2]) > 400
    assert np.ptp(picture[..., :3]) > 0.5
    assert (store / "memory.db").is_file()
    with pytest.raises(SystemExit, match="holds a store already"):
        demo.main()
