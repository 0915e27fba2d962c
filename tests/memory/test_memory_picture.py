"""The map of memories as a picture."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread

from memory import Memory
from memory.picture import draw_map, draw_memories

HERE = [
    Memory(time_ns=1, label="Car", position=(1, 2, 0)),
    Memory(time_ns=2, label="Car", position=(4, 2, 0), state="gone"),
    Memory(time_ns=3, label="Zebra", position=(0, 0, 0), state="moved"),
    Memory(time_ns=4, label="Zebra", position=(0, 1, 0)),
    Memory(time_ns=5, kind="place", position=(2, 2, 0)),
    Memory(time_ns=6, kind="event", position=(2, 2, 0), payload={"way": [[0, 2, 2], [1, 3, 2]]}),
]


def test_each_sort_of_memory_is_drawn_once() -> None:
    axes = Figure().add_subplot()
    draw_memories(axes, HERE)
    assert sorted(axes.get_legend_handles_labels()[1]) == [
        "car",
        "gone",
        "moved away",
        "place",
        "trajectory",
        "zebra",
    ]
    places = np.concatenate([np.asarray(part.get_offsets()) for part in axes.collections])
    assert sorted(map(tuple, places.tolist())) == [(0, 0), (0, 1), (1, 2), (2, 2), (4, 2)]


def test_the_same_memories_are_the_same_bytes(tmp_path: Path) -> None:
    stream = io.BytesIO()
    draw_map(tmp_path / "new/map.png", HERE, title="x")
    draw_map(stream, HERE, title="x")
    assert (tmp_path / "new/map.png").read_bytes() == stream.getvalue()


def test_nothing_and_one_point_are_drawn(tmp_path: Path) -> None:
    for number, memories in enumerate(([], [Memory(time_ns=1, kind="event", payload={"way": [[0, 1, 1]]})])):
        draw_map(tmp_path / f"{number}.png", memories, title="")
        assert imread(tmp_path / f"{number}.png").std() > 0
