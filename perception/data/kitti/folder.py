"""Where the files of a KITTI object folder lie: the only place that knows their names."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Literal

from perception.data.images import find_image
from perception.io.point_cloud import SUPPORTED_SUFFIXES

#: Folders of scans: the points that the camera sees, and whole turns.
CAMERA_SCANS, WHOLE_SCANS = "velodyne_reduced", "velodyne"
#: A folder with one of these is one of KITTI's.
PARTS = ("training", CAMERA_SCANS, WHOLE_SCANS, "label_2", "ImageSets")


class KittiFolder:
    """The files of a folder by the names of its frames.

    Args:
        root: the folder that holds ``training/``, or ``training`` itself (the one with ``calib``, ...).
        scans: folder of the scans, usually ``velodyne_reduced``; where it is missing, ``velodyne`` is used.
    """

    def __init__(self, root: Path, scans: str | None = None) -> None:
        self.root = root
        self.folder = root / "training" if (root / "training").is_dir() else root
        asked = self.folder / (scans or CAMERA_SCANS)
        self.scans_folder = asked if asked.is_dir() else self.folder / WHOLE_SCANS
        self.labels_folder = self.folder / "label_2"

    @cached_property
    def scans(self) -> dict[str, Path]:
        """The scans that are there."""
        return _by_id(self.scans_folder, SUPPORTED_SUFFIXES)

    @cached_property
    def labels(self) -> dict[str, Path]:
        """The label files that are there."""
        return _by_id(self.labels_folder)

    @cached_property
    def lists(self) -> dict[str, Path]:
        """The lists of frames in ``ImageSets``: in the root, else beside it."""
        return _by_id(self.root.parent / "ImageSets") | _by_id(self.root / "ImageSets")

    def path(self, part: Literal["label_2", "calib"], frame_id: str) -> Path:
        """Where labels or calibration of a frame are expected."""
        return self.folder / part / f"{frame_id}.txt"

    def image(self, frame_id: str) -> Path | None:
        """The left colour image of a frame: KITTI's are PNG, those of View-of-Delft JPEG."""
        return find_image(self.folder / "image_2", frame_id)

    def list_path(self, split: str) -> Path:
        """Where the list of the frames of a split is expected."""
        return self.root / "ImageSets" / f"{split}.txt"


def _by_id(folder: Path, suffixes: Collection[str] = (".txt",)) -> dict[str, Path]:
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.stem: path for path in files if path.suffix.lower() in suffixes}
