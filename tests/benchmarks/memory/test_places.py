"""The benchmark of places: on frames made here, and what does without looking."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pillow = pytest.importorskip("PIL.Image")


@pytest.fixture
def places() -> Any:
    return importlib.import_module("benchmarks.memory.places")


def sequence(folder: Path, count: int = 15) -> Path:
    """A camera that turns to another wall every five frames, two metres on; frame 14 sees the first again."""
    rng = np.random.default_rng(0)
    walls = rng.integers(0, 255, (3, 6, 8, 3), dtype=np.uint8)
    depths = rng.integers(800, 4000, (3, 6, 8)).astype(np.uint16)
    for number in range(count):
        wall = 0 if number == count - 1 else number // 5
        name = folder / f"frame-{number:06d}"
        big = walls[wall].repeat(10, 0).repeat(10, 1)
        pillow.fromarray(big).save(f"{name}.color.jpg")
        depth = depths[wall].repeat(10, 0).repeat(10, 1).copy()
        depth[0] = 0
        pillow.fromarray(depth).save(f"{name}.depth.png")
        pose = np.eye(4)
        pose[0, 3] = 2.0 * wall + 0.01 * number
        np.savetxt(f"{name}.pose.txt", pose)
    np.savetxt(folder / "camera-intrinsics.txt", np.array([[60.0, 0, 40], [0, 60.0, 30], [0, 0, 1]]))
    return folder


def test_places_that_look_the_same_are_found(
    places: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    data, out = sequence(tmp_path / "data"), tmp_path / "places.json"
    assert places.main(["--data", str(data), "--out", str(out), "--threads", "1"]) == 0
    assert "depth alone" in capsys.readouterr().out
    values = json.loads(out.read_text())
    assert str(tmp_path) not in out.read_text()
    sides = values["sides"]
    for name in ("depth alone", "small depth images", "small photographs"):
        near, gap, _ = sides[name]["gaps"]
        assert (near["queries"], near["answerable"], near["recall_at_1"]) == (3, 3, 1.0)
        # With a gap only the last frame has another one within half a metre.
        assert (gap["gap_frames"], gap["answerable"], gap["recall_at_1"]) == (5, 1, 1.0)
        assert sides[name]["ms_a_frame"] > 0
    # The frame before the last query shows another wall.
    assert sides["frame before"]["gaps"][0]["recall_at_1"] == pytest.approx(2 / 3, abs=1e-4)
    assert sides["frame before"]["gaps"][1]["recall_at_1"] == 0.0
    assert 0.0 <= sides["random frame"]["gaps"][0]["recall_at_1"] <= 1.0


def test_frames_are_read_in_metres_with_gaps_where_nothing_was_read(places: Any, tmp_path: Path) -> None:
    frames = places.read_frames(sequence(tmp_path), 4)
    assert frames.depth_m.shape == (4, 15, 20)
    assert np.isnan(frames.depth_m[:, 0]).all()
    assert 0.8 <= np.nanmin(frames.depth_m) <= np.nanmax(frames.depth_m) <= 4.0
    assert frames.intrinsics[0, 0] == 15.0
    assert frames.intrinsics[2, 2] == 1.0
    with pytest.raises(FileNotFoundError, match="SPARSIGHT_DATA"):
        places.read_frames(tmp_path / "none")


def test_small_images_are_compared_by_correlation(places: Any) -> None:
    rng = np.random.default_rng(0)
    image = rng.random((48, 64)).astype(np.float32)
    holed = image.copy()
    holed[:2, :2] = np.nan
    rows = places.small_images([image, 3 * image + 7, -image, holed])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(unit[0] @ unit.T, [1, 1, -1, 1], atol=0.02)
