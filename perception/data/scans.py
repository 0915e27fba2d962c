"""A folder of scans without labels as a data set."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from perception.data.types import DataSet, Frame, Part
from perception.errors import DataError
from perception.io.point_cloud import find_point_clouds, is_point_cloud, known_suffixes


class ScanFolder(DataSet):
    """The scans of a folder, named by their files."""

    kind = "folder of scans"
    layout = f"{known_suffixes()} file"

    @cached_property
    def _paths(self) -> dict[str, Path]:
        return {path.stem: path for path in find_point_clouds([self.folder])}

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return True for a folder of scans."""
        return any(map(is_point_cloud, folder.iterdir()))

    def frames_having(self, part: Part) -> dict[str, Path]:
        """Return the scans by name; there are no labels."""
        if part == "labels":
            raise DataError(
                f"{self.folder}: a folder of scans without labels. Name a labelled data set, or run"
                f" perceive init {self.folder} after you added labels."
            )
        return self._paths

    def frame(self, frame_id: str) -> Frame:
        """Return a frame with a scan only."""
        if frame_id not in self._paths:
            raise DataError(f"{self.folder}: no scan for frame {frame_id!r}; check the frame id")
        return Frame(frame_id=frame_id, source=self._paths[frame_id])
