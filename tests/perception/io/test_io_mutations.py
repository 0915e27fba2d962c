"""Damaged files of every kind: read, or refused with the documented error, and nothing else."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import mutations

from perception import PointCloud
from perception.config import DetectorConfig, TrainConfig, load_config, save_config
from perception.data import CameraCalibration, objects_from_boxes
from perception.data.kitti import read_calibration, read_objects, write_calibration, write_objects
from perception.doctor import examine_data_set
from perception.errors import ConfigError, DataError
from perception.io import load_point_cloud, save_point_cloud
from perception.io.recordings import foxglove, ros
from perception.io.recordings.bag_poses import BagPoses
from perception.io.recordings.bag_scans import BagScans
from perception.io.recordings.bags import BagMessage, Topic, open_bag
from perception.scans.watch import ScanWatch

#: Mutated copies of each file: a few by default, many in the slow suite.
FEW, MANY = 44, 1100
#: No damage of these small files may ask for more memory than this.
MOST_BYTES = 200_000_000
Reader = Callable[[Path], Any]


def points() -> np.ndarray:
    """(40, 4) float32; 40 rows are whole rows of five as well."""
    made = np.random.default_rng(0).uniform(-50, 50, (40, 4)).astype(np.float32).round(2)
    made[:, 3] = np.abs(made[:, 3]) / 50
    return made


def text_of(rows: np.ndarray) -> bytes:
    return "".join(" ".join(f"{value:.9g}" for value in row) + "\n" for row in rows).encode()


def saved(suffix: str) -> Callable[[Path], None]:
    return lambda path: save_point_cloud(path, PointCloud(points()))


def ascii_pcd(path: Path) -> None:
    path.write_bytes(pcd_header("ascii") + text_of(points()))


def compressed_pcd(path: Path) -> None:
    columns = np.ascontiguousarray(points().T).tobytes()
    pieces = [columns[start : start + 32] for start in range(0, len(columns), 32)]
    packed = b"".join(bytes([len(piece) - 1]) + piece for piece in pieces[:-1])
    packed += b"\x1f" + pieces[-1]
    path.write_bytes(pcd_header("binary_compressed") + struct.pack("<II", len(packed), len(columns)) + packed)


def pcd_header(encoding: str) -> bytes:
    return (
        "VERSION 0.7\nFIELDS x y z intensity\nSIZE 4 4 4 4\nTYPE F F F F\nCOUNT 1 1 1 1\nWIDTH 40\nHEIGHT 1\n"
        f"POINTS 40\nDATA {encoding}\n"
    ).encode()


def ascii_ply(path: Path) -> None:
    names = "".join(f"property float {name}\n" for name in ("x", "y", "z", "intensity"))
    path.write_bytes(
        f"ply\nformat ascii 1.0\nelement vertex 40\n{names}end_header\n".encode() + text_of(points())
    )


def nuscenes(path: Path) -> None:
    rows = np.column_stack([points()[:, :3], np.arange(40), np.arange(40) % 32])
    path.write_bytes(rows.astype("<f4").tobytes())


def named_csv(path: Path) -> None:
    path.write_bytes(b"x,y,z,intensity\n" + text_of(points()).replace(b" ", b","))


def las(path: Path) -> None:
    laspy = pytest.importorskip("laspy")
    if path.suffix == ".laz":
        pytest.importorskip("lazrs")
    made = laspy.create(point_format=3, file_version="1.2")
    made.header.scales = [0.01] * 3
    made.x, made.y, made.z = points()[:, :3].T.astype(np.float64)
    made.intensity = (points()[:, 3] * 65535).astype(np.uint16)
    made.write(path)


def labels(path: Path) -> None:
    boxes = np.array([[12.0, 3, -0.9, 3.9, 1.6, 1.5, 0.3], [8.0, -2, -0.8, 0.8, 0.6, 1.7, 2.0]])
    write_objects(path, objects_from_boxes(boxes, ["Car", "Pedestrian"], None, CameraCalibration.default()))


def config(made: object) -> Callable[[Path], None]:
    return lambda path: save_config(made, path)


def configured(kind: type) -> Reader:
    return lambda path: load_config(kind, path)


def calibration(path: Path) -> None:
    write_calibration(path, CameraCalibration.default())


FILES: dict[str, tuple[Callable[[Path], object], Reader, type[Exception]]] = {
    "scan.bin": (saved(".bin"), load_point_cloud, DataError),
    "scan.pcd.bin": (nuscenes, load_point_cloud, DataError),
    "scan.npy": (saved(".npy"), load_point_cloud, DataError),
    "scan.pcd": (saved(".pcd"), load_point_cloud, DataError),
    "ascii.pcd": (ascii_pcd, load_point_cloud, DataError),
    "compressed.pcd": (compressed_pcd, load_point_cloud, DataError),
    "scan.ply": (saved(".ply"), load_point_cloud, DataError),
    "ascii.ply": (ascii_ply, load_point_cloud, DataError),
    "scan.xyz": (lambda path: path.write_bytes(text_of(points())), load_point_cloud, DataError),
    "scan.csv": (named_csv, load_point_cloud, DataError),
    "scan.las": (las, load_point_cloud, DataError),
    "scan.laz": (las, load_point_cloud, DataError),
    "label.txt": (labels, read_objects, DataError),
    "calib.txt": (calibration, read_calibration, DataError),
    "detector.yaml": (config(DetectorConfig()), configured(DetectorConfig), ConfigError),
    "train.yaml": (config(TrainConfig()), configured(TrainConfig), ConfigError),
}


def attack(path: Path, read: Reader, expected: type[Exception], count: int) -> tuple[int, int]:
    """Reads mutated copies in the place of a sound file: how many were read, and how many refused."""
    sound = path.read_bytes()
    read(path)
    done = refused = 0
    tracemalloc.start()
    try:
        for number, (kind, data) in enumerate(mutations(sound, count, seed=1)):
            path.write_bytes(data)
            tracemalloc.reset_peak()
            said = None
            try:
                found = read(path)
            except expected as error:
                said = str(error)
            except Exception as error:
                raise AssertionError(
                    f"{path.name}, {kind} {number}: {type(error).__name__}: {error}"
                ) from error
            if said is None:
                assert not isinstance(found, PointCloud) or found.points.shape == (len(found), 4)
                done += 1
            else:
                assert str(path) in said, f"{kind} {number}: {said}"
                assert len(said) < 4000, f"{kind} {number}"
                refused += 1
            assert tracemalloc.get_traced_memory()[1] < MOST_BYTES, f"{kind} {number}"
    finally:
        tracemalloc.stop()
        path.write_bytes(sound)
    return done, refused


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FILES)
def test_damaged_files(name: str, count: int, tmp_path: Path) -> None:
    if name.endswith(".yaml") and count == FEW:
        pytest.skip("YAML is read slowly: the slow suite does it, and a test of its own the nesting")
    write, read, expected = FILES[name]
    # Ten seconds for a file of a hundred thousand brackets.
    count = count // 20 if name.endswith(".yaml") else count
    path = tmp_path / name
    write(path)
    done, refused = attack(path, read, expected, count)
    assert done + refused == count
    assert refused > 0


def recordings(messages: Any, folder: Path, *, mcap: bool) -> Path:
    sent = [("/points", 1, messages.cloud(messages.columns(20, seed))) for seed in range(2)]
    poses = [
        ("/where", 2, messages.pose(2, (1.0, 2.0, 3.0))),
        ("/where", 3, messages.pose(3, (1.0, 2.0, 3.0))),
    ]
    return messages.write(folder, [*sent, *poses], mcap=mcap)  # type: ignore[no-any-return]


def read_recording(path: Path) -> int:
    """Everything that is read of a recording."""
    with open_bag(path) as bag:
        found = [scan for scan in BagScans(bag).attempts() if not isinstance(scan, DataError)]
        BagPoses(bag).at(2)
    return len(found)


@pytest.mark.parametrize("count", [44, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", ["*.mcap", "*.db3", "metadata.yaml"])
def test_damaged_recordings(part: str, count: int, ros_messages: Any, tmp_path: Path) -> None:
    # A damaged metadata.yaml of brackets takes as long as any YAML.
    count = count // 5 if part == "metadata.yaml" and count > 100 else count
    folder = recordings(ros_messages, tmp_path / "bag", mcap=part == "*.mcap")
    (path,) = folder.glob(part)
    target = path if part != "metadata.yaml" else folder

    def read(_: Path) -> int:
        try:
            return read_recording(target)
        except DataError as error:
            raise DataError(str(error).replace(str(target), str(path))) from error

    done, refused = attack(path, read, DataError, count)
    assert refused > 0
    assert done + refused == count


@pytest.mark.parametrize("count", [22, pytest.param(220, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["velodyne/000000.bin", "label_2/000000.txt", "calib/000000.txt"])
def test_doctor_and_detector_survive_what_can_be_read(
    name: str, count: int, kitti_folder: Path, tmp_path: Path
) -> None:
    """One frame of a data set, damaged again and again; the numbers in it are as odd as numbers get."""
    shutil.copytree(kitti_folder, tmp_path / "set")
    path = tmp_path / "set/training" / name
    for other in path.parent.parent.glob("*/00000[123].*"):
        other.unlink()
    watch = ScanWatch(DetectorConfig().pillars, every_frame=True)
    for kind, data in mutations(path.read_bytes(), count, seed=2):
        path.write_bytes(data)
        report = examine_data_set(tmp_path / "set")
        assert report.findings, kind
        assert len(json.dumps(report.to_dict())) < 50_000, kind
        if name.startswith("velodyne"):
            with contextlib.suppress(DataError):
                watch.check(load_point_cloud(path))


def foxglove_records() -> dict[str, Any]:
    """A cloud, a list of transforms and a pose, as JSON has them."""
    stamp = {"sec": 1, "nsec": 2}
    pose = {
        "position": {"x": 1.0, "y": 2.0, "z": 3.0},
        "orientation": {"x": 0.0, "y": 0.0, "z": 1.0, "w": 1.0},
    }
    fields = [
        {"name": name, "offset": 4 * k, "type": 7} for k, name in enumerate(("x", "y", "z", "intensity"))
    ]
    data = base64.b64encode(points().tobytes()).decode()
    cloud = {
        "timestamp": stamp,
        "frame_id": "lidar",
        "pose": pose,
        "point_stride": 16,
        "fields": fields,
        "data": data,
    }
    edge = {
        "timestamp": stamp, "parent_frame_id": "map", "child_frame_id": "base",
        "translation": pose["position"], "rotation": pose["orientation"],
    }  # fmt: skip
    return {
        foxglove.CLOUD: cloud,
        foxglove.TRANSFORMS[1]: {"transforms": [edge, edge]},
        foxglove.POSE: {"timestamp": stamp, "frame_id": "map", "pose": pose},
    }


def field(number: int, value: bytes | int) -> bytes:
    """A field of a Protocol Buffers message: bytes, or a whole number below 128."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    length = bytes([len(value) & 127 | 128, len(value) >> 7]) if len(value) > 127 else bytes([len(value)])
    return bytes([number << 3 | 2]) + length + value


def protobuf_cloud() -> bytes:
    fields = [
        field(1, name.encode()) + field(2, 4 * k) + field(3, 7) for k, name in enumerate(["x", "y", "z", "i"])
    ]
    pose = field(1, b"\x09" + struct.pack("<d", 2.0)) + field(2, b"\x21" + struct.pack("<d", 1.0))
    head = field(1, field(1, 5)) + field(2, b"lidar") + field(3, pose) + field(4, 16)
    return head + b"".join(field(5, one) for one in fields) + field(6, points().tobytes())


def sound_messages(messages: Any) -> list[tuple[Topic, bytes]]:
    """Messages of every type and encoding that is read."""
    sent = [
        messages.cloud(messages.columns(20)),
        messages.pose(5, (1.0, 2.0, 3.0)),
        messages.odometry(5, (1.0, 2.0, 3.0)),
        messages.tf(messages.transform(5, "map", "base", (1.0, 2.0, 3.0))),
    ]
    found = [(Topic("/a", one.__msgtype__, "cdr", 1), messages.serialised(one)) for one in sent]
    found += [
        (Topic("/a", kind, "json", 1), json.dumps(record).encode())
        for kind, record in foxglove_records().items()
    ]
    return [*found, (Topic("/a", foxglove.CLOUD, "protobuf", 1), protobuf_cloud())]


def decoded(message: BagMessage) -> Any:
    kind = message.topic.type
    if kind == ros.CLOUD:
        return ros.ros_cloud(message, "here").raw
    if kind == foxglove.CLOUD:
        return foxglove.foxglove_cloud(message, "here").raw
    if kind in (foxglove.POSE, *foxglove.TRANSFORMS):
        return foxglove.foxglove_transforms(message, "here")
    return ros.ros_transforms(message, "here")


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_damaged_messages(count: int, ros_messages: Any) -> None:
    for topic, sound in sound_messages(ros_messages):
        assert decoded(BagMessage(topic, 1, sound)), topic
        refused = 0
        for kind, data in mutations(sound, count, seed=3):
            try:
                decoded(BagMessage(topic, 1, data))
            except DataError as error:
                refused += "here" in str(error)
            except Exception as error:
                raise AssertionError(f"{topic}, {kind}: {type(error).__name__}: {error}") from error
        assert refused > 0, topic
