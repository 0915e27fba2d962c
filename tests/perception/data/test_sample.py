"""The scans of the package: whole, small, and what the simulator makes today."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from perception.data.sample import LEAST_POINTS, STEP_M, sample_frames


def test_frames_have_points_boxes_and_poses() -> None:
    frames = sample_frames()
    assert [frame.frame_id for frame in frames] == [f"{row:06d}" for row in range(6)]
    assert np.diff([frame.time_ns for frame in frames]).tolist() == [500_000_000] * 5
    for frame in frames:
        assert frame.pose is not None
        assert frame.track_ids is not None
        assert frame.points.dtype == np.float32
        assert 30_000 < len(frame.points) < 35_000
        assert 0 <= frame.points[:, 3].min() <= frame.points[:, 3].max() <= 1
        assert len(frame.boxes) == len(frame.labels) == len(frame.track_ids) > 8
        assert set(frame.labels) <= {"Car", "Van", "Pedestrian", "Cyclist"}
        np.testing.assert_allclose(frame.pose[:3, :3] @ frame.pose[:3, :3].T, np.eye(3), atol=1e-9)
    # The robot drives on by what the poses say.
    ways = np.diff([frame.pose[:3, 3] for frame in frames if frame.pose is not None], axis=0)
    np.testing.assert_allclose(np.linalg.norm(ways, axis=1), 2.5, atol=0.05)


def test_things_keep_their_identity_and_most_stand_still_in_the_map() -> None:
    ways: dict[int, list[np.ndarray]] = {}
    for frame in sample_frames():
        assert frame.track_ids is not None
        assert frame.pose is not None
        places = frame.boxes[:, :3] @ frame.pose[:3, :3].T + frame.pose[:3, 3]
        for track, place in zip(frame.track_ids.tolist(), places, strict=True):
            ways.setdefault(track, []).append(place)
    moved = [float(np.linalg.norm(way[-1] - way[0])) for way in ways.values() if len(way) > 1]
    assert np.median(moved) < 0.01
    assert max(moved) > 2


@pytest.mark.slow
def test_the_simulator_makes_the_same_street(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("open3d")
    maker = importlib.import_module("make_samples")
    maker.write_street(tmp_path / "street.npz")
    made, shipped = (
        dict(np.load(path)) for path in (tmp_path / "street.npz", repository / "perception/assets/street.npz")
    )
    assert made.keys() == shipped.keys()
    for name in made.keys() - {"steps", "intensity"}:
        np.testing.assert_array_equal(made[name], shipped[name])
    # Rays that graze an edge may fall on either side of it on another processor.
    assert (np.abs(made["steps"].astype(int) - shipped["steps"]).max(axis=1) <= 1).mean() > 0.999
    assert STEP_M <= 0.01
    assert LEAST_POINTS > 0
