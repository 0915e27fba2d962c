"""The kinds of data sets: one line each, and one file each."""

from __future__ import annotations

from pathlib import Path

from perception.data.argoverse import ArgoverseDataSet
from perception.data.kitti.data_set import KittiDataSet
from perception.data.kitti.sequence import KittiSequence
from perception.data.nuscenes.data_set import NuScenesDataSet
from perception.data.scans import ScanFolder
from perception.data.types import DataSet, Frame, Part
from perception.errors import DataError

#: In the order in which they are asked whether they recognise a folder.
KINDS: tuple[type[DataSet], ...] = (
    NuScenesDataSet,
    ArgoverseDataSet,
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
    """The frames of a folder, whatever its kind; nothing is read but the names of its files.

    Args:
        folder: of the data set; its layout tells the kind.
        split: only the frames of this list (KITTI: ``ImageSets/{split}.txt``), in its order; None takes all.
        having: what each frame must have. Other frames are left out of all, and an error in a split.
        scans: name of the scans, where a data set holds several for a frame (KITTI: ``velodyne_reduced``,
            the points that the camera sees, or ``velodyne``, whole turns); None: the first of them.
        sweeps: how many scans from before a frame are added to it, moved by the poses (nuScenes).

    Raises:
        DataError: there is no such folder or split, no kind recognises the folder, what a frame must have
            is missing, or sweeps are asked for where there are none.
    """
    folder = Path(folder)
    if not folder.is_dir():
        wrong = "not a folder" if folder.exists() else "no such folder"
        raise DataError(f"{folder}: {wrong}; name the folder of a data set")
    for kind in KINDS:
        if kind.recognises(folder):
            if sweeps and not kind.has_sweeps:
                raise DataError(f"{folder}: a {kind.kind} has no sweeps between its frames; leave out sweeps")
            return kind(folder, split, having, scans, sweeps)
    looked = "; ".join(f"no {kind.layout} ({kind.kind})" for kind in KINDS)
    raise DataError(f"{folder}: not a data set of a known kind: {looked}")


def frame_beside(scan: Path) -> Frame | None:
    """The frame of a scan that lies in a data set: labels, calibration and picture, as far as it has them.

    None where the scan lies in no data set; ``DataError`` where a file that tells of all frames is damaged.
    """
    return next((frame for kind in KINDS if (frame := kind.frame_beside(scan)) is not None), None)
