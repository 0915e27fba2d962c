"""Writer of own folders with labels in JSON, CSV or OpenPCDet's layout."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from perception.data.own.description import DESCRIPTION_NAME, Description, LabelPart, ScanPart
from perception.data.own.formats.csv_table import FIELDS
from perception.data.own.written_description import description_text
from perception.data.types import Frame
from perception.io.point_cloud import save_point_cloud
from perception.io.text import write_text
from perception.types import FloatArray

#: Folder of the scans, their suffix, folder of the lists, suffix of the labels.
_LAYOUTS = {
    "json": ("scans", ".bin", "splits", ".json"),
    "csv": ("scans", ".bin", "splits", ".csv"),
    "openpcdet": ("points", ".npy", "ImageSets", ".txt"),
}
OwnLayout = Literal["json", "csv", "openpcdet"]


class OwnWriter:
    """Writer of an own folder; files are written atomically.

    Boxes and points are exact. JSON also stores identities, poses and times; CSV identities; OpenPCDet's
    layout neither.

    Args:
        root: output folder.
        layout: layout of the files.
    """

    def __init__(self, root: Path, layout: OwnLayout) -> None:
        self.root, self.layout = root, layout
        self._scans, self._suffix, self._splits, self._label_suffix = _LAYOUTS[layout]
        for name in (self._scans, "labels", self._splits):
            (root / name).mkdir(parents=True, exist_ok=True)

    def _paths(self, frame_id: str) -> tuple[Path, Path]:
        return (
            self.root / self._scans / f"{frame_id}{self._suffix}",
            self.root / "labels" / f"{frame_id}{self._label_suffix}",
        )

    def holds(self, frame_id: str) -> bool:
        """Return True if the scan, which is written last, exists."""
        return self._paths(frame_id)[0].exists()

    def write(self, frame: Frame) -> None:
        """Write scan and, if any, labels of a frame.

        Raises:
            DataError: reading the frame or writing failed.
            ValueError: OpenPCDet's layout cannot store the name of a class.
        """
        scan, labels = self._paths(frame.frame_id)
        if frame.labelled:
            text = {"json": _as_json, "csv": _as_csv, "openpcdet": _as_lines}[self.layout](frame)
            write_text(labels, text)
        save_point_cloud(scan, frame.cloud)

    def write_split(self, split: str, frame_ids: Sequence[str]) -> None:
        """Write the list of a split."""
        path = self.root / self._splits / f"{split}.txt"
        write_text(path, "".join(f"{frame_id}\n" for frame_id in frame_ids))

    def write_description(self, classes: Mapping[str, str | None], sensor_height_m: float | None) -> None:
        """Write ``dataset.yaml``."""
        description = Description(
            ScanPart(
                self._scans,
                ("x", "y", "z", "intensity"),
                intensity_scale=1.0,
                sensor_height_m=sensor_height_m,
            ),
            LabelPart("labels", self.layout),
            dict(classes),
            self._splits,
        )
        write_text(self.root / DESCRIPTION_NAME, description_text(description))


def _numbers(box: FloatArray) -> list[float]:
    """Return the shortest decimals that give the same float32."""
    return [float(np.format_float_positional(value, trim="0")) for value in box]


def _tracks(frame: Frame) -> list[int | None]:
    if frame.track_ids is None:
        return [None] * len(frame.labels)
    return [int(track) for track in frame.track_ids]


def _as_json(frame: Frame) -> str:
    objects = []
    for box, name, track in zip(frame.boxes, frame.labels, _tracks(frame), strict=True):
        entry: dict[str, Any] = {"class": name, "box": _numbers(box)}
        objects.append(entry if track is None else {**entry, "track_id": track})
    told: dict[str, Any] = {"objects": objects}
    if frame.pose is not None:
        told["pose"] = frame.pose.ravel().tolist()
    if frame.time_ns is not None:
        told["time_ns"] = frame.time_ns
    return json.dumps(told) + "\n"


def _as_csv(frame: Frame) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    tracked = frame.track_ids is not None
    rows.writerow(["class", *FIELDS, *(["track_id"] if tracked else [])])
    for box, name, track in zip(frame.boxes, frame.labels, _tracks(frame), strict=True):
        rows.writerow([name, *_numbers(box), *([track] if tracked else [])])
    return text.getvalue()


def _as_lines(frame: Frame) -> str:
    lines = []
    for box, name in zip(frame.boxes, frame.labels, strict=True):
        if name.split() != [name]:
            raise ValueError(
                f"OpenPCDet's labels need one-word classes, got {name!r}. Rename it, for example in"
                " dataset.yaml."
            )
        lines.append(" ".join([*map(repr, _numbers(box)), name]) + "\n")
    return "".join(lines)
