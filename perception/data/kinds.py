"""The known kinds of data sets, and opening any of them."""

from __future__ import annotations

from pathlib import Path

from perception.data.argoverse import ArgoverseDataSet
from perception.data.dair_v2x import DairV2xPairs, DairV2xSide
from perception.data.kitti.data_set import KittiDataSet
from perception.data.kitti.sequence import KittiSequence
from perception.data.nuscenes.data_set import NuScenesDataSet
from perception.data.own import OwnDataSet
from perception.data.scans import ScanFolder
from perception.data.types import DataSet, Frame, OpenDataSets, Part
from perception.errors import DataError

#: In order of recognition.
KINDS: tuple[type[DataSet], ...] = (
    OwnDataSet,
    NuScenesDataSet,
    ArgoverseDataSet,
    DairV2xPairs,
    DairV2xSide,
    KittiSequence,
    KittiDataSet,
    ScanFolder,
)


def open_data_set(
    folder: str | Path,
    split: str | None = None,
    *,
    having: Part = "scan",
    scans: str | None = None,
    sweeps: int = 0,
) -> DataSet:
    """Open a data set of any kind; only the names of its files are read.

    Args:
        folder: folder of the data set; its layout determines the kind.
        split: frames of this list (KITTI: ``ImageSets/{split}.txt``), in its order; None means all frames.
        having: what each frame must have. Without a split, other frames are skipped; in a split they are an
            error.
        scans: folder of scans if a data set has several (KITTI: ``velodyne_reduced``, which the camera sees,
            or ``velodyne``, full turns); None means the first of them.
        sweeps: number of earlier scans to merge into each frame by poses. KITTI's frames, Argoverse 2 and
            pairs of DAIR-V2X have none.

    Raises:
        DataError: the folder or split does not exist, the kind is unknown, a frame lacks what it must have,
            or the kind has no sweeps.
    """
    folder = Path(folder)
    if not folder.is_dir():
        problem = "not a folder" if folder.exists() else "no such folder"
        raise DataError(f"{folder}: {problem}. Name the folder of a data set.")
    for kind in KINDS:
        if kind.recognises(folder):
            if sweeps and not kind.has_sweeps:
                raise DataError(f"{folder}: {kind.kind} data has no sweeps. Leave out sweeps.")
            return kind(folder, split, having, scans, sweeps)
    layouts = "; ".join(f"{kind.layout} ({kind.kind})" for kind in KINDS)
    raise DataError(
        f"{folder}: not a known kind of data set. For your own scans with labels, run perceive init"
        f" {folder}. Otherwise it must contain one of: {layouts}."
    )


def frame_beside(scan: Path, opened: OpenDataSets | None = None) -> Frame | None:
    """Return the frame of a scan with labels, calibration and picture of its data set, or None.

    Args:
        scan: file of the scan.
        opened: keeps data sets open between calls; None opens them in each call.

    Raises:
        DataError: a file of the data set is damaged.
    """
    opened = OpenDataSets() if opened is None else opened
    frames = (kind.frame_beside(folder, scan, opened) for kind, folder in opened.above(scan, KINDS))
    return next((frame for frame in frames if frame is not None), None)
