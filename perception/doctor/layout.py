"""Which files make up a data set: a KITTI folder, or a plain folder of scans."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perception.errors import DataError
from perception.io.point_cloud import SUPPORTED_SUFFIXES, find_point_clouds
from perception.scans.finding import Finding

_SCAN_FOLDERS = ("velodyne_reduced", "velodyne")


@dataclass(frozen=True)
class Layout:
    """The files of a data set by frame id.

    Attributes:
        scans: scan of each frame.
        labels: label file of each frame.
        calibrations: calibration file of each frame.
        labelled: the data set has a folder of labels.
        listed: frame ids of each list in ImageSets.
    """

    scans: dict[str, Path]
    labels: dict[str, Path]
    calibrations: dict[str, Path]
    labelled: bool
    listed: dict[str, list[str]]


def find_layout(root: Path) -> Layout:
    """Find the files below ``root``: a KITTI folder (with or without ``training/``) or one of scans.

    Raises:
        DataError: no such folder, or neither.
    """
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; name the folder that holds training/, or one of scans")
    folder = root / "training" if (root / "training").is_dir() else root
    scan_folder = next((folder / name for name in _SCAN_FOLDERS if (folder / name).is_dir()), None)
    if scan_folder is None:
        if (folder / "label_2").is_dir():
            raise DataError(f"{folder}: has label_2 but no velodyne folder; put the scans into velodyne/")
        return Layout(
            {path.stem: path for path in find_point_clouds([root])}, {}, {}, labelled=False, listed={}
        )
    return Layout(
        scans=_by_id(scan_folder, SUPPORTED_SUFFIXES),
        labels=_by_id(folder / "label_2", (".txt",)),
        calibrations=_by_id(folder / "calib", (".txt",)),
        labelled=(folder / "label_2").is_dir(),
        listed=_lists(root / "ImageSets") or _lists(folder.parent / "ImageSets"),
    )


def check_layout(layout: Layout) -> list[Finding]:
    """Listed frames without scan, labels without scan, scans without label, labels without calibration."""
    findings = [
        Finding(
            "error",
            "files",
            f"ImageSets/{name}.txt names {len(missing)} frames that have no scan.",
            "Add the scans, or take the frames out of the list.",
            tuple(missing),
        )
        for name, ids in layout.listed.items()
        if (missing := [frame_id for frame_id in ids if frame_id not in layout.scans])
    ]
    if not layout.labelled:
        findings.append(
            Finding(
                "info",
                "labels",
                "There is no label_2 folder: only the scans were checked.",
                "Nothing to do for detection; for training add label_2 and calib, one .txt a frame.",
            )
        )
        return findings
    orphans = tuple(sorted(layout.labels.keys() - layout.scans.keys()))
    if orphans:
        findings.append(
            Finding(
                "warning",
                "files",
                f"{len(orphans)} label files have no scan of the same name.",
                "Add the scans, or delete these label files; names must agree up to the suffix.",
                orphans,
            )
        )
    unlabelled = tuple(sorted(layout.scans.keys() - layout.labels.keys()))
    if unlabelled:
        findings.append(
            Finding(
                "warning",
                "files",
                f"{len(unlabelled)} scans have no label file of the same name.",
                "Label them, or give them an empty .txt file if they truly show no object.",
                unlabelled,
            )
        )
    uncalibrated = tuple(sorted((layout.labels.keys() & layout.scans.keys()) - layout.calibrations.keys()))
    if uncalibrated:
        findings.append(
            Finding(
                "error",
                "calibration",
                f"{len(uncalibrated)} labelled frames have no calibration file, so their boxes have no"
                " place in the LiDAR frame.",
                "Add calib/<frame>.txt; for data without a camera write one with"
                " perception.io.kitti.write_calibration(path, KittiCalibration.default()), and make the"
                " labels with objects_from_boxes and the same calibration.",
                uncalibrated,
            )
        )
    return findings


def _lists(folder: Path) -> dict[str, list[str]]:
    if not folder.is_dir():
        return {}
    return {
        path.stem: path.read_text(encoding="utf-8", errors="replace").split()
        for path in sorted(folder.glob("*.txt"))
    }


def _by_id(folder: Path, suffixes: tuple[str, ...]) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    return {path.stem: path for path in sorted(folder.iterdir()) if path.suffix.lower() in suffixes}
