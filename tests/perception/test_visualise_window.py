"""What the Open3D window is given, and what happens without a display."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from perception.boxes import box_corners_3d
from perception.types import Boxes3D, Detections, PointCloud
from perception.visualise.window import show_window, window_geometries

BOX = np.array([[10.0, 2.0, -0.8, 4.0, 1.6, 1.5, 0.4]], np.float32)
CLOUD = PointCloud(np.array([[1, 2, 3, 0.5], [4, 5, 6, 0.1], [np.nan, 0, 0, 0]], np.float32))
FOUND = Detections(BOX, np.array([0.9], np.float32), ["Car"])


def test_geometries_are_the_points_and_the_boxes() -> None:
    pytest.importorskip("open3d")
    cloud, true_box, found_box = window_geometries(CLOUD, FOUND, ground_truth=Boxes3D(BOX, ["Car"]))
    np.testing.assert_allclose(np.asarray(cloud.points), CLOUD.points[:2, :3])
    assert np.asarray(cloud.colors).shape == (2, 3)
    np.testing.assert_allclose(np.asarray(found_box.points), box_corners_3d(BOX)[0], atol=1e-5)
    ends = np.asarray(found_box.points)[np.asarray(found_box.lines)]
    lengths = np.sort(np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1))
    np.testing.assert_allclose(
        lengths[:12], [1.5] * 4 + [1.6] * 4 + [np.hypot(1.6, 1.5)] * 2 + [4.0] * 2, atol=1e-4
    )
    assert not np.allclose(np.asarray(found_box.colors)[0], np.asarray(true_box.colors)[0])


def test_nothing_to_show_is_fine() -> None:
    pytest.importorskip("open3d")
    assert len(window_geometries(PointCloud(np.zeros((0, 4), np.float32)), None)) == 1


def test_without_open3d_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open3d", None)
    with pytest.raises(ImportError, match=r"sparsight\[viewers\]"):
        window_geometries(CLOUD, FOUND)


@pytest.mark.skipif(sys.platform != "linux", reason="displays are named by DISPLAY on Linux")
def test_without_a_display_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("open3d")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(OSError, match="no display"):
        show_window(CLOUD, FOUND)
