"""PCD files of all encodings, against open3d where it is installed."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from perception import PointCloud
from perception.errors import DataError
from perception.io import load_point_cloud, save_point_cloud

POINTS = np.random.default_rng(0).uniform(-50, 50, (33, 4)).astype(np.float32)
POINTS[:, 3] = np.abs(POINTS[:, 3]) / 50


def header(
    encoding: str, count: int, fields: str = "x y z intensity", *, extra: str = "", **rows: str
) -> str:
    names = fields.split()
    entries = {
        "FIELDS": fields,
        "SIZE": " ".join("4" for _ in names),
        "TYPE": " ".join("F" for _ in names),
        "COUNT": " ".join("1" for _ in names),
        "WIDTH": str(count),
        "HEIGHT": "1",
        "POINTS": str(count),
    } | rows
    lines = [f"{key} {value}" for key, value in entries.items() if value]
    return "# a comment\nVERSION 0.7\n" + "\n".join(lines) + f"\n{extra}DATA {encoding}\n"


def write(path: Path, head: str, body: bytes) -> Path:
    path.write_bytes(head.encode() + body)
    return path


def text_rows(points: np.ndarray) -> bytes:
    return "".join(" ".join(f"{value:.9g}" for value in row) + "\n" for row in points).encode()


def literals(columns: bytes) -> bytes:
    """The body of a binary_compressed file that repeats nothing."""
    pieces = [columns[start : start + 32] for start in range(0, len(columns), 32)]
    packed = b"".join(bytes([len(piece) - 1]) + piece for piece in pieces)
    return struct.pack("<II", len(packed), len(columns)) + packed


def test_ascii(tmp_path: Path) -> None:
    path = write(tmp_path / "scan.pcd", header("ascii", len(POINTS)), text_rows(POINTS))
    np.testing.assert_array_equal(load_point_cloud(path).points, POINTS)


def test_ascii_with_nan_blank_lines_and_windows_line_ends(tmp_path: Path) -> None:
    head = header("ascii", 2).replace("\n", "\r\n")
    path = write(tmp_path / "scan.pcd", head, b"nan 1 2 0.5\r\n\r\n3 inf 5 1\r\n")
    expected = np.array([[np.nan, 1, 2, 0.5], [3, np.inf, 5, 1]], np.float32)
    np.testing.assert_array_equal(load_point_cloud(path).points, expected)


def test_binary_of_mixed_types_with_padding_and_multi_value_fields(tmp_path: Path) -> None:
    row = np.dtype({"names": ["t", "x", "y", "z", "h", "i"],
                    "formats": ["<u8", "<f8", "<f4", "<i2", "<f4", "u1"],
                    "offsets": [0, 8, 16, 20, 25, 37], "itemsize": 38})  # fmt: skip
    table = np.zeros(4, row)
    table["x"], table["y"], table["z"] = [1.5, 2, 3, 4], [5, 6, 7, 8.5], [-9, 1, 2, 3]
    table["i"] = [0, 51, 102, 255]
    head = header("binary", 4, "t x y z _ h I", SIZE="8 8 4 2 1 4 1", TYPE="U F F I U F U",
                  COUNT="1 1 1 1 3 3 1")  # fmt: skip
    path = write(tmp_path / "scan.pcd", head, table.tobytes())
    expected = np.column_stack([table["x"], table["y"], table["z"], table["i"] / 255])
    np.testing.assert_allclose(load_point_cloud(path).points, expected.astype(np.float32))


@pytest.mark.parametrize("encoding", ["binary", "binary_compressed"])
def test_fields_of_odd_sizes_and_counts(encoding: str, tmp_path: Path) -> None:
    """Rows of 1 + 3 * 2 + 8 + 4 + 1 + 2 = 22 bytes: no number is where its type would be aligned."""
    fields = {
        "a": ("u1", 1),
        "n": ("<i2", 3),
        "x": ("<f8", 1),
        "Y": ("<f4", 1),
        "z": ("i1", 1),
        "i": ("<u2", 1),
    }
    table = np.zeros(3, [(name, kind, (count,)) for name, (kind, count) in fields.items()])
    table["x"], table["Y"], table["z"], table["i"] = (
        [[1.5], [2], [3]],
        [[4], [5], [-6]],
        [[7], [-8], [9]],
        [[0]],
    )
    table["i"][2] = 65535
    kinds = [np.dtype(kind) for kind, _ in fields.values()]
    head = header(encoding, 3, " ".join(fields), SIZE=" ".join(str(kind.itemsize) for kind in kinds),
                  TYPE=" ".join(kind.kind.upper() for kind in kinds),
                  COUNT=" ".join(str(count) for _, count in fields.values()))  # fmt: skip
    body = table.tobytes()
    if encoding == "binary_compressed":
        body = literals(b"".join(table[name].tobytes() for name in fields))
    loaded = load_point_cloud(write(tmp_path / "scan.pcd", head, body)).points
    np.testing.assert_array_equal(loaded, [[1.5, 4, 7, 0], [2, 5, -8, 0], [3, -6, 9, 1]])


@pytest.mark.parametrize("encoding", ["ascii", "binary", "binary_compressed"])
def test_fields_of_count_zero_occupy_nothing(encoding: str, tmp_path: Path) -> None:
    """PCL pads its points so: four bytes behind z, and a field without a byte before and behind a ring."""
    kinds = {"x": "<f4", "y": "<f4", "z": "<f4", "pad": "V4", "intensity": "<f4", "ring": "u1", "end": "V15"}
    table = np.zeros(len(POINTS), list(kinds.items()))
    for column, name in enumerate(("x", "y", "z", "intensity")):
        table[name] = POINTS[:, column]
    table["ring"] = 7
    head = header(encoding, len(POINTS), "x y z _ intensity _ ring _ _", SIZE="4 4 4 1 4 1 1 1 1",
                  TYPE="F F F U F U U U U", COUNT="1 1 1 4 1 0 1 0 15")  # fmt: skip
    body = table.tobytes()
    if encoding == "ascii":
        zeros = np.zeros((len(POINTS), 19))
        body = text_rows(np.column_stack([POINTS[:, :3], zeros[:, :4], POINTS[:, 3], zeros[:, 3:]]))
    elif encoding == "binary_compressed":
        body = literals(b"".join(table[name].tobytes() for name in kinds))
    loaded = load_point_cloud(write(tmp_path / "scan.pcd", head, body)).points
    np.testing.assert_array_equal(loaded, POINTS)


def test_an_empty_field_hides_no_field_of_its_name(tmp_path: Path) -> None:
    """Neither TYPE nor SIZE of a field without bytes can be wrong."""
    head = header("binary", len(POINTS), "intensity x y z intensity intensity", SIZE="0 4 4 4 4 0",
                  TYPE="Q F F F F F", COUNT="0 1 1 1 1 0")  # fmt: skip
    path = write(tmp_path / "scan.pcd", head, POINTS.tobytes())
    np.testing.assert_array_equal(load_point_cloud(path).points, POINTS)


def test_the_first_of_two_fields_of_one_name_counts(tmp_path: Path) -> None:
    head = header("binary", len(POINTS), "x y z intensity x")
    path = write(tmp_path / "scan.pcd", head, np.column_stack([POINTS, POINTS[:, 1]]).tobytes())
    np.testing.assert_array_equal(load_point_cloud(path).points, POINTS)


def test_organised_cloud_without_intensity_and_without_points_entry(tmp_path: Path) -> None:
    xyz = np.ascontiguousarray(POINTS[:32, :3])
    head = header("binary", 0, "x y z", WIDTH="8", HEIGHT="4", POINTS="", COUNT="")
    path = write(tmp_path / "scan.pcd", head, xyz.tobytes())
    loaded = load_point_cloud(path).points
    np.testing.assert_array_equal(loaded[:, :3], xyz)
    assert not loaded[:, 3].any()


def test_binary_compressed_of_literals(tmp_path: Path) -> None:
    columns = np.ascontiguousarray(POINTS.T).tobytes()
    path = write(tmp_path / "scan.pcd", header("binary_compressed", len(POINTS)), literals(columns))
    np.testing.assert_array_equal(load_point_cloud(path).points, POINTS)


@pytest.mark.parametrize("encoding", ["ascii", "binary"])
def test_no_points(encoding: str, tmp_path: Path) -> None:
    assert len(load_point_cloud(write(tmp_path / "scan.pcd", header(encoding, 0), b""))) == 0


@pytest.mark.parametrize(
    ("head", "body", "message"),
    [
        ("", b"", "no DATA line"),
        ("garbage\n", b"", "line 1: unknown header entry 'garbage'"),
        (header("zipped", 1), b"", "DATA zipped; expected ascii"),
        (header("binary", 1, FIELDS=""), b"", "FIELDS is missing"),
        (header("binary", 1, SIZE="4 4"), b"", "entry SIZE is '4 4'; expected 4 whole numbers"),
        (header("binary", 1, SIZE="4 4 4 x"), b"", "SIZE"),
        (header("binary", 1, TYPE="F F F"), b"", "TYPE has 3 values for 4 fields"),
        (header("binary", 1, TYPE="F F F Q"), b"", "field intensity has TYPE Q"),
        (header("binary", 1, SIZE="4 4 4 3"), b"", "field intensity has TYPE F and SIZE 3"),
        (header("binary", 1, COUNT="1 0 1 1"), bytes(12), "field y has COUNT 0; expected COUNT 1"),
        (header("ascii", 1, COUNT="3 1 1 1"), b"1 2 3 4 5 6\n", "field x has COUNT 3; expected COUNT 1"),
        (header("binary", 1, COUNT="1 1 1"), b"", "entry COUNT is '1 1 1'; expected 4 whole numbers"),
        (header("binary", 1, COUNT="1 1 1 1 0"), b"", "entry COUNT is '1 1 1 1 0'; expected 4 whole"),
        (header("binary", 1, COUNT="1 1 1 -1"), b"", "COUNT is '1 1 1 -1'"),
        (header("binary", 1, SIZE="4 4 4 " + "9" * 5000), b"", "SIZE is '4 4 4 999"),
        (header("ascii", 1, WIDTH="9" * 5000), b"", "WIDTH is '9999"),
        (header("ascii", 1, WIDTH="9" * 18, HEIGHT="9" * 18), b"", "POINTS 1 is not WIDTH 9"),
        (header("binary", 1, WIDTH="9" * 18, POINTS="9" * 18), b"", "truncated, 1599999"),
        (header("binary", 2, WIDTH="3"), b"", "POINTS 2 is not WIDTH 3 x HEIGHT 1"),
        (header("binary", 1, WIDTH="", POINTS=""), b"", "POINTS is 'missing'"),
        (header("binary", 2), bytes(20), "truncated, 12 of 32 data bytes are missing"),
        (header("ascii", 2), b"1 2 3 0\n", "1 points after DATA ascii"),
        (header("ascii", 1), b"1 2 3\n", "line 11: 3 values, expected 4"),
        (header("ascii", 1), b"1 2 z 0\n", "line 11: field z is 'z', not a number"),
        (header("binary", 1, "x y intensity"), bytes(12), "x, y, intensity"),
        (header("binary_compressed", 1), b"123", "sizes of the compressed data are missing"),
        (header("binary_compressed", 1), struct.pack("<II", 1, 99), "99 uncompressed bytes"),
        (header("binary_compressed", 1), struct.pack("<II", 9, 16) + b"a", "truncated, 8 compressed"),
        (header("binary_compressed", 1), struct.pack("<II", 2, 16) + b"\x00a", "damaged"),
    ],
)  # fmt: skip
def test_bad_files_name_the_place(head: str, body: bytes, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "scan.pcd", head, body)
    with pytest.raises(DataError, match=message) as caught:
        load_point_cloud(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.parametrize(("ascii_", "compressed"), [(True, False), (False, False), (False, True)])
def test_reads_what_open3d_writes(*, ascii_: bool, compressed: bool, count: int, tmp_path: Path) -> None:
    o3d = pytest.importorskip("open3d")
    generator = np.random.default_rng(1)
    # Few distinct values compress well: both literals and back references occur.
    xyz = generator.integers(-20, 20, (count, 3)).astype(np.float32) / 4
    cloud = o3d.t.geometry.PointCloud(o3d.core.Tensor(xyz))
    intensity = generator.integers(0, 8, (count, 1)).astype(np.float32) / 8
    cloud.point["intensity"] = o3d.core.Tensor(intensity)
    path = tmp_path / "scan.pcd"
    assert o3d.t.io.write_point_cloud(str(path), cloud, write_ascii=ascii_, compressed=compressed)
    expected = np.column_stack([xyz, intensity])
    np.testing.assert_allclose(load_point_cloud(path).points, expected, atol=1e-6)


def test_open3d_reads_what_we_write(tmp_path: Path) -> None:
    o3d = pytest.importorskip("open3d")
    path = tmp_path / "scan.pcd"
    save_point_cloud(path, PointCloud(POINTS))
    cloud = o3d.t.io.read_point_cloud(str(path))
    np.testing.assert_array_equal(cloud.point["positions"].numpy(), POINTS[:, :3])
    np.testing.assert_array_equal(cloud.point["intensity"].numpy().ravel(), POINTS[:, 3])
