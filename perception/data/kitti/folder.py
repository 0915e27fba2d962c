"""Files of a KITTI object folder; other modules do not know their names."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Literal

from perception.data.images import find_image
from perception.io.point_cloud import SUPPORTED_SUFFIXES

#: Folders of scans: points in the camera's view, and full turns.
CAMERA_SCANS, WHOLE_SCANS = "velodyne_reduced", "velodyne"
#: Folders that identify KITTI's layout.
PARTS = ("training", CAMERA_SCANS, WHOLE_SCANS, "label_2", "ImageSets")


class KittiFolder:
    """The files of a folder, by frame name.

    Args:
        root: folder that contains ``training/``, or ``training`` itself.
        scans: folder of scans, by default ``velodyne_reduced``; if it is missing, ``velodyne``.
    """

    def __init__(self, root: Path, scans: str | None = None) -> None:
        self.root = root
        self.folder = root / "training" if (root / "training").is_dir() else root
        asked = self.folder / (scans or CAMERA_SCANS)
        self.scans_folder = asked if asked.is_dir() else self.folder / WHOLE_SCANS
        self.labels_folder = self.folder / "label_2"

    @cached_property
    def scans(self) -> dict[str, Path]:
        """Existing scans."""
        return _by_id(self.scans_folder, SUPPORTED_SUFFIXES)

    @cached_property
    def labels(self) -> dict[str, Path]:
        """Existing label files."""
        return _by_id(self.labels_folder)

    @cached_property
    def lists(self) -> dict[str, Path]:
        """Lists of frames in ``ImageSets``, in the root or next to it."""
        return _by_id(self.root.parent / "ImageSets") | _by_id(self.root / "ImageSets")

    @property
    def holds_calibrations(self) -> bool:
        """True if the root itself, instead of its folder ``training``, has calibrations."""
        return self.folder == self.root and (self.folder / "calib").is_dir()

    def path(self, part: Literal["label_2", "calib"], frame_id: str) -> Path:
        """Return the path of a frame's labels or calibration."""
        return self.folder / part / f"{frame_id}.txt"

    def image(self, frame_id: str) -> Path | None:
        """Return the left colour image of a frame: PNG in KITTI, JPEG in View-of-Delft."""
        return find_image(self.folder / "image_2", frame_id)

    def list_path(self, split: str) -> Path:
        """Return the path of a split's list."""
        return self.root / "ImageSets" / f"{split}.txt"


def _by_id(folder: Path, suffixes: Collection[str] = (".txt",)) -> dict[str, Path]:
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.stem: path for path in files if path.suffix.lower() in suffixes}
