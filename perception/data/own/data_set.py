"""A folder of one's own data as a data set: ``dataset.yaml`` says what lies in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from perception.data.own.check import check_files
from perception.data.own.description import DESCRIPTION_NAME, Description, LabelPart, read_description
from perception.data.own.formats import format_named
from perception.data.own.labels import LabelFormat, WrittenLabels, truth_of, vertical_axis
from perception.data.types import DataSet, Frame, Part
from perception.errors import DataError
from perception.io.point_cloud import is_point_cloud
from perception.io.text import read_text
from perception.scans.finding import Finding
from perception.types import Boxes3D

#: Folders above a scan that are looked into for a description.
_LEVELS_ABOVE = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnFrame(Frame):
    """A scan and its labels.

    Attributes:
        written: its labels as they are written, or what is wrong with their file; None: it has none.
        part: how their numbers are meant.
        renamed: name in the labels to class, or to None for boxes that are left out.
    """

    written: WrittenLabels | DataError | None
    part: LabelPart
    renamed: Mapping[str, str | None]

    @cached_property
    def truth(self) -> Boxes3D:
        """The boxes of its classes in the LiDAR frame."""
        if isinstance(self.written, DataError):
            raise self.written
        if self.written is None:
            return Boxes3D(np.zeros((0, 7), np.float32), [])
        return truth_of(self.written, self.part, self.transform, self.renamed).boxes


class OwnDataSet(DataSet):
    """The frames of a folder with ``dataset.yaml`` (:class:`~perception.data.own.Description`).

    The labels of a frame are read when it is made, its scan when it is asked for.

    Args:
        folder, split, having, scans, sweeps: see :func:`~perception.data.open_data_set`.
        description: in place of the file.
    """

    kind = "own folder"
    layout = DESCRIPTION_NAME
    evaluation = "boxes"

    def __init__(
        self,
        folder: Path,
        split: str | None,
        having: Part,
        scans: str | None,
        sweeps: int = 0,
        *,
        description: Description | None = None,
    ) -> None:
        self.description = read_description(folder) if description is None else description
        self.classes = self.description.class_names
        super().__init__(folder, split, having, scans, sweeps)

    @cached_property
    def scan_files(self) -> dict[str, Path]:
        """The scans by the names of their frames."""
        folder = self.folder / self.description.scans.path
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder; correct scans.path in {self._file}")
        return {path.stem: path for path in sorted(folder.iterdir()) if is_point_cloud(path)}

    @cached_property
    def labels(self) -> LabelFormat | None:
        """What reads the labels; None where there are none."""
        part = self.description.labels
        if part is None:
            return None
        path = self.folder / part.path
        if not path.exists():
            raise DataError(f"{path}: no such folder or file; correct labels.path in {self._file}")
        try:
            kind = format_named(part.format)
        except DataError as error:
            raise DataError(f"{self._file}: {error}") from error
        return kind(path, vertical_axis(self.description.scans.transform))

    @property
    def _file(self) -> Path:
        return self.folder / DESCRIPTION_NAME

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """There is a description."""
        return (folder / DESCRIPTION_NAME).is_file()

    def frames_having(self, part: Part) -> Iterable[str]:
        """By the names of scans and labels."""
        if part == "scan":
            return self.scan_files
        labelled = () if self.labels is None else self.labels.frame_ids()
        if part == "labels":
            if self.labels is None:
                raise DataError(f"{self._file}: no labels; say where they are (labels.path, labels.format)")
            return labelled
        return {*self.scan_files, *labelled}

    def frame(self, frame_id: str) -> OwnFrame:
        """A frame that has a scan or labels."""
        labelled = self.labels is not None and frame_id in self.labels.frame_ids()
        if frame_id not in self.scan_files and not labelled:
            raise DataError(f"{self.folder}: no scan for frame {frame_id!r}; check the frame id")
        written: WrittenLabels | DataError | None = None
        if self.labels is not None and labelled:
            try:
                written = self.labels.read(frame_id)
            except DataError as error:
                # The scan can be used, and the doctor goes on; asking for the boxes tells.
                written = error
        part = self.description.labels or LabelPart()
        scans, told = self.description.scans, written if isinstance(written, WrittenLabels) else None
        tracks = None
        if told is not None and told.track_ids is not None:
            tracks = told.track_ids[truth_of(told, part, scans.transform, self.description.classes).kept]
        return OwnFrame(
            frame_id=frame_id,
            source=self.scan_files.get(frame_id),
            columns=scans.columns,
            transform=scans.transform,
            skipped=() if told is None else told.skipped,
            labelled=labelled,
            track_ids=tracks,
            pose=None if told is None else told.pose,
            time_ns=None if told is None else told.time_ns,
            written=written,
            part=part,
            renamed=self.description.classes,
        )

    @cached_property
    def lists(self) -> dict[str, Path]:
        """The lists of frames by the names of their splits."""
        folder = None if self.description.splits is None else self.folder / self.description.splits
        if folder is None:
            return {}
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder; correct splits in {self._file}")
        return {path.stem: path for path in sorted(folder.glob("*.txt"))}

    @property
    def splits(self) -> Sequence[str]:
        """The names of the lists."""
        return list(self.lists)

    def split_ids(self, split: str) -> list[str]:
        """The frames of a list."""
        if split not in self.lists:
            there = ", ".join(map(repr, self.lists)) or "none"
            raise DataError(
                f"{self.folder}: no list of the frames of split {split!r}; there are: {there};"
                " `perceive init` writes them, or take all frames (--split all; in Python split=None)"
            )
        return read_text(self.lists[split], "one frame id a line").split()

    def check_files(self) -> list[Finding]:
        """Labels and listed frames without scan, scans without labels, splits that share frames."""
        labelled = None if self.labels is None else self.labels.frame_ids()
        lists = {split: self.split_ids(split) for split in self.splits}
        return check_files(self.scan_files, labelled, lists)

    @classmethod
    def frame_beside(cls, scan: Path) -> OwnFrame | None:
        """The frame of a scan that lies in the folder of scans of a description above it."""
        scan = scan.resolve()
        for folder in scan.parents[:_LEVELS_ABOVE]:
            if cls.recognises(folder):
                data_set = cls(folder, None, "scan or labels", None)
                mine = data_set.scan_files.get(scan.stem)
                return data_set.frame(scan.stem) if mine is not None and mine.resolve() == scan else None
        return None
