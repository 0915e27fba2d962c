"""Checks for missing files in a KITTI object folder."""

from __future__ import annotations

from perception.data.kitti.folder import KittiFolder
from perception.data.types import UNLABELLED
from perception.scans.finding import Finding, with_frames


def check_files(files: KittiFolder) -> list[Finding]:
    """Find listed frames and labels without scan, scans without label, and labels without calibration."""
    findings = []
    for name, path in files.lists.items():
        listed = path.read_text(encoding="utf-8", errors="replace").split()
        missing = tuple(frame_id for frame_id in listed if frame_id not in files.scans)
        message = f"ImageSets/{name}.txt names {len(missing)} frames without a scan."
        fix = "Add the scans, or remove the frames from the list."
        findings.append(Finding("error", "files", message, fix, missing))
    findings = with_frames(*findings)
    findings += _check_labels(files) if files.labels_folder.is_dir() else [UNLABELLED]
    if not (files.scans or files.labels):
        message, fix = "The data set has no frames.", "Put one scan per frame into velodyne/."
        findings.append(Finding("error", "empty", message, fix))
    return findings


def _check_labels(files: KittiFolder) -> list[Finding]:
    scans, labels = files.scans.keys(), files.labels.keys()
    orphans, unlabelled = tuple(sorted(labels - scans)), tuple(sorted(scans - labels))
    both = sorted(scans & labels)
    uncalibrated = tuple(frame_id for frame_id in both if not files.path("calib", frame_id).is_file())
    return with_frames(
        Finding("warning", "files", f"{len(orphans)} label files have no scan of the same name.",
                "Add the scans, or delete these label files. Names must match up to the suffix.", orphans),
        Finding("warning", "files", f"{len(unlabelled)} scans have no label file of the same name.",
                "Label them, or add an empty .txt file if they show no object.", unlabelled),
        Finding("error", "calibration", f"{len(uncalibrated)} labelled frames have no calibration file to"
                " convert their boxes to the LiDAR frame.",
                "Add calib/<frame>.txt. Without a camera, write one with"
                " perception.data.kitti.write_calibration(path, CameraCalibration.default()), and create the"
                " labels with objects_from_boxes and the same calibration.", uncalibrated),
    )  # fmt: skip
