"""The protocol of a data set: kinds, frames, and that a kind of one's own goes through everything."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception import PointCloud
from perception.data import (
    DataSet,
    Frame,
    OpenDataSets,
    boxes_from_objects,
    frame_beside,
    kinds,
    open_data_set,
)
from perception.data.kitti import KittiDataSet
from perception.data.scans import ScanFolder
from perception.data.types import Part
from perception.doctor import examine_data_set
from perception.errors import DataError
from perception.io import save_point_cloud
from perception.train.data.frames import TrainingFrame, load_frames
from perception.types import Boxes3D

Street = Callable[[int], TrainingFrame]

CLASSES = ("Car", "Pedestrian")
REAL = Path(os.environ.get("SPARSIGHT_DATA", Path(__file__).parents[3] / ".." / "shared" / "data")) / "kitti"
#: Hashes of points, labels and calibration as the reader of KITTI gave them before there was a protocol.
REAL_FRAMES = {
    "000000": "52d9eab50e5ddb63",
    "000114": "6965fe7167bb759d",
    "000632": "0b3da41e42406edd",
    "001460": "25e61b9cccb37f13",
    "001974": "87bbad72c66b7817",
    "002489": "bcc4321b94935673",
    "003209": "6f17afbedc8e8e4a",
    "003850": "ff1aaaaf90ada7e2",
    "004286": "1157fb7b91a685a5",
    "005099": "194d9c341ecd5693",
    "005719": "d4bd992b6bd90388",
    "006271": "d72ce2eb9619dfe1",
    "006823": "d2cd51389eaf7930",
}


class JsonFrame(Frame):
    """Labels beside the scan, in the LiDAR frame."""

    @cached_property
    def truth(self) -> Boxes3D:
        """Boxes and names of the JSON file."""
        assert self.source is not None
        record = json.loads(self.source.with_suffix(".json").read_text())
        return Boxes3D(np.array(record["boxes"], np.float32), record["labels"])


class JsonFolder(DataSet):
    """Scans with a JSON file of labels each."""

    kind = "folder of scans and JSON"
    layout = "scan with a .json file"
    classes = CLASSES

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """There is a JSON file."""
        return any(folder.glob("*.json"))

    def frames_having(self, part: Part) -> Iterable[str]:
        """Every frame has both."""
        return [path.stem for path in self.folder.glob("*.json")]

    def frame(self, frame_id: str) -> Frame:
        """A scan and its labels."""
        return JsonFrame(
            frame_id=frame_id,
            source=self.folder / f"{frame_id}.bin",
            labelled=True,
            track_ids=np.arange(4),
            pose=np.eye(4),
            time_ns=int(frame_id),
        )


@pytest.fixture
def own(street: Street, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a kind of one's own, in the table."""
    monkeypatch.setattr(kinds, "KINDS", (JsonFolder, *kinds.KINDS))
    for seed in range(3):
        frame = street(seed)
        save_point_cloud(tmp_path / f"{seed}.bin", PointCloud(frame.points))
        labels = [CLASSES[label] for label in frame.labels]
        record = {"boxes": frame.boxes.tolist(), "labels": labels}
        (tmp_path / f"{seed}.json").write_text(json.dumps(record))
    return tmp_path


def test_a_kind_of_ones_own_is_trained_on_and_examined(own: Path, street: Street) -> None:
    data_set = open_data_set(own)
    assert isinstance(data_set, JsonFolder)
    assert data_set.frame_ids == ["0", "1", "2"]
    frame = data_set[1]
    assert (frame.time_ns, frame.labels) == (1, [CLASSES[label] for label in street(1).labels])
    for loaded, expected in zip(load_frames(data_set, CLASSES), map(street, range(3)), strict=True):
        np.testing.assert_array_equal(loaded.points, expected.points)
        np.testing.assert_array_equal(loaded.boxes, expected.boxes)
        np.testing.assert_array_equal(loaded.labels, expected.labels)
    report = examine_data_set(own, classes=CLASSES)
    assert report.statistics.boxes == {"Car": 6, "Pedestrian": 6}
    assert report.statistics.points_per_box["Car"].low > 50
    wrong = ("labels", "empty", "no points", "outside", "heading")
    assert [item for item in report.findings if item.check in wrong] == []


def test_kinds_are_recognised(kitti_folder: Path, tmp_path: Path) -> None:
    data_set = open_data_set(kitti_folder)
    assert isinstance(data_set, KittiDataSet)
    assert data_set.splits == ["train", "val"]
    scans = open_data_set(str(kitti_folder / "training/velodyne"))
    assert isinstance(scans, ScanFolder)
    assert scans.frame_ids == ["000000", "000001", "000002", "000003"]
    frame = scans[0]
    np.testing.assert_array_equal(frame.points, open_data_set(kitti_folder)[0].points)
    assert (frame.boxes.shape, frame.labels, frame.objects) == ((0, 7), [], [])
    assert (frame.track_ids, frame.pose, frame.time_ns) == (None, None, None)
    with pytest.raises(DataError, match="no camera calibration"):
        _ = frame.calibration
    with pytest.raises(DataError, match="no scan for frame 'x'"):
        scans.frame("x")
    with pytest.raises(DataError, match="folder of scans"):
        open_data_set(scans.folder, "train")
    with pytest.raises(DataError, match="a folder of scans"):
        open_data_set(scans.folder, having="labels")
    looked = r"training/, velodyne/ or label_2/ \(KITTI object\); \.bin, .* file \(folder of scans\)"
    with pytest.raises(DataError, match=looked):
        open_data_set(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="file: not a folder"):
        open_data_set(tmp_path / "file")


def test_what_frames_must_have(kitti_folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "kitti"
    for name in ("velodyne", "label_2", "calib"):
        (root / "training" / name).mkdir(parents=True)
        for path in (kitti_folder / "training" / name).iterdir():
            (root / "training" / name / path.name).write_bytes(path.read_bytes())
    (root / "training/velodyne/000001.bin").unlink()
    (root / "training/label_2/000002.txt").unlink()
    assert open_data_set(root).frame_ids == ["000000", "000002", "000003"]
    assert open_data_set(root, having="labels").frame_ids == ["000000", "000001", "000003"]
    every = open_data_set(root, having="scan or labels")
    assert every.frame_ids == ["000000", "000001", "000002", "000003"]
    assert [frame.source is not None for frame in every] == [True, False, True, True]
    assert [frame.labelled for frame in every] == [True, True, False, True]
    assert every[1].labels == open_data_set(kitti_folder)[1].labels
    with pytest.raises(DataError, match="no scan for frame '000001'"):
        _ = every[1].points
    (root / "ImageSets").mkdir()
    (root / "ImageSets/val.txt").write_text("000002 000003\n")
    with pytest.raises(DataError, match=r"no labels for 1 of 2 frames \(000002\)"):
        open_data_set(root, "val", having="labels")
    (root / "ImageSets/val.txt").write_text("\n")
    with pytest.raises(DataError, match="no frames"):
        open_data_set(root, "val")


def test_parts_are_read_when_they_are_asked_for_and_once(kitti_folder: Path) -> None:
    frame = open_data_set(kitti_folder)[0]
    assert set(vars(frame)) & {"cloud", "truth", "objects", "calibration"} == set()
    assert frame.points is frame.points
    assert frame.boxes is frame.boxes
    assert {"cloud", "truth", "objects", "calibration"} <= set(vars(frame))


def test_the_frame_beside_a_scan(kitti_folder: Path, tmp_path: Path) -> None:
    scan = kitti_folder / "training/velodyne/000002.bin"
    beside = frame_beside(scan)
    assert beside is not None
    assert (beside.labelled, beside.image) == (True, None)
    np.testing.assert_array_equal(beside.boxes, open_data_set(kitti_folder).frame("000002").boxes)
    assert frame_beside(tmp_path / "velodyne/000002.bin") is None


@pytest.mark.skipif(not REAL.is_dir(), reason="no KITTI data (set SPARSIGHT_DATA)")
@pytest.mark.parametrize("frame_id", REAL_FRAMES)
def test_real_frames_are_those_of_before_the_protocol(frame_id: str) -> None:
    frame = open_data_set(REAL).frame(frame_id)
    camera = frame.calibration
    made = hashlib.sha256(frame.points.tobytes())
    made.update(repr([tuple(vars(item).values()) for item in frame.objects]).encode())
    for matrix in (camera.image_from_camera, camera.rectification, camera.camera_from_lidar_raw):
        made.update(matrix.tobytes())
    assert made.hexdigest()[:16] == REAL_FRAMES[frame_id]
    truth = boxes_from_objects(frame.objects, camera)
    np.testing.assert_array_equal(frame.boxes, truth.boxes)
    assert frame.labels == truth.labels


def _own_folder(folder: Path, names: Sequence[str]) -> Path:
    """An own folder with scans that are old enough to be known."""
    scans = folder / "scans"
    scans.mkdir(parents=True)
    for name in names:
        np.zeros((3, 4), np.float32).tofile(scans / f"{name}.bin")
    (folder / "dataset.yaml").write_text("classes: {}\nscans: {path: scans}\n")
    os.utime(scans, ns=(1, 1))
    return scans


def test_data_sets_stay_open_between_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = _own_folder(tmp_path / "own", ["a", "b", "c"])
    times_opened: list[Path] = []
    create = DataSet.__init__

    def count(self: DataSet, folder: Path, *rest: Any, **options: Any) -> None:
        times_opened.append(folder)
        create(self, folder, *rest, **options)

    monkeypatch.setattr(DataSet, "__init__", count)
    opened = OpenDataSets()
    frames = [frame_beside(scans / f"{name}.bin", opened) for name in "abc"]
    assert [frame and frame.frame_id for frame in frames] == ["a", "b", "c"]
    assert len(times_opened) == 1
    assert frame_beside(scans / "a.bin") is not None
    assert len(times_opened) == 2


def test_data_sets_are_looked_for_once_per_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans, others = _own_folder(tmp_path / "own", ["a", "b"]), tmp_path / "others"
    others.mkdir()
    (others / "a.bin").symlink_to(scans / "a.bin")
    looked_at: list[Path] = []
    monkeypatch.setattr(DataSet, "folder_above", classmethod(lambda _, folder: looked_at.append(folder)))
    opened = OpenDataSets()
    found = [frame_beside(path, opened) for path in (others / "b.bin", others / "a.bin", scans / "b.bin")]
    assert [frame and frame.frame_id for frame in found] == [None, "a", "b"]
    # Pairs and folders of scans do not say which scans they hold.
    assert looked_at == [others, others, scans, scans]


def test_a_data_set_is_opened_again_after_a_new_scan(tmp_path: Path) -> None:
    scans = _own_folder(tmp_path / "own", ["a"])
    opened = OpenDataSets()
    assert frame_beside(scans / "a.bin", opened) is not None
    np.zeros((3, 4), np.float32).tofile(scans / "b.bin")
    # The folder changed just now, so its time of change cannot tell b from c.
    assert frame_beside(scans / "b.bin", opened) is not None
    np.zeros((3, 4), np.float32).tofile(scans / "c.bin")
    assert frame_beside(scans / "c.bin", opened) is not None


def test_the_oldest_data_sets_are_closed(tmp_path: Path) -> None:
    opened = OpenDataSets()
    for number in range(7):
        scans = _own_folder(tmp_path / str(number), ["a"])
        assert frame_beside(scans / "a.bin", opened) is not None
    assert len(opened._opened) == OpenDataSets._MOST
