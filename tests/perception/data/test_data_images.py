"""Pictures beside scans: found under each suffix, their size read or assumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from perception.data import CameraCalibration
from perception.data.images import assumed_image_size, find_image, read_image_size
from perception.errors import DataError


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".jpeg", ".JPG"])
def test_a_picture_is_found_and_its_head_tells_the_size(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"000001{suffix}"
    Image.new("RGB", (193, 121)).save(path)
    (tmp_path / "000002.txt").touch()
    assert find_image(tmp_path, "000001") == path
    assert find_image(tmp_path, "000002") is None
    assert find_image(tmp_path / "none", "000001") is None
    assert read_image_size(path) == (193, 121)


def test_a_damaged_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(DataError, match=r"a\.jpg: no.*it again"):
        read_image_size(tmp_path / "a.jpg")


@pytest.mark.parametrize(
    ("focus", "size"),
    [((609.6, 172.9), (1242, 375)), ((620, 187), (1242, 375)), ((961.3, 624.9), (1923, 1250))],
)
def test_the_size_without_a_picture(focus: tuple[float, float], size: tuple[int, int]) -> None:
    image = np.array([[700.0, 0, focus[0], 0], [0, 700, focus[1], 0], [0, 0, 1, 0]])
    default = CameraCalibration.default()
    camera = CameraCalibration(image, default.rectification, default.camera_from_lidar_raw)
    assert assumed_image_size(camera) == size
