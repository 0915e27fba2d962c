"""Files whose columns have no names: recognised, or named by the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.errors import DataError
from perception.io import load_point_cloud
from perception.io.columns import parse_columns
from perception.io.transform import ScanTransform

RINGS = 32


def scan(count: int, seed: int = 0) -> np.ndarray:
    """(count, 5) float32 as nuScenes has it: x, y, z, intensity 0..255, ring."""
    random = np.random.default_rng(seed)
    rows = random.normal(0, 20, (count, 5))
    rows[:, 3] = random.integers(0, 256, count)
    rows[:, 4] = np.arange(count) % RINGS
    return rows.astype(np.float32)


def turned(rows: np.ndarray) -> np.ndarray:
    """x, y, z as the detector has them, of rows with x to the right and y forward."""
    return np.column_stack([rows[:, 1], -rows[:, 0], rows[:, 2]])


def write(path: Path, rows: np.ndarray) -> Path:
    path.write_bytes(rows.astype("<f4").tobytes())
    return path


def test_text_and_transposed_arrays_are_named(tmp_path: Path) -> None:
    (tmp_path / "notes.bin").write_text("1.5,2.5,3.5,0.1\n" * 100)
    with pytest.raises(DataError, match="this is a text file"):
        load_point_cloud(tmp_path / "notes.bin")
    for shape, fix in (((4, 90), "array.T"), ((360,), "one row per point"), ((90, 5), "Name the columns")):
        np.save(tmp_path / "scan.npy", np.ones(shape, np.float32))
        with pytest.raises(DataError, match=fix):
            load_point_cloud(tmp_path / "scan.npy")


# 20 points are 400 bytes: whole rows of four and of five.
@pytest.mark.parametrize("count", [20, 400, 401, 1])
@pytest.mark.parametrize("name", ["scan.pcd.bin", "SCAN.PCD.BIN", "scan.bin"])
def test_five_columns_with_rings_are_recognised(name: str, count: int, tmp_path: Path) -> None:
    rows = scan(count)
    rows[-1, 3] = 255
    loaded = load_point_cloud(write(tmp_path / name, rows))
    by_name = name.lower().endswith(".pcd.bin")
    np.testing.assert_array_equal(loaded.points[:, :3], turned(rows) if by_name else rows[:, :3])
    np.testing.assert_array_equal(loaded.points[:, 3], rows[:, 3] / np.float32(255))
    assert (len(loaded.warnings), loaded.sensor_height_m) == ((1, 1.84) if by_name else (0, None))


@pytest.mark.parametrize("count", [20, 400, 405, 5, 1])
@pytest.mark.parametrize("name", ["scan.bin", "scan.pcd.bin"])
def test_four_columns_stay_four(name: str, count: int, tmp_path: Path) -> None:
    rows = scan(count)[:, :4] / np.float32([1, 1, 1, 255])
    loaded = load_point_cloud(write(tmp_path / name, rows), transform=ScanTransform(axes="x,y,z"))
    np.testing.assert_array_equal(loaded.points, rows)
    assert loaded.warnings == ()
    assert loaded.sensor_height_m is None


def test_where_both_would_do_the_name_decides(tmp_path: Path) -> None:
    zeros = np.zeros((20, 4), np.float32)
    assert len(load_point_cloud(write(tmp_path / "scan.bin", zeros))) == 20
    assert len(load_point_cloud(write(tmp_path / "scan.pcd.bin", zeros))) == 16


def test_what_is_neither_asks_for_the_columns(tmp_path: Path) -> None:
    rows = scan(401)
    rows[7, 4] = 3.5
    path = write(tmp_path / "scan.pcd.bin", rows)
    with pytest.raises(DataError, match=r"scan\.pcd\.bin.*the fifth is no.*--columns"):
        load_point_cloud(path)
    np.testing.assert_array_equal(load_point_cloud(path, columns=5).points[:, :3], turned(rows))
    write(path, scan(400)[:, [3, 0, 1, 2, 2]])
    with pytest.raises(DataError, match=r"field intensity spans -.*--columns x,y,z,intensity,ring"):
        load_point_cloud(path)


@pytest.mark.parametrize("suffix", [".bin", ".npy"])
@pytest.mark.parametrize(
    "columns", ["x,y,z,intensity,ring", "X, Y, Z, Intensity, _", ("x", "y", "z", "i", "t"), 5, "5"]
)
def test_columns_can_be_named(suffix: str, columns: Any, tmp_path: Path) -> None:
    rows = scan(33)
    path = tmp_path / f"scan{suffix}"
    write(path, rows) if suffix == ".bin" else np.save(path, rows)
    loaded = load_point_cloud(path, columns=columns).points
    np.testing.assert_array_equal(loaded, np.column_stack([rows[:, :3], rows[:, 3] / np.float32(255)]))


def test_columns_in_another_order_and_without_intensity(tmp_path: Path) -> None:
    rows = scan(12)
    path = write(tmp_path / "scan.bin", rows)
    loaded = load_point_cloud(path, columns="_,z,y,t,x").points
    np.testing.assert_array_equal(loaded, np.column_stack([rows[:, [4, 2, 1]], np.zeros(12)]))
    assert len(load_point_cloud(path, columns=3)) == 20


def test_columns_that_do_not_fit_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x,y,z,intensity,_,_ \(24 bytes"):
        load_point_cloud(write(tmp_path / "scan.bin", scan(5)), columns=6)
    np.save(tmp_path / "scan.npy", scan(5))
    with pytest.raises(DataError, match=r"shape \(5, 5\); expected \(N, 4\)"):
        load_point_cloud(tmp_path / "scan.npy", columns=4)
    with pytest.raises(DataError, match=r"expected \(N, 3\) x, y, z or .*--columns"):
        load_point_cloud(tmp_path / "scan.npy")


@pytest.mark.parametrize("columns", ["", "x,y", "x,y,z,x", "x,y,z,", 2, -1, 10**9, "9" * 5000, "x;y;z"])
def test_columns_that_say_nothing(columns: Any) -> None:
    with pytest.raises(ValueError, match="columns must"):
        parse_columns(columns)


@pytest.mark.parametrize("columns", [True, 4.0, [1, 2, 3], None])
def test_columns_of_another_type(columns: Any) -> None:
    with pytest.raises(TypeError, match="columns must be names"):
        parse_columns(columns)


def test_real_scans_are_told_apart(data_directory: Path) -> None:
    nuscenes = sorted((data_directory / "nuscenes/samples/LIDAR_TOP").glob("*.pcd.bin"))
    kitti = sorted((data_directory / "kitti/training").glob("velodyne*/*.bin"))
    assert len(nuscenes) == 40
    assert len(kitti) >= 106
    for path in nuscenes[::8]:
        rows = np.fromfile(path, "<f4").reshape(-1, 5)
        assert rows[:, 4].max() == RINGS - 1
        loaded = load_point_cloud(path).points
        np.testing.assert_array_equal(loaded[:, :3], turned(rows))
        np.testing.assert_array_equal(loaded[:, 3], rows[:, 3] / np.float32(255))
    for path in [path for path in kitti if path.stat().st_size % 20 == 0][:5]:
        np.testing.assert_array_equal(load_point_cloud(path).points, np.fromfile(path, "<f4").reshape(-1, 4))
