"""PLY files of all encodings, against open3d where it is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perception import PointCloud
from perception.errors import DataError
from perception.io import load_point_cloud, save_point_cloud

POINTS = np.random.default_rng(0).uniform(-50, 50, (33, 4)).astype(np.float32)
POINTS[:, 3] = np.abs(POINTS[:, 3]) / 50


def header(
    encoding: str, count: int, fields: str = "x y z intensity", *, before: str = "", after: str = ""
) -> str:
    lines = "".join(f"property float {name}\n" for name in fields.split())
    start = f"ply\nformat {encoding} 1.0\ncomment made by a test\n{before}"
    return f"{start}element vertex {count}\n{lines}{after}end_header\n"


def write(path: Path, head: str, body: bytes) -> Path:
    path.write_bytes(head.encode() + body)
    return path


@pytest.mark.parametrize(("encoding", "order"), [("binary_little_endian", "<"), ("binary_big_endian", ">")])
def test_binary_of_both_orders(encoding: str, order: str, tmp_path: Path) -> None:
    path = write(tmp_path / "scan.ply", header(encoding, len(POINTS)), POINTS.astype(f"{order}f4").tobytes())
    np.testing.assert_array_equal(load_point_cloud(path).points, POINTS)


@pytest.mark.parametrize(("encoding", "order"), [("binary_little_endian", "<"), ("binary_big_endian", ">")])
def test_the_format_line_counts_wherever_it_stands(encoding: str, order: str, tmp_path: Path) -> None:
    first, second, *rest = header(encoding, len(POINTS)).splitlines(keepends=True)
    assert second.startswith("format")
    head = "".join([first, *rest[:-1], second, rest[-1]])
    path = write(tmp_path / "scan.ply", head, POINTS.astype(f"{order}f4").tobytes())
    np.testing.assert_array_equal(load_point_cloud(path).points, POINTS)


@pytest.mark.parametrize("name", ["intensity", "scalar_intensity", "scalar_Intensity", "reflectance", "i"])
def test_ascii_with_the_names_of_intensity(name: str, tmp_path: Path) -> None:
    text = "".join(" ".join(f"{value:.9g}" for value in row) + "\n" for row in POINTS)
    path = write(tmp_path / "scan.ply", header("ascii", len(POINTS), f"x y z {name}"), text.encode())
    np.testing.assert_array_equal(load_point_cloud(path).points, POINTS)


def test_mixed_types_and_elements_around_the_vertices(tmp_path: Path) -> None:
    row = np.dtype([("red", "u1"), ("x", "<f8"), ("y", "<f4"), ("z", "<i2"), ("intensity", "<u2")])
    table = np.zeros(3, row)
    table["x"], table["y"], table["z"], table["intensity"] = (
        [1, 2, 3],
        [4, 5, 6.5],
        [7, 8, -9],
        [0, 13107, 65535],
    )
    head = (
        "ply\r\nformat binary_little_endian 1.0\r\nelement camera 2\r\n"
        "property double focal\r\nproperty uchar k\r\n"
        "element vertex 3\r\nproperty uchar red\r\nproperty double x\r\nproperty float32 y\r\n"
        "property short z\r\nproperty ushort intensity\r\n"
        "element face 1\r\nproperty list uchar int vertex_indices\r\nend_header\r\n"
    )
    body = bytes(18) + table.tobytes() + b"\x03" + bytes(12)
    loaded = load_point_cloud(write(tmp_path / "scan.ply", head, body)).points
    np.testing.assert_allclose(loaded, [[1, 4, 7, 0], [2, 5, 8, 0.2], [3, 6.5, -9, 1]], rtol=1e-6)


def test_ascii_bytes_and_elements_with_lists_before(tmp_path: Path) -> None:
    before = "element face 2\nproperty list uchar int vertex_indices\n"
    head = header("ascii", 2, "x y z", before=before, after="property uchar intensity\n")
    path = write(tmp_path / "scan.ply", head, b"3 0 1 2\n2 0 1\n1 2 3 1\n4 5 6 0\n")
    np.testing.assert_allclose(load_point_cloud(path).points, [[1, 2, 3, 1 / 255], [4, 5, 6, 0]], rtol=1e-6)


@pytest.mark.parametrize("encoding", ["ascii", "binary_little_endian"])
def test_no_points(encoding: str, tmp_path: Path) -> None:
    assert len(load_point_cloud(write(tmp_path / "scan.ply", header(encoding, 0), b""))) == 0


LIST = "property list uchar int k\n"


@pytest.mark.parametrize(
    ("head", "body", "message"),
    [
        ("", b"", "no end_header"),
        ("garbage\n", b"", "line 1 is not 'ply'"),
        ("ply\nelement vertex 1\nend_header\n", b"", "format line is missing"),
        ("ply\nformat ascii 1.0\nend_header\n", b"", "no element vertex"),
        ("ply\nformat zip 1.0\n", b"", "header entry 'format zip 1.0'"),
        ("ply\nformat ascii 1.0\nelement vertex 1\nproperty half x\n", b"", "line 4: .*'property half x'"),
        (header("ascii", 1, "x y"), b"1 2\n", "no field z"),
        (header("ascii", 1, after=LIST), b"1 2\n", "list property in or before"),
        (header("binary_little_endian", 1, before="element face 1\n" + LIST), b"", "element face has a list"),
        (
            header("ascii", 1).replace("vertex 1", "vertex " + "9" * 5000),
            b"",
            "line 4: .*'element vertex 999",
        ),
        (
            header("ascii", 1, after="format binary_little_endian 1.0\n"),
            b"",
            "line 9: format .* after format",
        ),
        (header("binary_little_endian", 10**17, ""), b"", "no field x, y, z"),
        (header("binary_little_endian", 10**17), b"", "truncated, 1600000000000000000 of"),
        (header("ascii", 2), b"1 2 3 0\n", "truncated, 1 of 2"),
        (header("ascii", 1), b"1 2 3\n", "line 10: 3 values, expected 4"),
        (header("ascii", 1), b"1 2 z 0\n", "line 10: field z"),
        (header("binary_little_endian", 2), bytes(20), "truncated, 12 of 32 data bytes"),
    ],
)
def test_bad_files_name_the_place(head: str, body: bytes, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "scan.ply", head, body)
    with pytest.raises(DataError, match=message) as caught:
        load_point_cloud(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("ascii_", [True, False])
def test_reads_what_open3d_writes(*, ascii_: bool, tmp_path: Path) -> None:
    o3d = pytest.importorskip("open3d")
    cloud = o3d.t.geometry.PointCloud(o3d.core.Tensor(np.ascontiguousarray(POINTS[:, :3])))
    cloud.point["intensity"] = o3d.core.Tensor(np.ascontiguousarray(POINTS[:, 3:]))
    path = tmp_path / "scan.ply"
    assert o3d.t.io.write_point_cloud(str(path), cloud, write_ascii=ascii_)
    np.testing.assert_allclose(load_point_cloud(path).points, POINTS, atol=1e-4)


def test_open3d_reads_what_we_write(tmp_path: Path) -> None:
    o3d = pytest.importorskip("open3d")
    path = tmp_path / "scan.ply"
    save_point_cloud(path, PointCloud(POINTS))
    cloud = o3d.t.io.read_point_cloud(str(path))
    np.testing.assert_array_equal(cloud.point["positions"].numpy(), POINTS[:, :3])
    np.testing.assert_array_equal(cloud.point["intensity"].numpy().ravel(), POINTS[:, 3])
