"""LAS and LAZ files written by laspy."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.errors import DataError
from perception.io import load_point_cloud

laspy = pytest.importorskip("laspy", reason="laspy is not installed (extra 'las')")
SUFFIXES = [".las", ".laz"]


def write(
    path: Path, xyz: np.ndarray, intensity: np.ndarray | None = None, *, version: str = "1.2", kind: int = 3
) -> Path:
    """A file with steps of a millimetre."""
    if path.suffix == ".laz":
        pytest.importorskip("lazrs", reason="lazrs is not installed (extra 'las')")
    made: Any = laspy.create(point_format=kind, file_version=version)
    made.header.scales = [0.001] * 3
    made.header.offsets = xyz.mean(axis=0).round() if len(xyz) else [0.0] * 3
    made.x, made.y, made.z = xyz.T
    if intensity is not None:
        made.intensity = intensity
    made.write(path)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(("version", "kind"), [("1.2", 0), ("1.4", 6)])
def test_points_come_back_within_the_steps_of_the_file(
    suffix: str, version: str, kind: int, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    xyz, bright = random.uniform(-60, 60, (500, 3)), random.integers(0, 65536, 500)
    cloud = load_point_cloud(write(tmp_path / f"scan{suffix}", xyz, bright, version=version, kind=kind))
    np.testing.assert_allclose(cloud.points[:, :3], xyz, atol=0.00051)
    np.testing.assert_allclose(cloud.points[:, 3], bright / 65535, atol=1e-6)


def test_intensity_of_bytes_none_and_no_points(tmp_path: Path) -> None:
    xyz = np.array([[1.0, 2, 3], [4, 5, 6]])
    found = load_point_cloud(write(tmp_path / "bytes.las", xyz, np.array([0, 255])))
    np.testing.assert_array_equal(found.points[:, 3], [0.0, 1.0])
    assert not load_point_cloud(write(tmp_path / "none.las", xyz)).points[:, 3].any()
    assert load_point_cloud(write(tmp_path / "empty.las", np.zeros((0, 3)))).points.shape == (0, 4)


def test_map_coordinates_truncated_files_and_other_bytes_are_refused(tmp_path: Path) -> None:
    far = np.random.default_rng(0).uniform(-40, 40, (200, 3)) + np.array([543210.0, 5210987.0, 430.0])
    with pytest.raises(DataError, match=r"map\.las: points lie around.*of the sensor"):
        load_point_cloud(write(tmp_path / "map.las", far))
    path = write(tmp_path / "cut.las", far - far.mean(axis=0))
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(DataError, match=r"cut\.las: "):
        load_point_cloud(path)
    path.write_bytes(b"1 2 3\n" * 100)
    with pytest.raises(DataError, match=r"it does not begin"):
        load_point_cloud(path)


def test_without_the_libraries_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write(tmp_path / "scan.las", np.ones((3, 3)))
    packed = path.rename(tmp_path / "scan.las")
    monkeypatch.setitem(sys.modules, "laspy", None)
    with pytest.raises(ImportError, match=r"needs laspy: pip install 'sparsight\[las\]'"):
        load_point_cloud(packed)
    monkeypatch.undo()
    if laspy.LazBackend.detect_available():
        path = write(tmp_path / "scan.laz", np.ones((3, 3)))
        monkeypatch.setattr(laspy.LazBackend, "detect_available", classmethod(lambda cls: ()))
        with pytest.raises(ImportError, match=r"needs lazrs: pip install 'sparsight\[las\]'"):
            load_point_cloud(path)


@pytest.mark.slow
def test_ten_million_points_are_unpacked_piece_by_piece(tmp_path: Path) -> None:
    count = 10_000_000
    xyz = np.zeros((count, 3))
    xyz[:, 0] = np.arange(count) % 1000 * 0.1
    path = write(tmp_path / "scan.las", xyz, kind=0)
    tracemalloc.start()
    cloud = load_point_cloud(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(cloud) == count
    assert most < 200e6 + 4 * 16 * count
