"""Writer of KITTI's object layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perception.data.camera import CameraCalibration, CameraObject
from perception.data.kitti.files import write_calibration, write_objects
from perception.data.kitti.folder import KittiFolder
from perception.io.point_cloud import save_point_cloud
from perception.io.text import write_text
from perception.types import PointCloud


class KittiWriter:
    """Writer of a KITTI object folder; files are written atomically.

    Args:
        root: folder for ``training/`` and ``ImageSets/``.
        scans: name of the folder of scans.
    """

    def __init__(self, root: Path, scans: str) -> None:
        (root / "training" / scans).mkdir(parents=True, exist_ok=True)
        self._files = KittiFolder(root, scans)
        for path in (*self._paths("")[1:], self._files.list_path("")):
            path.parent.mkdir(exist_ok=True)

    def _paths(self, frame_id: str) -> tuple[Path, Path, Path]:
        scan = self._files.scans_folder / f"{frame_id}.bin"
        return scan, self._files.path("label_2", frame_id), self._files.path("calib", frame_id)

    def holds(self, frame_id: str) -> bool:
        """Return True if all files of a frame exist."""
        return all(path.exists() for path in self._paths(frame_id))

    def write(
        self, frame_id: str, cloud: PointCloud, objects: Sequence[CameraObject], camera: CameraCalibration
    ) -> None:
        """Write scan, labels and calibration of a frame; raise ``DataError`` if that fails."""
        scan_path, labels_path, calibration_path = self._paths(frame_id)
        write_calibration(calibration_path, camera)
        write_objects(labels_path, objects)
        save_point_cloud(scan_path, cloud)

    def write_split(self, split: str, frame_ids: Sequence[str]) -> None:
        """Write the list of a split."""
        write_text(self._files.list_path(split), "".join(f"{frame_id}\n" for frame_id in frame_ids))
