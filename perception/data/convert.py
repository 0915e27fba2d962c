"""Conversion of data sets to another layout; it can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, get_args

from perception.data.camera import DEFAULT_IMAGE_SIZE, CameraCalibration
from perception.data.kinds import open_data_set
from perception.data.kitti import WHOLE_SCANS, KittiWriter
from perception.data.own import DESCRIPTION_NAME, OwnWriter, read_description
from perception.data.own.writer import OwnLayout
from perception.data.projection import objects_from_boxes
from perception.data.types import DataSet, Frame
from perception.errors import DataError

#: Layouts to write: own folders with labels in JSON, CSV or OpenPCDet's format, and KITTI's layout.
TARGETS: tuple[str, ...] = (*get_args(OwnLayout), "kitti")
Target = Literal["json", "csv", "openpcdet", "kitti"]


@dataclass(frozen=True)
class ConversionReport:
    """The result of a conversion.

    Attributes:
        written: number of written frames.
        kept: number of frames from an earlier run.
        damaged: errors of skipped frames, by name.
        notes: what the new layout cannot store.
    """

    written: int
    kept: int
    damaged: dict[str, str]
    notes: tuple[str, ...]


class _Writer(Protocol):
    def holds(self, frame_id: str) -> bool: ...
    def write(self, frame: Frame) -> None: ...
    def write_split(self, split: str, frame_ids: list[str]) -> None: ...


class _KittiFrames:
    """Writer of KITTI's layout for frames of any kind."""

    def __init__(self, root: Path) -> None:
        self._writer = KittiWriter(root, WHOLE_SCANS)
        self.holds, self.write_split = self._writer.holds, self._writer.write_split

    def write(self, frame: Frame) -> None:
        camera, size = CameraCalibration.default(), DEFAULT_IMAGE_SIZE
        if frame.calibrated:
            camera, size = frame.calibration, frame.image_size
        objects = frame.objects
        if not objects and len(frame.boxes):
            made = objects_from_boxes(frame.boxes, frame.labels, None, camera, image_size=size)
            objects = [replace(item, occluded=0) for item in made]
        self._writer.write(frame.frame_id, frame.cloud, objects, camera)


def convert(
    source: str | Path,
    target: str | Path,
    to: Target,
    *,
    skip_damaged: bool = False,
    on_frame: Callable[[int, int], None] | None = None,
) -> ConversionReport:
    """Convert all frames with a scan to another layout, in metres, x forward, y left, z up.

    Points are exact. So are boxes, except in KITTI's labels, which have four decimals. A second call resumes.

    Args:
        source: folder of a data set for :func:`~perception.data.open_data_set`.
        target: output folder.
        to: ``"json"``, ``"csv"``, ``"openpcdet"`` or ``"kitti"``.
        skip_damaged: True skips unreadable frames instead of raising.
        on_frame: called with the number of finished frames, and of all frames.

    Raises:
        DataError: a frame is unreadable, writing failed, or the target holds another data set.
        ValueError: the layout is unknown, or cannot store the name of a class.
    """
    if to not in TARGETS:
        raise ValueError(f"to must be one of {', '.join(TARGETS)}, got {to!r}")
    source, target = Path(source), Path(target)
    data_set = open_data_set(source)
    _check_target(source, target, to)
    writer: _Writer = _KittiFrames(target) if to == "kitti" else OwnWriter(target, to)
    written, kept, damaged, notes = 0, 0, {}, _Notes(to)
    height_m: float | None = None
    names: dict[str, None] = {}
    for done, frame_id in enumerate(data_set.frame_ids, 1):
        there = writer.holds(frame_id)
        try:
            frame = data_set.frame(frame_id)
            names.update(dict.fromkeys(frame.labels))
            if not there:
                writer.write(frame)
                notes.add(frame)
                height_m = frame.cloud.sensor_height_m
            kept, written = kept + there, written + (not there)
        except DataError as error:
            if not skip_damaged:
                raise
            damaged[frame_id] = str(error)
        if on_frame is not None:
            on_frame(done, len(data_set))
    whole = [frame_id for frame_id in data_set.frame_ids if frame_id not in damaged]
    for split in data_set.splits:
        listed = set(data_set.split_ids(split))
        writer.write_split(split, [frame_id for frame_id in whole if frame_id in listed])
    if isinstance(writer, OwnWriter):
        # If nothing was written, the earlier run stored the height.
        if not written and (target / DESCRIPTION_NAME).is_file():
            height_m = read_description(target).scans.sensor_height_m
        writer.write_description(_classes(data_set, names), height_m)
    return ConversionReport(written, kept, damaged, notes.found)


def _check_target(source: Path, target: Path, to: Target) -> None:
    if target.resolve() == source.resolve():
        raise DataError(f"{target}: source and target are the same folder. Name another target.")
    if not (target / DESCRIPTION_NAME).is_file():
        return
    labels = read_description(target).labels
    if labels is None or labels.format != to:
        there = "none" if labels is None else labels.format
        raise DataError(f"{target} holds a data set with labels of format {there}. Name another folder.")


def _classes(data_set: DataSet, names: Collection[str]) -> dict[str, str | None]:
    """Return the classes with boxes, those of the data set first."""
    ordered = [name for name in data_set.classes if name in names]
    return {name: name for name in (*ordered, *names)}


class _Notes:
    """Notes about data that the new layout cannot store."""

    def __init__(self, to: Target) -> None:
        self._to, self._found = to, dict[str, None]()

    @property
    def found(self) -> tuple[str, ...]:
        return tuple(self._found)

    def add(self, frame: Frame) -> None:
        lost = []
        if frame.track_ids is not None and self._to in ("openpcdet", "kitti"):
            lost.append("identities (track_ids)")
        if frame.velocities is not None:
            lost.append("velocities")
        if frame.pose is not None and self._to != "json":
            lost.append("poses and times")
        if self._to != "kitti":
            if frame.calibrated:
                lost.append("camera calibration, image boxes and unlabelled regions")
        else:
            if frame.cloud.sensor_height_m is not None:
                lost.append("the sensor height (add --sensor-height when you use the data)")
            if not frame.calibrated:
                self._found["KITTI's layout needs a camera: wrote a synthetic calibration."] = None
        for part in lost:
            self._found[f"The layout cannot store {part}."] = None
