"""An own folder as a data set, described by ``dataset.yaml``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from perception.data.own.check import check_files
from perception.data.own.description import DESCRIPTION_NAME, Description, LabelPart, read_description
from perception.data.own.formats import format_named
from perception.data.own.labels import (
    LabelFormat,
    WrittenLabels,
    truth_of,
    vertical_axis,
    without_nameless,
)
from perception.data.types import DataSet, Frame, OpenDataSets, Part
from perception.errors import DataError
from perception.io.point_cloud import is_point_cloud
from perception.io.text import read_text
from perception.scans.finding import Finding
from perception.types import Boxes3D

#: Number of parent folders of a scan to search for a description.
_LEVELS_ABOVE = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnFrame(Frame):
    """A scan and its labels.

    Attributes:
        written: labels as written, or the error of reading them; None without labels.
        part: description of the labels.
        renamed: class by name in the labels, or None to drop boxes.
    """

    written: WrittenLabels | DataError | None
    part: LabelPart
    renamed: Mapping[str, str | None]

    @cached_property
    def truth(self) -> Boxes3D:
        """Boxes in the LiDAR frame."""
        if isinstance(self.written, DataError):
            raise self.written
        if self.written is None:
            return Boxes3D(np.zeros((0, 7), np.float32), [])
        return truth_of(self.written, self.part, self.transform, self.renamed).boxes


class OwnDataSet(DataSet):
    """The frames of a folder with ``dataset.yaml`` (:class:`~perception.data.own.Description`).

    Args:
        folder, split, having, scans, sweeps: see :func:`~perception.data.open_data_set`.
        description: description to use instead of the file.
    """

    kind = "own folder"
    layout = DESCRIPTION_NAME
    evaluation = "boxes"
    has_sweeps: ClassVar[bool] = True

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
        self.headings = self.description.labels is None or self.description.labels.headings
        super().__init__(folder, split, having, scans, sweeps)

    @cached_property
    def scan_files(self) -> dict[str, Path]:
        """Scans by frame name."""
        folder = self.folder / self.description.scans.path
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder. Correct scans.path in {self._file}.")
        return {path.stem: path for path in sorted(folder.iterdir()) if is_point_cloud(path)}

    @cached_property
    def labels(self) -> LabelFormat | None:
        """Reader of the labels, or None."""
        part = self.description.labels
        if part is None:
            return None
        path = self.folder / part.path
        if not path.exists():
            raise DataError(f"{path}: no such folder or file. Correct labels.path in {self._file}.")
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
        """Return True for a folder with a description."""
        return (folder / DESCRIPTION_NAME).is_file()

    def frames_having(self, part: Part) -> Iterable[str]:
        """Return the frames that have a part, by names of scans and labels."""
        if part == "scan":
            return self.scan_files
        labelled = () if self.labels is None else self.labels.frame_ids()
        if part == "labels":
            if self.labels is None:
                raise DataError(f"{self._file}: no labels. Set labels.path and labels.format.")
            return labelled
        return {*self.scan_files, *labelled}

    def drive_of(self, frame_id: str) -> Sequence[str]:
        """Return all scans by name; times tell gaps between drives."""
        return self._order

    @cached_property
    def _order(self) -> list[str]:
        return list(self.scan_files)

    def frame(self, frame_id: str) -> OwnFrame:
        """Return a frame that has a scan or labels."""
        labelled = self.labels is not None and frame_id in self.labels.frame_ids()
        if frame_id not in self.scan_files and not labelled:
            raise DataError(f"{self.folder}: no scan for frame {frame_id!r}. Check the frame id.")
        written: WrittenLabels | DataError | None = None
        if self.labels is not None and labelled:
            try:
                written = without_nameless(self.labels.read(frame_id))
            except DataError as error:
                # The scan is still usable; access to the boxes raises the error.
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
        """Files of the splits, by name."""
        folder = None if self.description.splits is None else self.folder / self.description.splits
        if folder is None:
            return {}
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder. Correct splits in {self._file}.")
        return {path.stem: path for path in sorted(folder.glob("*.txt"))}

    @property
    def splits(self) -> Sequence[str]:
        """Names of the splits."""
        return list(self.lists)

    def split_ids(self, split: str) -> list[str]:
        """Return the frames of a split."""
        if split not in self.lists:
            there = ", ".join(map(repr, self.lists)) or "none"
            raise DataError(
                f"{self.folder}: no split {split!r}; splits: {there}. Run `perceive init` to write splits,"
                " or use all frames (--split all; in Python split=None)."
            )
        # Names of scans may contain spaces.
        lines = read_text(self.lists[split], "one frame id per line").splitlines()
        return [line.strip() for line in lines if line.strip()]

    def check_files(self) -> list[Finding]:
        """Find labels and listed frames without scan, scans without labels, and splits that share frames."""
        labelled = None if self.labels is None else self.labels.frame_ids()
        lists = {split: self.split_ids(split) for split in self.splits}
        return check_files(self.scan_files, labelled, lists)

    @classmethod
    def folder_above(cls, scans: Path) -> Path | None:
        """Return the nearest described folder above a folder of scans, or None."""
        return next(filter(cls.recognises, (scans, *scans.parents)[:_LEVELS_ABOVE]), None)

    @classmethod
    def frame_beside(cls, folder: Path, scan: Path, opened: OpenDataSets) -> OwnFrame | None:
        """Return the frame of a scan in an own folder, or None."""
        scan = scan.resolve()
        data_set = opened.open(cls, folder, scan, having="scan or labels")
        mine = data_set.scan_files.get(scan.stem)
        return data_set.frame(scan.stem) if mine is not None and mine.resolve() == scan else None
