"""Points as text: names and units of columns, separators, and what is refused."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from perception import PointCloud
from perception.errors import DataError
from perception.io import find_point_clouds, load_point_cloud, save_point_cloud
from perception.scans import ScanTransform

POINTS = np.array([[1.5, -2.25, 0.5, 0.25], [-3.0, 4.0, -1.0, 1.0]], np.float32)


def read(tmp_path: Path, text: str, suffix: str = ".csv", **how: object) -> np.ndarray:
    path = tmp_path / f"scan{suffix}"
    path.write_text(text, encoding="utf-8")
    return load_point_cloud(path, **how).points  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "1.5,-2.25,0.5,0.25\n-3,4,-1,1\n",
        "1.5 -2.25 0.5 0.25\r\n-3 4\t-1  1",
        "\n  1.5, -2.25, 0.5, 0.25\n\n-3,4,-1,1,\n",
        "1,5;-2,25;0,5;0,25\n-3;4;-1;1\n",
        "2\n1.5 -2.25 0.5 0.25\n-3 4 -1 1\n",
        "# made by a tool, version 1.2\n1.5 -2.25 0.5 0.25\n# and so on\n-3 4 -1 1\n",
        "x,y,z,intensity\n1.5,-2.25,0.5,0.25\n-3,4,-1,1\n",
        "\ufeffX, Y, Z, Intensity\n1.5,-2.25,0.5,0.25\n-3,4,-1,1\n",
        "//X Y Z Intensity\n1.5 -2.25 0.5 0.25\n-3 4 -1 1\n",
        "# x y z i\n1.5 -2.25 0.5 0.25\n-3 4 -1 1\n",
        '"time","reflectivity","z","y","x"\n"a","0.25","0.5","-2.25","1.5"\n"b","1","-1","4","-3"\n',
        "t;X (mm);Y (mm);Z (mm);REFLECTIVITY (%)\n0;1500;-2250;500;0,25\n0;-3000;4000;-1000;1\n",
        "x_cm y_cm z_cm intensity\n150 -225 50 0.25\n-300 400 -100 1\n",
        "Points_m_XYZ:0,Points_m_XYZ:1,Points_m_XYZ:2,intensity\n1.5,-2.25,0.5,0.25\n-3,4,-1,1\n",
        "Points_m_XYZ:0,Points_m_XYZ:1,Points_m_XYZ:2,intensity,X,Y,Z\n9,9,9,0.25,1.5,-2.25,0.5\n9,9,9,1,-3,4,-1\n",
    ],
)  # fmt: skip
def test_what_is_written_in_many_ways_is_read_alike(text: str, tmp_path: Path) -> None:
    np.testing.assert_allclose(read(tmp_path, text), POINTS, rtol=1e-6)


def test_columns_say_what_they_are_whatever_the_names(tmp_path: Path) -> None:
    text = "a b c d e\n0.5 1.5 -2.25 7 0.25\n-1 -3 4 8 1\n"
    np.testing.assert_array_equal(read(tmp_path, text, ".txt", columns="z,x,y,_,intensity"), POINTS)
    with pytest.raises(DataError, match=r"line 2: 5 columns"):
        read(tmp_path, text, ".txt", columns=4)


def test_intensity_may_be_missing_bytes_and_rows_not_finite(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read(tmp_path, "1 2 3\n"), [[1, 2, 3, 0]])
    assert read(tmp_path, "1 2 3 255\n1 2 3 0\n")[0, 3] == 1.0
    found = read(tmp_path, "x,y,z\nnan,1,2\ninf,1,1e300\n")
    np.testing.assert_array_equal(found[:, :3], [[np.nan, 1, 2], [np.inf, 1, np.inf]])
    assert ScanTransform(scale=2.0).apply(PointCloud(found)).points[0, 2] == 4.0


@pytest.mark.parametrize("text", ["", "\n\n", "x,y,z\n", "0\n"])
def test_without_points_it_is_an_empty_cloud(text: str, tmp_path: Path) -> None:
    assert read(tmp_path, text).shape == (0, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y,intensity\n1,2,3\n", "line 1: no column z"),
        ("time,lat,lon\n1,2,3\n", "line 1: no column x, y, z"),
        ("1,2\n", "line 1: 2 columns without names"),
        ("\n1 2 3 4 5\n", "line 2: 5 columns without names"),
        ("1,2,3\n4,5\n", "line 2: 2 values"),
        ("1,2,3\n\n4,five,6\n", "line 3: column y is 'five'"),
        ("x,y,z,label\n1,2,3,car\n4,,6,van\n", "line 3: column y is ''"),
        ("x,y,z,intensity\n1,2,3\n", "line 2: 3 columns"),
        ("x (m),y (m),z (mm)\n1,2,3\n", "several units (x in m, y in m, z in mm)"),
        ("x (deg),y (deg),z (deg)\n1,2,3\n", "unit 'deg' of column x"),
        ("5\n1 2 3\n", "first line promises 5"),
        ("a scan\n1 2 3\n", "line 1: no column x, y, z"),
        ("# nothing else\n", "no line of numbers"),
        ("1 2 3 -4\n", "intensity spans -4 to -4; expected 0..1, 0..255 or 0..65535"),
        ("1\x00 2 3\n", "not a text file, or"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"scan\.csv") as told:
        read(tmp_path, text)
    assert message in str(told.value)


def test_bytes_that_are_no_text_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "scan.xyz"
    path.write_bytes(b"1 2 3\n\xff\xfe\n")
    with pytest.raises(DataError, match="not a text file"):
        load_point_cloud(path)
    with pytest.raises(DataError, match="no such file"):
        load_point_cloud(tmp_path / "none.csv")


def test_map_coordinates_are_refused(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.uniform(-40, 40, (200, 3)) + np.array([543210.0, 5210987.0, 430.0])
    with pytest.raises(DataError, match=r"points lie around \(5432\d\d, 52109\d\d, 4\d\d\).*map coordinates"):
        read(tmp_path, "".join(f"{x:.3f} {y:.3f} {z:.3f}\n" for x, y, z in rows))


def test_a_folder_of_text_holds_scans_where_they_look_like_points(tmp_path: Path) -> None:
    scan = tmp_path / "b.csv"
    scan.write_text("x,y,z\n1,2,3\n")
    for name, text in {
        "poses.txt": "1 0 0 5 0 1 0 0 0 0 1 2\n", "tum.txt": "1.0 0 0 0 0 0 0 1\n", "times.txt": "1\n2\n",
        "labels.csv": "frame,x,y,z,length,width,height,yaw\n1,1,2,3,4,5,6,7\n", "README.txt": "some scans\n",
        "calib.txt": "P0: 1 2 3\n", "wrong.txt": "\udcff", "odometry.csv": "t,x,y,z,qx,qy,qz,qw\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text, errors="surrogateescape")
    assert find_point_clouds([tmp_path]) == [scan]
    save_point_cloud(tmp_path / "a.bin", PointCloud(POINTS))
    assert find_point_clouds([tmp_path]) == [tmp_path / "a.bin"]


@pytest.mark.parametrize("count", [200_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_many_points_need_little_more_memory_than_they_have(count: int, tmp_path: Path) -> None:
    path = tmp_path / "scan.xyz"
    block = "".join(f"{k % 97 * 0.5:.2f} {k % 31:.2f} {k % 7:.2f} 0.50\n" for k in range(10_000))
    with path.open("w") as file:
        for _ in range(count // 10_000):
            file.write(block)
    tracemalloc.start()
    cloud = load_point_cloud(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(cloud) == count
    # A piece of text is some 40 MB as lines and numbers; the points themselves are 16 bytes each.
    assert most < 80e6 + 4 * 16 * count
