"""``recall demo``: what a newcomer sees first, against what the simulator knows of the two days."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from memory import MemoryStore

Recall = Callable[..., Any]
#: By demos/drive/town.py, seed 0: cars that left or moved after the first day; cyclists of the second.
LEFT = ((-3.5, -28.5), (9.5, -19.6), (-9.9, 19.5), (34.4, -10.3), (3.0, -28.3))
CYCLISTS = ((36.6, -15.2), (35.7, -17.4))


@pytest.mark.slow
def test_it_remembers_answers_and_draws(recall: Recall, tmp_path: Path) -> None:
    shown = recall("demo", "--out", "out")
    assert shown.status == 0
    assert imread(tmp_path / "out/town.png").shape[0] > 500
    lines = shown.output.splitlines()
    where = next(line for line in lines if line.startswith("Cyclist was last seen"))
    place = [float(part) for part in re.findall(r"at \(([-\d.]+), ([-\d.]+)\)", where)[0]]
    assert np.linalg.norm(np.subtract(CYCLISTS, place), axis=1).min() < 1
    # Everything that it says it ran can be run, and says the same.
    asked = [row for row, line in enumerate(lines) if line.startswith("$ recall ask")]
    assert len(asked) == 4
    for row in asked:
        again = recall(*shlex.split(lines[row])[2:])
        assert again.output.strip() == lines[row + 1].strip()
    with MemoryStore.open(tmp_path / "out/town", readonly=True) as store:
        gone = [memory for memory in store.find(_cars()) if memory.state == "gone"]
    assert len(gone) >= 3
    for car in gone:
        assert np.linalg.norm(np.subtract(LEFT, car.position[:2]), axis=1).min() < 1
    (explained,) = (line for line in lines if line.startswith("$ recall explain"))
    assert int(explained.split()[-1]) in {car.id for car in gone}
    assert "its place was seen free" in shown.output
    for line in lines[lines.index("Next steps:") + 1 :]:
        assert line.split()[0] == "recall"


@pytest.mark.slow
def test_it_can_be_run_again_and_as_json(recall: Recall, tmp_path: Path) -> None:
    first, again = (recall("demo", "--out", "out", "--json").json for _ in range(2))
    assert first["answers"].keys() == again["answers"].keys()
    assert first["gone"] == again["gone"]
    assert Path(first["picture"]).stat().st_size > 10_000
    # Nothing is remembered twice.
    assert again["memories"] <= first["memories"]


def _cars() -> Any:
    from memory import Filter

    return Filter(labels=["Car"])
