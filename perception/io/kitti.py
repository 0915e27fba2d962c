"""KITTI object data: folders of scans, labels and calibration.

File formats: the KITTI object development kit's readme (Geiger et al., CVPR 2012). Only the ``kitti``
modules know KITTI's own conventions: boxes there are height, width, length, bottom centre in the rectified
camera frame (x right, y down, z forward) and ``rotation_y`` about the camera's y axis.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from perception.errors import DataError
from perception.io.kitti_boxes import (
    BEHIND_CAMERA_BOX,
    DEFAULT_IMAGE_SIZE,
    boxes_from_objects,
    in_image,
    objects_from_boxes,
)
from perception.io.kitti_calibration import KittiCalibration, read_calibration, write_calibration
from perception.io.kitti_objects import DONT_CARE, KittiObject, read_objects, write_objects
from perception.io.point_cloud import SUPPORTED_SUFFIXES, load_point_cloud
from perception.io.text import read_text
from perception.types import Boxes3D, PointCloud

__all__ = [
    "BEHIND_CAMERA_BOX",
    "DEFAULT_IMAGE_SIZE",
    "DONT_CARE",
    "KittiCalibration",
    "KittiDataset",
    "KittiFrame",
    "KittiObject",
    "boxes_from_objects",
    "in_image",
    "labelled_folder",
    "objects_from_boxes",
    "read_calibration",
    "read_image_size",
    "read_objects",
    "split_ids",
    "write_calibration",
    "write_objects",
]


@dataclass(frozen=True, eq=False)
class KittiFrame:
    """One frame: the scan, its calibration and its labels (empty where the data set has none)."""

    frame_id: str
    cloud: PointCloud
    calibration: KittiCalibration
    objects: list[KittiObject]

    @property
    def boxes(self) -> Boxes3D:
        """The labelled boxes in the LiDAR frame, without DontCare."""
        return boxes_from_objects(self.objects, self.calibration)


class KittiDataset(Sequence[KittiFrame]):
    """The frames of a KITTI object folder, read when they are asked for.

    Args:
        root: the folder that holds ``training/``, or ``training`` itself (the one with ``calib``, ...).
        split: read the frame ids from ``ImageSets/{split}.txt``, beside or inside ``training``; None takes
            every frame that has a scan.
        points: folder of the scans (``.bin``, ``.npy``, ``.pcd`` or ``.ply``); where it is missing,
            ``velodyne`` is used.

    Attributes:
        folder: the folder that holds ``calib``, ``label_2`` and the scans.
        frame_ids: names of the frames, in order.

    Raises:
        DataError: a folder, the list of the split or a scan that it names is missing.
    """

    def __init__(
        self, root: str | Path, split: str | None = "train", points: str = "velodyne_reduced"
    ) -> None:
        root = Path(root)
        self.folder = labelled_folder(root)
        self._points_folder = _points_folder(self.folder, points)
        self._scans = _scans_by_id(self._points_folder)
        self.frame_ids = sorted(self._scans) if split is None else split_ids(root, split)
        missing = [frame_id for frame_id in self.frame_ids if frame_id not in self._scans]
        if missing:
            raise DataError(
                f"{self._points_folder}: no scan for {len(missing)} of {len(self.frame_ids)} frames"
                f" ({', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''});"
                " add them or take them out of the list of the split"
            )
        if not self.frame_ids:
            raise DataError(f"{self._points_folder}: no frames; put one scan a frame there")

    def __len__(self) -> int:
        return len(self.frame_ids)

    @overload
    def __getitem__(self, index: int) -> KittiFrame: ...
    @overload
    def __getitem__(self, index: slice) -> list[KittiFrame]: ...
    def __getitem__(self, index: int | slice) -> KittiFrame | list[KittiFrame]:
        if isinstance(index, slice):
            return [self.load(frame_id) for frame_id in self.frame_ids[index]]
        return self.load(self.frame_ids[index])

    def load(self, frame_id: str) -> KittiFrame:
        """Read one frame. A data set without ``label_2`` gives frames without objects.

        Raises:
            DataError: the frame is unknown, or one of its files is missing or damaged.
        """
        has_labels = self.label_path(frame_id).parent.is_dir()
        return KittiFrame(
            frame_id=frame_id,
            cloud=load_point_cloud(self.points_path(frame_id)),
            calibration=read_calibration(self.calibration_path(frame_id)),
            objects=read_objects(self.label_path(frame_id)) if has_labels else [],
        )

    def points_path(self, frame_id: str) -> Path:
        """The scan of a frame.

        Raises:
            DataError: the frame has none.
        """
        if frame_id not in self._scans:
            raise DataError(f"{self._points_folder}: no scan for frame {frame_id!r}; check the frame id")
        return self._scans[frame_id]

    def label_path(self, frame_id: str) -> Path:
        """Where the labels of a frame are expected."""
        return self.folder / "label_2" / f"{frame_id}.txt"

    def calibration_path(self, frame_id: str) -> Path:
        """Where the calibration of a frame is expected."""
        return self.folder / "calib" / f"{frame_id}.txt"

    def image_path(self, frame_id: str) -> Path | None:
        """The left colour image of a frame, if the data set has it."""
        path = self.folder / "image_2" / f"{frame_id}.png"
        return path if path.is_file() else None

    def image_size(self, frame_id: str) -> tuple[int, int]:
        """Width and height in pixels of the frame's image; ``DEFAULT_IMAGE_SIZE`` where there is none.

        Raises:
            DataError: the image is no PNG file.
        """
        path = self.image_path(frame_id)
        return DEFAULT_IMAGE_SIZE if path is None else read_image_size(path)


def read_image_size(path: str | Path) -> tuple[int, int]:
    """Width and height in pixels from the head of a PNG file.

    Raises:
        DataError: the file is missing or no PNG.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(24)
    except OSError as error:
        raise DataError(f"{path}: cannot read the image ({error.strerror}); check the path") from error
    if len(head) < 24 or not head.startswith(b"\x89PNG\r\n\x1a\n"):
        raise DataError(f"{path}: not a PNG image; convert it")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def _points_folder(folder: Path, points: str) -> Path:
    for name in (points, "velodyne"):
        if (folder / name).is_dir():
            return folder / name
    raise DataError(
        f"{folder}: no folder {points!r} or 'velodyne' with the scans; name the folder that holds training/"
    )


def _scans_by_id(folder: Path) -> dict[str, Path]:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUPPORTED_SUFFIXES)
    return {path.stem: path for path in files}


def labelled_folder(root: Path) -> Path:
    """The folder that holds ``label_2``, ``calib`` and the scans: ``training`` or, without it, the root.

    Raises:
        DataError: no such folder.
    """
    if not root.is_dir():
        wrong = "not a folder" if root.exists() else "no such folder"
        raise DataError(f"{root}: {wrong}; name the folder that holds training/")
    return root / "training" if (root / "training").is_dir() else root


def split_ids(root: Path, split: str) -> list[str]:
    """Frame ids of a list in ``ImageSets``, beside or inside ``training``.

    Raises:
        DataError: there is no such list; names those that are there.
    """
    folders = [root / "ImageSets", root.parent / "ImageSets"]
    path = next((place for folder in folders if (place := folder / f"{split}.txt").is_file()), None)
    if path is None:
        there = sorted(
            {entry.stem for folder in folders if folder.is_dir() for entry in folder.glob("*.txt")}
        )
        listed = f"there are {', '.join(map(repr, there))}" if there else "there is no other list"
        raise DataError(
            f"{folders[0] / split}.txt: no list of the frames of split {split!r}; {listed};"
            " write one frame id a line, or take all frames (--split all; in Python split=None)"
        )
    return read_text(path, "one frame id a line").split()
