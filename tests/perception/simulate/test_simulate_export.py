"""The KITTI folder: readable, complete, resumable, reproducible."""

from pathlib import Path

import numpy as np
import pytest

from perception.data import CameraCalibration, in_image, open_data_set
from perception.simulate import SceneConfig, SensorModel, export_kitti, simulate_scan

pytest.importorskip("open3d", exc_type=ImportError)

SMALL = SceneConfig(extent_m=40.0)
SENSOR = SensorModel.preset("32", azimuth_deg=(-45, 45))
SEEDS = (1, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kitti")
    assert export_kitti(root, SEEDS, scene=SMALL, sensor=SENSOR) == ["000001", "000002"]
    return root


def test_frames_come_back_through_the_reader(folder: Path) -> None:
    dataset = open_data_set(folder, "train")
    assert dataset.frame_ids == ["000001", "000002"]
    for seed, frame in zip(SEEDS, dataset, strict=True):
        scan = simulate_scan(seed, scene=SMALL, sensor=SENSOR)
        seen = in_image(scan.cloud.points, CameraCalibration.default())
        np.testing.assert_array_equal(frame.cloud.points, scan.cloud.points[seen])


def test_labels_are_the_boxes_of_objects_with_points_in_the_image(folder: Path) -> None:
    frame = open_data_set(folder, "train")[0]
    scan = simulate_scan(SEEDS[0], scene=SMALL, sensor=SENSOR)
    owners = scan.point_object[in_image(scan.cloud.points, frame.calibration)]
    rows = [row for row in range(len(scan.boxes)) if (owners == row).any() and scan.boxes.boxes[row, 0] > 0.3]
    assert rows
    assert frame.labels == [scan.boxes.labels[row] for row in rows]
    np.testing.assert_allclose(frame.boxes, scan.boxes.boxes[rows], atol=2e-3)
    assert [item.occluded for item in frame.objects] == scan.occlusion_level[rows].tolist()
    assert all(0 <= item.truncated <= 1 for item in frame.objects)


def test_a_second_export_skips_what_is_there_and_restores_what_is_not(folder: Path) -> None:
    scan, label = folder / "training/velodyne_reduced/000001.bin", folder / "training/label_2/000002.txt"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    changed = scan.stat().st_mtime_ns
    label.unlink()
    calls: list[tuple[int, int]] = []
    export_kitti(
        folder, SEEDS, scene=SMALL, sensor=SENSOR, progress=lambda done, total: calls.append((done, total))
    )
    assert calls == [(1, 2), (2, 2)]
    assert scan.stat().st_mtime_ns == changed
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_every_fourth_frame_is_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The lists are what this is about, and scans take seconds.
    monkeypatch.setattr("perception.simulate.export.simulate_scan", lambda *arguments, **options: None)
    monkeypatch.setattr("perception.simulate.export._write_frame", lambda *arguments: None)

    def lists() -> list[list[str]]:
        return [(tmp_path / f"ImageSets/{name}.txt").read_text().split() for name in ("train", "val")]

    names = export_kitti(tmp_path, range(9))
    assert lists() == [[name for name in names if name not in ("000003", "000007")], ["000003", "000007"]]
    export_kitti(tmp_path, range(3))
    assert lists() == [names[:3], names[:3]]
    export_kitti(tmp_path, range(9), hold_out=0)
    assert lists() == [names, names]
    with pytest.raises(ValueError, match="hold_out must be 0 or at least 2"):
        export_kitti(tmp_path, range(2), hold_out=1)


def test_whole_turns_go_to_velodyne(tmp_path: Path) -> None:
    sensor = SensorModel.preset("16")
    export_kitti(tmp_path, [3], field_of_view_only=False, scene=SMALL, sensor=sensor)
    frame = open_data_set(tmp_path, "train", scans="velodyne")[0]
    assert (frame.cloud.points[:, 0] < 0).any()
    assert not (tmp_path / "training/velodyne_reduced").exists()


def test_whole_turns_are_labelled_all_around_from_heights_of_their_own(tmp_path: Path) -> None:
    sensor = SensorModel.preset("16")
    options = {"field_of_view_only": False, "scene": SMALL, "sensor": sensor, "hold_out": 0}
    export_kitti(tmp_path, [3, 4], height_m=(0.5, 3.0), **options)
    frames = list(open_data_set(tmp_path, "train", scans="velodyne"))
    assert any((frame.boxes[:, 0] < -5).any() for frame in frames)
    grounds = [np.quantile(frame.boxes[:, 2] - frame.boxes[:, 5] / 2, 0.5) for frame in frames]
    drawn = [float(np.random.default_rng([seed, 3]).uniform(0.5, 3.0)) for seed in (3, 4)]
    np.testing.assert_allclose(grounds, [-height for height in drawn], atol=0.4)
    assert abs(drawn[0] - drawn[1]) > 0.5
    with pytest.raises(ValueError, match="height_m"):
        export_kitti(tmp_path, [3], height_m=(2.0, 1.0), **options)


def test_negative_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="negative"):
        export_kitti(tmp_path, [-1])
