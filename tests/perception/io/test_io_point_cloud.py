"""load_point_cloud, save_point_cloud, find_point_clouds; the .bin and .npy formats."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from perception import PointCloud
from perception.errors import DataError
from perception.io import SUPPORTED_SUFFIXES, find_point_clouds, load_point_cloud, save_point_cloud
from perception.scans import ScanTransform

#: LAS is read only.
WRITTEN = [suffix for suffix in SUPPORTED_SUFFIXES if suffix not in (".las", ".laz")]
POINTS = np.array([[1.5, -2.25, 0.5, 0.25], [10, 20, -1, 1.0], [0, 0, 0, 0]], np.float32)

clouds = hnp.arrays(
    np.float32,
    st.tuples(st.integers(0, 20), st.just(4)),
    elements=st.floats(-1000, 1000, width=32) | st.just(float("nan")) | st.just(float("inf")),
)


@pytest.mark.parametrize("suffix", WRITTEN)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(points=clouds)
def test_every_format_returns_what_was_saved(suffix: str, points: np.ndarray, tmp_path: Path) -> None:
    points[:, 3] = np.nan_to_num(np.abs(points[:, 3]) / 1000, nan=0.5, posinf=1.0)
    path = tmp_path / f"scan{suffix}"
    save_point_cloud(path, PointCloud(points))
    loaded = load_point_cloud(path)
    np.testing.assert_array_equal(loaded.points, points)
    assert loaded.points.dtype == np.float32
    assert (loaded.frame, loaded.timestamp_ns, loaded.source) == ("lidar", None, str(path))


def test_empty_bin_is_an_empty_cloud(tmp_path: Path) -> None:
    (tmp_path / "scan.bin").write_bytes(b"")
    assert load_point_cloud(tmp_path / "scan.bin").points.shape == (0, 4)


def test_truncated_bin_says_by_how_many_bytes(tmp_path: Path) -> None:
    path = tmp_path / "scan.bin"
    path.write_bytes(POINTS.tobytes()[:-5])
    with pytest.raises(DataError, match=r"scan\.bin: truncated, 11 bytes after .* and 5 missing"):
        load_point_cloud(path)


def test_columns_that_a_bin_does_not_have_are_named_with_those_that_would_fit(tmp_path: Path) -> None:
    path = tmp_path / "scan.bin"
    path.write_bytes(POINTS.tobytes())
    with pytest.raises(DataError, match=r"20 bytes per row, 8 left over.* 3, 4, 6, 12 columns would fit"):
        load_point_cloud(path, columns="x,y,z,intensity,ring")
    path.write_bytes(POINTS.tobytes()[:-5])
    with pytest.raises(DataError, match="Rows of 3 to 16 columns do not fit") as told:
        load_point_cloud(path, columns=5)
    assert "say what the columns are" not in str(told.value)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32, np.int8])
def test_npy_of_any_number_type_without_intensity(dtype: type, tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", POINTS[:, :3].round().astype(dtype))
    loaded = load_point_cloud(tmp_path / "scan.npy").points
    np.testing.assert_array_equal(loaded[:, :3], POINTS[:, :3].round())
    assert not loaded[:, 3].any()


@pytest.mark.parametrize("shape", [(5, 2), (5, 5), (4,), (2, 3, 4)])
def test_npy_of_wrong_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", np.zeros(shape))
    with pytest.raises(DataError, match=r"scan\.npy: shape .* expected \(N, 3\)"):
        load_point_cloud(tmp_path / "scan.npy")


def test_npy_that_is_no_array_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "scan.npy"
    np.save(path, np.array([[1, "a", None]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="dtype"):
        load_point_cloud(path)
    np.save(path, np.ones((3, 4), complex))
    with pytest.raises(DataError, match="dtype complex128"):
        load_point_cloud(path)
    with path.open("wb") as file:
        np.savez(file, a=np.ones((3, 4)))
    with pytest.raises(DataError, match="archive"):
        load_point_cloud(path)


def npy(header: str, body: bytes = b"") -> bytes:
    """A file of version 1.0 with any header."""
    text = header.encode("latin-1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 18446744073709551616), }",
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'9' * 5000}, 4), }}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 3000,
        "[" * 5000,
        "\x00" * 40,
    ],
)
def test_npy_header_that_lies_or_is_damaged(header: str, tmp_path: Path) -> None:
    path = tmp_path / "scan.npy"
    path.write_bytes(npy(header, bytes(16)))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"scan\.npy"):
        load_point_cloud(path)
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("change", [np.asfortranarray, lambda points: points.astype(">f8"), np.float16])
def test_npy_by_column_and_big_endian(change: Callable[[np.ndarray], np.ndarray], tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", change(POINTS))
    np.testing.assert_array_equal(load_point_cloud(tmp_path / "scan.npy").points, POINTS)


@pytest.mark.parametrize("keep", [0, 5, 60, 150])
def test_truncated_npy(keep: int, tmp_path: Path) -> None:
    path = tmp_path / "scan.npy"
    np.save(path, POINTS)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"scan\.npy"):
        load_point_cloud(path)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (np.array([0.0, 0.5, 1.0]), [0, 0.5, 1]),
        (np.array([0.0, 51.0, 255.0]), [0, 0.2, 1]),
        (np.array([0.0, 13107.0, 65535.0]), [0, 0.2, 1]),
        (np.array([0.0, np.nan, 51.0]), [0, np.nan, 0.2]),
        (np.array([-1e-5, 0.5, 1.001]), [0, 0.5, 1]),
        (np.array([np.nan, np.nan, np.nan]), [np.nan, np.nan, np.nan]),
    ],
)
def test_intensity_comes_out_in_unit_range(stored: np.ndarray, expected: list[float], tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", np.column_stack([POINTS[:, :3], stored]))
    loaded = load_point_cloud(tmp_path / "scan.npy").points
    np.testing.assert_allclose(loaded[:, 3], expected, rtol=1e-6)


def bright_scan(path: Path, **fields: np.ndarray) -> Path:
    """A PCD file of 1,000 points with such fields of float32."""
    names, count = ["x", "y", "z", *fields], 1000
    xyz = np.random.default_rng(2).uniform(-20, 20, (count, 3))
    ones = " ".join("1" for _ in names)
    head = (
        f"FIELDS {' '.join(names)}\nSIZE {ones.replace('1', '4')}\nTYPE {ones.replace('1', 'F')}\n"
        f"COUNT {ones}\nWIDTH {count}\nHEIGHT 1\nPOINTS {count}\nDATA binary\n"
    )
    path.write_bytes(head.encode() + np.column_stack([xyz, *fields.values()]).astype("<f4").tobytes())
    return path


def test_one_bright_return_in_a_hundred_tells_no_range(tmp_path: Path) -> None:
    unit = np.random.default_rng(3).beta(2, 5, 1000)
    for full, stray in ((255.0, 256.0), (1.0, 256.0), (255.0, 60000.0), (65535.0, 1e6)):
        for count in (1, 10):
            stored = unit * full
            stored[:count] = stray
            loaded = load_point_cloud(bright_scan(tmp_path / "a.pcd", intensity=stored)).points[:, 3]
            np.testing.assert_allclose(loaded[count:], unit[count:], atol=1e-6)
            assert (loaded[:count] == 1).all()
    stored = np.where(np.arange(1000) < 11, 256.0, unit * 255)
    loaded = load_point_cloud(bright_scan(tmp_path / "a.pcd", intensity=stored)).points[:, 3]
    np.testing.assert_allclose(loaded[11:], unit[11:] * 255 / 65535, atol=1e-6)


def test_whole_numbers_above_one_are_bytes_however_dark_the_scan(tmp_path: Path) -> None:
    stored = np.where(np.arange(1000) < 3, 200.0, np.arange(1000) % 2)
    loaded = load_point_cloud(bright_scan(tmp_path / "a.pcd", intensity=stored)).points[:, 3]
    np.testing.assert_allclose(loaded, stored / 255, atol=1e-6)


@pytest.mark.parametrize("suffix", [".pcd", ".csv", ".npy"])
def test_reflectivity_is_taken_where_intensity_counts_photons(suffix: str, tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    photons, bright = random.integers(0, 5000, 1000), random.integers(0, 255, 1000)
    for strength, reflectivity, expected in (
        (photons, bright, bright / 255),
        (photons, np.full(1000, 9), photons / 65535),
        (bright, photons, bright / 255),
        (bright, bright[::-1], bright / 255),
    ):
        path, columns = tmp_path / f"a{suffix}", None
        bright_scan(tmp_path / "a.pcd", intensity=strength, reflectivity=reflectivity)
        table = np.column_stack([POINTS[np.arange(1000) % len(POINTS), :3], strength, reflectivity])
        if suffix == ".csv":
            np.savetxt(path, table, delimiter=",", header="x,y,z,intensity,reflectivity", comments="")
        elif suffix == ".npy":
            np.save(path, table)
            columns = "x,y,z,intensity,reflectivity"
        loaded = load_point_cloud(path, columns=columns).points[:, 3]
        np.testing.assert_allclose(loaded, expected, atol=1e-6)


@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_transform_is_applied_to_every_format(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"scan{suffix}"
    save_point_cloud(path, PointCloud(POINTS))
    change = ScanTransform(0.5, "z,-x,-y", 1.0, 2.0)
    loaded = load_point_cloud(path, transform=change)
    np.testing.assert_array_equal(loaded.points, change.apply(POINTS).points)
    assert loaded.sensor_height_m == 1.0


def test_an_intensity_scale_takes_the_place_of_the_guess(tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", np.column_stack([POINTS[:, :3], [0.0, 0.5, 100000.0]]))
    loaded = load_point_cloud(tmp_path / "scan.npy", transform=ScanTransform(intensity_scale=100)).points
    np.testing.assert_array_equal(loaded[:, 3], np.float32([0, 0.005, 1]))


def test_unsigned_bytes_are_divided_by_255_whatever_their_range(tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", np.array([[1, 2, 3, 1], [4, 5, 6, 0]], np.uint8))
    np.testing.assert_allclose(load_point_cloud(tmp_path / "scan.npy").points[:, 3], [1 / 255, 0])


@pytest.mark.parametrize("stored", [[-3.0, 0, 1], [0, 1, 70000.0]])
def test_intensity_of_unknown_range(stored: list[float], tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", np.column_stack([POINTS[:, :3], stored]))
    with pytest.raises(DataError, match=r"field intensity spans"):
        load_point_cloud(tmp_path / "scan.npy")


def test_coordinates_beyond_float32_become_infinite_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "scan.npy", np.array([[1e300, 0, 0, 0.5]]))
    assert np.isinf(load_point_cloud(tmp_path / "scan.npy").points[0, 0])


def test_unknown_suffix_and_missing_file(tmp_path: Path) -> None:
    (tmp_path / "scan.e57").write_text("1 2 3")
    with pytest.raises(DataError, match=r"unknown.*bin, \.npy.*las or \.laz"):
        load_point_cloud(tmp_path / "scan.e57")
    for suffix in WRITTEN:
        with pytest.raises(DataError, match="no such file"):
            load_point_cloud(tmp_path / f"missing{suffix}")
    with pytest.raises(DataError, match="missing: no such file"):
        load_point_cloud(tmp_path / "missing")
    with pytest.raises(DataError, match="this is a folder"):
        load_point_cloud(tmp_path)
    with pytest.raises(DataError, match="unknown"):
        save_point_cloud(tmp_path / "scan.e57", PointCloud(POINTS))
    with pytest.raises(DataError, match=r"bin, \.npy"):
        save_point_cloud(tmp_path / "scan.las", PointCloud(POINTS))
    with pytest.raises(DataError, match="writing failed"):
        save_point_cloud(tmp_path / "no_folder" / "scan.bin", PointCloud(POINTS))


def test_suffix_in_capitals(tmp_path: Path) -> None:
    save_point_cloud(tmp_path / "SCAN.PCD", PointCloud(POINTS))
    np.testing.assert_array_equal(load_point_cloud(tmp_path / "SCAN.PCD").points, POINTS)


def test_a_folder_of_folders_names_those_with_scans(tmp_path: Path) -> None:
    (tmp_path / "drive" / "velodyne").mkdir(parents=True)
    with pytest.raises(DataError, match=r"the folder"):
        find_point_clouds([tmp_path])
    np.zeros((1, 4), np.float32).tofile(tmp_path / "drive" / "velodyne" / "0.bin")
    with pytest.raises(DataError, match=r"the scans"):
        find_point_clouds([tmp_path])


def test_find_point_clouds(tmp_path: Path) -> None:
    for name in ("b.bin", "a.npy", "c.doc"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "empty").mkdir()
    found = find_point_clouds([tmp_path / "b.bin", tmp_path])
    assert [path.name for path in found] == ["b.bin", "a.npy"]
    with pytest.raises(DataError, match="unknown"):
        find_point_clouds([tmp_path / "c.doc"])
    with pytest.raises(DataError, match="no such file or folder"):
        find_point_clouds([tmp_path / "missing"])
    with pytest.raises(DataError, match="file in this folder"):
        find_point_clouds([tmp_path / "empty"])
    with pytest.raises(DataError, match="point cloud"):
        find_point_clouds([])
