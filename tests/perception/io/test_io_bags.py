"""Scans out of recordings that rosbags and Foxglove's own library wrote."""

from __future__ import annotations

import base64
import json
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perception.errors import DataError
from perception.io.recordings.bag_scans import BagScans, cloud_topic
from perception.io.recordings.bags import BagMessage, Topic, is_bag, open_bag
from perception.io.recordings.foxglove import foxglove_cloud
from perception.io.recordings.ros import ros_cloud
from perception.scans import ScanTransform

SECOND_NS = 10**9
FOXGLOVE = Topic("/points", "foxglove.PointCloud", "protobuf", 1)
FORMATS = {"sqlite": {}, "mcap": {"mcap": True}, "zstd": {"compressed": "message"}}


def scans(path: Path, topic: str | None = None) -> list[Any]:
    with open_bag(path) as bag:
        return list(BagScans(bag, topic))


def stacked(columns: dict[str, np.ndarray]) -> np.ndarray:
    return np.stack([columns[name].astype(np.float32) for name in columns], axis=1)


@pytest.mark.parametrize("how", FORMATS)
def test_a_bag_gives_its_scans_in_order(ros_messages: Any, tmp_path: Path, how: str) -> None:
    columns = [ros_messages.columns(50, seed) for seed in range(3)]
    sent = [
        ("/points", (9 + k) * SECOND_NS, ros_messages.cloud(one, time_ns=(5 + k) * SECOND_NS + 7))
        for k, one in enumerate(columns)
    ]
    path = ros_messages.write(tmp_path / "bag", [("/tf", 1, ros_messages.tf()), *sent], **FORMATS[how])
    assert is_bag(path)
    found = scans(path)
    assert [scan.number for scan in found] == [0, 1, 2]
    for k, scan in enumerate(found):
        np.testing.assert_array_equal(scan.cloud.points, stacked(columns[k]))
        assert scan.cloud.timestamp_ns == (5 + k) * SECOND_NS + 7
        assert scan.cloud.source == f"{path}:/points#{k}"
        assert scan.frame_id == "lidar"


@pytest.mark.parametrize("mcap", [False, True])
def test_a_single_file_is_enough(
    ros_messages: Any, single_file: Callable[[Path], Path], tmp_path: Path, mcap: bool
) -> None:
    columns = ros_messages.columns(20)
    folder = ros_messages.write(tmp_path / "bag", [("/points", 1, ros_messages.cloud(columns))], mcap=mcap)
    (found,) = scans(single_file(folder))
    np.testing.assert_array_equal(found.cloud.points, stacked(columns))


KINDS = st.sampled_from(["f4", "f8", "i2", "i4", "u2", "u4", "i1", "u1"])


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(data=st.data(), big_endian=st.booleans(), height=st.integers(1, 3), row_padding=st.integers(0, 9))
def test_any_layout_of_the_points_is_read(
    ros_messages: Any, data: st.DataObject, big_endian: bool, height: int, row_padding: int
) -> None:
    names = data.draw(st.permutations(["x", "y", "z", "ring", "time"]))
    kinds = {name: data.draw(KINDS) for name in names}
    padding = data.draw(st.lists(st.integers(0, 5), max_size=6))
    width = data.draw(st.integers(0, 5))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    columns = {
        name: random.integers(0, 100, width * height).astype(kinds[name])
        if width
        else np.zeros(0, kinds[name])
        for name in names
    }
    if data.draw(st.booleans()):
        columns["Intensity"] = random.integers(0, 256, width * height).astype("u1")
    if "f" in kinds["x"] and width:
        columns["x"][0] = np.nan
    message = ros_messages.cloud(
        columns, big_endian=big_endian, padding=padding, height=height, row_padding=row_padding
    )
    topic = Topic("/points", message.__msgtype__, "cdr", 1)
    found = ros_cloud(BagMessage(topic, 3, ros_messages.serialised(message)), "here").raw
    expected = np.stack([columns[name].astype(np.float32) for name in "xyz"], axis=1)
    np.testing.assert_array_equal(found.xyz, expected)
    if "Intensity" in columns and width:
        assert found.intensity is not None
        np.testing.assert_array_equal(found.intensity, columns["Intensity"])
        assert found.intensity.dtype == np.uint8
    else:
        assert found.intensity is None


@pytest.mark.parametrize("name", ["i", "reflectivity", "intensity"])
@pytest.mark.parametrize(("kind", "scale"), [("u1", 255), ("f4", 255), ("u2", 65535), ("f4", 1)])
def test_intensity_is_brought_to_one(
    ros_messages: Any, tmp_path: Path, name: str, kind: str, scale: int
) -> None:
    columns = ros_messages.columns(5, intensity="")
    columns[name] = np.array([0, scale / 5, scale / 3, scale / 2, scale]).astype(kind)
    path = ros_messages.write(tmp_path / "bag", [("/points", 1, ros_messages.cloud(columns))])
    (found,) = scans(path)
    expected = columns[name].astype(np.float64) / scale
    np.testing.assert_allclose(found.cloud.points[:, 3], expected, rtol=1e-6)


def test_a_dim_scan_keeps_the_range_of_its_sensor(ros_messages: Any, tmp_path: Path) -> None:
    columns = [ros_messages.columns(2, k) for k in range(2)]
    columns[0]["intensity"][:] = [3, 200]
    columns[1]["intensity"][:] = [0, 1]
    sent = [("/points", k, ros_messages.cloud(one)) for k, one in enumerate(columns)]
    found = scans(ros_messages.write(tmp_path / "bag", sent))
    np.testing.assert_allclose(found[1].cloud.points[:, 3], [0, 1 / 255])


def test_scans_are_changed_as_files_are(ros_messages: Any, tmp_path: Path) -> None:
    columns = ros_messages.columns(30)
    columns["intensity"] = np.float32(100) * columns["intensity"]
    path = ros_messages.write(tmp_path / "bag", [("/points", 1, ros_messages.cloud(columns))])
    change = ScanTransform(0.001, "y,-x,z", 2.5, 100)
    with open_bag(path) as bag:
        (found,) = BagScans(bag, transform=change)
    np.testing.assert_array_equal(found.cloud.points, change.apply(stacked(columns)).points)
    assert found.cloud.sensor_height_m == 2.5


def test_without_intensity_it_is_zero_and_nan_is_kept(ros_messages: Any, tmp_path: Path) -> None:
    columns = ros_messages.columns(4, intensity="")
    columns["y"][2] = np.nan
    empty = {name: values[:0] for name, values in columns.items()}
    sent = [("/points", k, ros_messages.cloud(one)) for k, one in enumerate((columns, empty))]
    found = scans(ros_messages.write(tmp_path / "bag", sent))
    assert not found[0].cloud.points[:, 3].any()
    assert np.isnan(found[0].cloud.points[2, 1])
    assert found[1].cloud.points.shape == (0, 4)


def test_a_stamp_of_zero_gives_way_to_the_recording(ros_messages: Any, tmp_path: Path) -> None:
    message = ros_messages.cloud(ros_messages.columns(2), time_ns=0)
    (found,) = scans(ros_messages.write(tmp_path / "bag", [("/points", 77, message)]))
    assert found.cloud.timestamp_ns == 77


def test_the_topic_is_the_only_one_or_the_named_one(ros_messages: Any, tmp_path: Path) -> None:
    one, other = (ros_messages.cloud(ros_messages.columns(count)) for count in (3, 4))
    path = ros_messages.write(
        tmp_path / "bag", [("/front", 1, one), ("/rear", 2, other), ("/tf", 3, ros_messages.tf())]
    )
    assert len(scans(path, "/rear")[0].cloud) == 4
    with open_bag(path) as bag:
        with pytest.raises(DataError, match=r"bag: 2 topics hold point clouds: /front \(1\), /rear \(1\)"):
            cloud_topic(bag)
        with pytest.raises(DataError, match=r"topics: /front \(sensor_msgs/msg/Point"):
            cloud_topic(bag, "/none")
        with pytest.raises(DataError, match="tf2_msgs/msg/TFMessage, no point clouds, in topic '/tf'"):
            cloud_topic(bag, "/tf")
    alone = ros_messages.write(tmp_path / "alone", [("/tf", 3, ros_messages.tf())])
    with pytest.raises(DataError, match=r"alone: no topic holds .*; topics: /tf"):
        scans(alone)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"data": np.zeros(50, np.uint8)}, "truncated, 110 of 160 bytes of points are missing"),
        ({"point_step": 10}, "field z at byte 8 exceeds point_step 10"),
        ({"height": 2, "width": 5, "row_step": 3}, "row_step is 3, less than width 5 x point_step 16"),
        ({"fields": []}, "no field x, y, z"),
    ],
)
def test_a_cloud_that_makes_no_sense_is_named(
    ros_messages: Any, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    good = ros_messages.cloud(ros_messages.columns(10))
    bad = ros_messages.cloud(ros_messages.columns(10), **changed)
    path = ros_messages.write(tmp_path / "bag", [("/points", 1, bad), ("/points", 2, good)])
    with pytest.raises(DataError) as raised:
        scans(path)
    assert str(raised.value).startswith(f"{path}: topic /points, message 0: {said}")
    with open_bag(path) as bag:
        first, second = BagScans(bag).attempts()
    assert isinstance(first, DataError)
    assert len(second.cloud) == 10


def test_an_unknown_datatype_is_named(ros_messages: Any, tmp_path: Path) -> None:
    message = ros_messages.cloud(ros_messages.columns(3))
    message.fields[1].datatype = 9
    path = ros_messages.write(tmp_path / "bag", [("/points", 1, message)])
    with pytest.raises(DataError, match="an unknown datatype"):
        scans(path)


def test_an_intensity_of_no_known_range_is_refused(ros_messages: Any, tmp_path: Path) -> None:
    columns = ros_messages.columns(2)
    columns["intensity"][:] = [-5, 3]
    path = ros_messages.write(tmp_path / "bag", [("/points", 1, ros_messages.cloud(columns))])
    with pytest.raises(DataError, match=r"/points, message 0: intensity spans -5 to 3; expected 0\.\.1"):
        scans(path)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 0.9, 0.999])
@pytest.mark.parametrize("mcap", [False, True])
def test_a_recording_that_is_cut_off_is_named(
    ros_messages: Any, single_file: Callable[[Path], Path], tmp_path: Path, mcap: bool, share: float
) -> None:
    sent = [("/points", k, ros_messages.cloud(ros_messages.columns(300, k))) for k in range(20)]
    path = single_file(ros_messages.write(tmp_path / "bag", sent, mcap=mcap))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match=path.name):
        scans(path)
    with pytest.raises(DataError, match="bag"):
        scans(path.parent)


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_give_an_error_or_scans(
    ros_messages: Any, single_file: Callable[[Path], Path], tmp_path: Path, seed: int
) -> None:
    sent = [("/points", k, ros_messages.cloud(ros_messages.columns(20, k))) for k in range(6)]
    path = single_file(ros_messages.write(tmp_path / "bag", sent, mcap=bool(seed % 2)))
    content = bytearray(path.read_bytes())
    random = np.random.default_rng(seed)
    for place in random.integers(0, len(content), 40).tolist():
        content[place] ^= int(random.integers(1, 256))
    path.write_bytes(content)
    found: list[Any] = []
    with suppress(DataError):
        found = scans(path)
    assert all(scan.cloud.points.shape[1] == 4 for scan in found)


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "b.mcap").write_bytes(b"not one" * 100)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "metadata.yaml").write_text("rosbag2_bagfile_information: 3")
    with pytest.raises(DataError, match="no such recording"), open_bag(tmp_path / "none.mcap"):
        pass
    with pytest.raises(DataError, match=r"a\.txt: not a recording"), open_bag(tmp_path / "a.txt"):
        pass
    for name in ("b.mcap", "c"):
        with pytest.raises(DataError, match=f"{name}: damaged"), open_bag(tmp_path / name):
            pass


def test_without_the_libraries_the_extra_is_named(
    ros_messages: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ros_messages.write(tmp_path / "bag", [("/tf", 1, ros_messages.tf())])
    (tmp_path / "a.mcap").write_bytes(b"")
    for module, where in (("rosbags.rosbag2", path), ("mcap.reader", tmp_path / "a.mcap")):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, module, None)
            with pytest.raises(ImportError, match=r"sparsight\[ros\]"), open_bag(where):
                pass


def write_mcap(
    path: Path, messages: list[tuple[int, bytes]], *, topic: Topic = FOXGLOVE, **options: Any
) -> Path:
    from mcap.writer import Writer

    with path.open("wb") as stream:
        writer = Writer(stream, **options)
        writer.start()
        schema = writer.register_schema(topic.type, "", b"")
        channel = writer.register_channel(topic.name, topic.encoding, schema)
        for time_ns, data in messages:
            writer.add_message(channel, time_ns, data, time_ns)
        writer.finish()
    return path


def foxglove_message(points: np.ndarray, *, pose: Any = None) -> Any:
    messages = pytest.importorskip("foxglove.messages")
    kind = messages.PackedElementFieldNumericType.Float32
    fields = [
        messages.PackedElementField(name=name, offset=4 * k, type=kind)
        for k, name in enumerate(("x", "y", "z", "intensity"))
    ]
    return messages.PointCloud(
        timestamp=messages.Timestamp(sec=5, nsec=6),
        frame_id="lidar_top",
        pose=pose,
        point_stride=4 * points.shape[1],
        fields=fields,
        data=np.ascontiguousarray(points, "<f4").tobytes(),
    )


def test_foxglove_clouds_are_read(tmp_path: Path) -> None:
    points = np.random.default_rng(0).uniform(0, 1, (30, 4)).astype(np.float32)
    path = write_mcap(tmp_path / "a.mcap", [(1, foxglove_message(points).encode())])
    (found,) = scans(path)
    np.testing.assert_array_equal(found.cloud.points, points)
    assert (found.cloud.timestamp_ns, found.frame_id) == (5 * SECOND_NS + 6, "lidar_top")


def test_foxglove_clouds_are_brought_into_their_frame(tmp_path: Path) -> None:
    messages = pytest.importorskip("foxglove.messages")
    turn = messages.Quaternion(x=0.0, y=0.0, z=np.sqrt(0.5), w=np.sqrt(0.5))
    pose = messages.Pose(position=messages.Vector3(x=1.0, y=2.0, z=3.0), orientation=turn)
    data = foxglove_message(np.array([[1, 0, 0, 0.5]], np.float32), pose=pose).encode()
    found = foxglove_cloud(BagMessage(FOXGLOVE, 1, data), "here")
    np.testing.assert_allclose(found.raw.xyz, [[1, 3, 3]], atol=1e-6)


def test_foxglove_clouds_as_json_are_read(tmp_path: Path) -> None:
    points = np.arange(8, dtype="<f4").reshape(2, 4) / 8
    fields = [
        {"name": name, "offset": 4 * k, "type": 7} for k, name in enumerate(("x", "y", "z", "intensity"))
    ]
    record = {
        "timestamp": {"sec": 1, "nsec": 2},
        "frame_id": "lidar",
        "point_stride": 16,
        "fields": fields,
        "data": base64.b64encode(points.tobytes()).decode(),
    }
    topic = FOXGLOVE._replace(encoding="json")
    (found,) = scans(write_mcap(tmp_path / "a.mcap", [(1, json.dumps(record).encode())], topic=topic))
    np.testing.assert_array_equal(found.cloud.points, points)
    del record["data"]
    path = write_mcap(tmp_path / "b.mcap", [(1, json.dumps(record).encode())], topic=topic)
    with pytest.raises(DataError, match=r"b.mcap: topic /points, message 0: damaged, .*foxglove.PointCloud"):
        scans(path)


@pytest.mark.parametrize("data", [b"\xff" * 30, b"\x0a\x50", b"", b"\x22\x02ab"])
def test_bytes_that_are_no_foxglove_cloud_are_named(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError, match=r"a.mcap: topic /points, message 0: "):
        scans(write_mcap(tmp_path / "a.mcap", [(1, data)]))


@pytest.mark.parametrize("kind", ["foxglove.PointCloud", "sensor_msgs/msg/PointCloud2"])
def test_an_unknown_encoding_is_named(tmp_path: Path, kind: str) -> None:
    topic = Topic("/points", kind, "flatbuffer", 1)
    path = write_mcap(tmp_path / "a.mcap", [(1, b"abc")], topic=topic)
    with pytest.raises(DataError, match=r"topic /points, message 0"):
        scans(path)


def test_ros_1_messages_in_mcap_are_read(ros_messages: Any, tmp_path: Path) -> None:
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    types, columns = store.types, ros_messages.columns(6)
    two = ros_messages.cloud(columns)
    stamp = types["builtin_interfaces/msg/Time"](3, 4)
    fields = [
        types["sensor_msgs/msg/PointField"](one.name, one.offset, one.datatype, one.count)
        for one in two.fields
    ]
    one = types["sensor_msgs/msg/PointCloud2"](
        types["std_msgs/msg/Header"](0, stamp, "velodyne"), 1, 6, fields, False, 16, 96, two.data, True
    )
    topic = Topic("/points", "sensor_msgs/PointCloud2", "ros1", 1)
    data = bytes(store.serialize_ros1(one, one.__msgtype__))
    (found,) = scans(write_mcap(tmp_path / "a.mcap", [(1, data)], topic=topic))
    np.testing.assert_array_equal(found.cloud.points, stacked(columns))
    assert found.cloud.timestamp_ns == 3 * SECOND_NS + 4


@pytest.mark.parametrize("indexed", [True, False])
def test_a_large_recording_is_not_held_in_memory(ros_messages: Any, tmp_path: Path, indexed: bool) -> None:
    """60 scans of 320 kB: memory stays at a few of them."""
    data = ros_messages.serialised(ros_messages.cloud(ros_messages.columns(20_000)))
    topic = Topic("/points", "sensor_msgs/msg/PointCloud2", "cdr", 1)
    options = {} if indexed else {"use_chunking": False}
    path = write_mcap(tmp_path / "a.mcap", [(k, data) for k in range(60)], topic=topic, **options)
    with open_bag(path) as bag:
        next(iter(BagScans(bag)))
        tracemalloc.start()
        count = sum(1 for _ in BagScans(bag))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert count == 60
    assert peak < 20 * len(data)
