from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from perception.data import frame_beside, open_data_set
from perception.data.argoverse import ArgoverseDataSet, ArgoverseFrame
from perception.doctor import examine_data_set
from perception.errors import DataError

arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra 'parquet')")

LIDAR_AT = np.array([1.35, 0.0, 1.64])
TIMES = (315_968_867_659_956_000, 315_968_867_760_123_000)


def write(path: Path, **columns: object) -> None:
    from pyarrow import feather

    path.parent.mkdir(parents=True, exist_ok=True)
    feather.write_feather(arrow.table(columns), path)


def turned(generator: np.random.Generator, count: int) -> Rotation:
    """Headings, and a little of the other two."""
    return Rotation.from_euler("zyx", generator.uniform([-3, -0.02, -0.02], [3, 0.02, 0.02], (count, 3)))


def columns_of(turn: Rotation, place: np.ndarray) -> dict[str, np.ndarray]:
    x, y, z, w = turn.as_quat().T
    named = {"qw": w, "qx": x, "qy": y, "qz": z}
    return named | dict(zip(("tx_m", "ty_m", "tz_m"), place.T, strict=True))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    for name in ("log-a", "log-b"):
        log = tmp_path / "val" / name
        sensors = columns_of(Rotation.identity(2), np.stack([LIDAR_AT, LIDAR_AT - [0, 0, 0.2]]))
        write(
            log / "calibration/egovehicle_SE3_sensor.feather",
            sensor_name=["up_lidar", "down_lidar"],
            **sensors,
        )
        places = generator.normal(0, 100, (2, 3))
        write(
            log / "city_SE3_egovehicle.feather",
            timestamp_ns=np.array(TIMES),
            **columns_of(turned(generator, 2), places),
        )
        write(
            log / "annotations.feather",
            timestamp_ns=np.repeat(TIMES, 3),
            track_uuid=["u", "v", "w", "v", "u", "x"],
            category=["BUS", "PEDESTRIAN", "BOLLARD"] * 2,
            num_interior_pts=np.arange(6),
            **dict(zip(("length_m", "width_m", "height_m"), generator.uniform(0.5, 9, (3, 6)), strict=True)),
            **columns_of(turned(generator, 6), generator.normal(0, 20, (6, 3))),
        )
        for time in TIMES:
            xyz = generator.normal(0, 20, (50, 3)).astype(np.float16)
            write(
                log / f"sensors/lidar/{time}.feather",
                **dict(zip("xyz", xyz.T.copy(), strict=True)),
                intensity=generator.integers(0, 256, 50).astype(np.uint8),
                laser_number=np.zeros(50, np.uint8),
                offset_ns=np.zeros(50, np.int32),
            )
    return tmp_path / "val"


def test_frames(logs: Path) -> None:
    from pyarrow import feather

    data_set = open_data_set(logs)
    assert isinstance(data_set, ArgoverseDataSet)
    assert data_set.frame_ids == [f"{log}__{time}" for log in ("log-a", "log-b") for time in TIMES]
    assert open_data_set(logs, "log-b").frame_ids == data_set.frame_ids[2:]
    assert open_data_set(logs / "log-a", having="labels").frame_ids == data_set.frame_ids[:2]
    for number, frame in enumerate(data_set):
        assert isinstance(frame, ArgoverseFrame)
        log, row = logs / frame.frame_id.partition("__")[0], number % 2
        scan = feather.read_table(log / f"sensors/lidar/{TIMES[row]}.feather").to_pydict()
        xyz = np.stack([np.array(scan[name], np.float64) for name in "xyz"], axis=1)
        np.testing.assert_allclose(frame.points[:, :3], xyz - LIDAR_AT, atol=1e-5)
        np.testing.assert_allclose(frame.points[:, 3], np.array(scan["intensity"]) / 255, atol=1e-6)
        assert frame.cloud.sensor_height_m == pytest.approx(1.97)
        poses = feather.read_table(log / "city_SE3_egovehicle.feather").to_pydict()
        turn = Rotation.from_quat([poses[name][row] for name in ("qx", "qy", "qz", "qw")])
        place = [poses[name][row] for name in ("tx_m", "ty_m", "tz_m")]
        assert frame.pose is not None
        ours = frame.points[:, :3] @ frame.pose[:3, :3].T + frame.pose[:3, 3]
        np.testing.assert_allclose(ours, turn.apply(xyz) + place, atol=1e-4)
        labels = feather.read_table(log / "annotations.feather").to_pydict()
        assert frame.labels == ["BUS", "PEDESTRIAN", "BOLLARD"]
        assert frame.point_counts.tolist() == [3 * row, 3 * row + 1, 3 * row + 2]
        for box, entry in zip(frame.boxes, range(3 * row, 3 * row + 3), strict=True):
            at = np.array([labels[name][entry] for name in ("tx_m", "ty_m", "tz_m")]) - LIDAR_AT
            size = [labels[name][entry] for name in ("length_m", "width_m", "height_m")]
            yaw = Rotation.from_quat([labels[name][entry] for name in ("qx", "qy", "qz", "qw")]).as_euler(
                "ZYX"
            )[0]
            np.testing.assert_allclose(box, [*at, *size, yaw], atol=1e-4)
    first, second = (data_set[number].track_ids for number in (0, 1))
    assert first is not None
    assert second is not None
    assert first[[0, 1]].tolist() == second[[1, 0]].tolist()
    assert second[2] not in first


def test_the_frame_beside_a_scan_and_what_is_missing(logs: Path) -> None:
    scan = logs / f"log-b/sensors/lidar/{TIMES[1]}.feather"
    beside = frame_beside(scan)
    assert beside is not None
    assert beside.frame_id == f"log-b__{TIMES[1]}"
    assert beside.time_ns == TIMES[1]
    (logs / "log-a/annotations.feather").unlink()
    assert len(open_data_set(logs, having="labels")) == 2
    plain = open_data_set(logs)[0]
    assert (plain.labelled, plain.labels) == (False, [])
    assert not examine_data_set(logs, classes=("BUS",)).statistics.boxes.keys() - {
        "BUS",
        "PEDESTRIAN",
        "BOLLARD",
    }
    with pytest.raises(DataError, match="no log 'log-c'"):
        open_data_set(logs, "log-c")


def test_damaged_files_are_named(logs: Path) -> None:
    frame = open_data_set(logs)[0]
    assert frame.source is not None
    frame.source.write_bytes(b"ARROW1 but no more")
    with pytest.raises(DataError, match=rf"{TIMES[0]}\.feather: reading columns x, y, z, intensity"):
        _ = frame.points
    write(
        logs / "log-b/calibration/egovehicle_SE3_sensor.feather",
        sensor_name=["a"],
        tx_m=[0.0],
        ty_m=[0.0],
        tz_m=[0.0],
    )
    with pytest.raises(DataError, match="no sensor 'up_lidar'"):
        open_data_set(logs / "log-b")[0]
