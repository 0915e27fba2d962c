"""Training frames: points, boxes and class indices."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from perception.config import DetectorConfig, PillarConfig
from perception.data import DataSet, Frame
from perception.errors import DataError
from perception.model.head import MEAN_SIZES_M
from perception.scans.tensors import as_tensor, raised_m
from perception.types import FloatArray

IntArray = npt.NDArray[np.int64]

#: Class index of objects that resemble a class and are ignored, as in the KITTI protocol.
IGNORED = -1


class SensorKind(NamedTuple):
    """Kind of sensor, the same for all frames with similar scans.

    Attributes:
        name: distinguishes kinds.
        beams: number of beams; 64 for KITTI's.
    """

    name: str
    beams: int


#: Kind of frames whose sensor is unknown.
ANY_SENSOR = SensorKind("", 64)


@dataclass(frozen=True, eq=False)
class TrainingFrame:
    """One labelled frame.

    Attributes:
        frame_id: name of the frame.
        points: (N, C) float32, LiDAR frame, as the detector sees them
            (:func:`~perception.scans.tensors.as_tensor`), with ages for several sweeps.
        boxes: (M, 7) float32, in the same frame.
        labels: (M,) int64 class indices, -1 for ignored objects.
        velocities: (M, 2) float32 over the ground, m/s along x and y; NaN where unknown, the default.
        unlabelled: class indices that the labels of the data set cannot have.
        sensor: of the scan.
    """

    frame_id: str
    points: FloatArray
    boxes: FloatArray
    labels: IntArray
    velocities: FloatArray = field(default_factory=lambda: np.zeros((0, 2), np.float32))
    unlabelled: tuple[int, ...] = ()
    sensor: SensorKind = ANY_SENSOR

    def __post_init__(self) -> None:
        if len(self.velocities) != len(self.boxes):
            object.__setattr__(self, "velocities", np.full((len(self.boxes), 2), np.nan, np.float32))


class LabelIndex(NamedTuple):
    """Class indices of the labels of a data set; labels with other names become background.

    Attributes:
        rows: class index by name in labels, or :data:`IGNORED`.
        unlabelled: indices of the classes that the labels cannot have.
    """

    rows: dict[str, int]
    unlabelled: tuple[int, ...] = ()

    @classmethod
    def of(cls, data_set: DataSet, classes: Sequence[str], names: Mapping[str, str]) -> LabelIndex:
        """Return the index of a data set.

        Args:
            data_set: of the labels.
            classes: names in the order of their indices.
            names: class by name in labels, "" to ignore; without it, similar classes of the data set are
                ignored.
        """
        own = {name: position for position, name in enumerate(classes)}
        if not names:
            return cls(dict.fromkeys(data_set.neighbours.values(), IGNORED) | own)
        rows = own | {name: own.get(meant, IGNORED) for name, meant in names.items()}
        labelled = (
            {rows.get(name, IGNORED) for name in data_set.classes} if data_set.classes else own.values()
        )
        return cls(rows, tuple(row for row in own.values() if row not in labelled))


class FrameReader(NamedTuple):
    """Reader of a frame that is not kept in memory.

    Attributes:
        data_set: of the frame.
        position: of the frame in the data set.
        labels: class indices by names in labels.
        pillars: of the detector.
        velocity: True to read velocities.
        bare: its boxes and labels, without points.
    """

    data_set: DataSet
    position: int
    labels: LabelIndex
    pillars: PillarConfig
    velocity: bool
    bare: TrainingFrame

    def __call__(self) -> TrainingFrame:
        """Read the frame from its files."""
        frame = self.data_set[self.position]
        return _training_frame(
            frame, self.labels, self.pillars, velocity=self.velocity, sensor=self.bare.sensor
        )


class LoadedFrames(Sequence[TrainingFrame]):
    """Sequence of frames, some in memory and some read again at every use."""

    def __init__(self, entries: Iterable[TrainingFrame | FrameReader] = ()) -> None:
        self._entries = list(entries)

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> TrainingFrame: ...
    @overload
    def __getitem__(self, index: slice) -> LoadedFrames: ...
    def __getitem__(self, index: int | slice) -> TrainingFrame | LoadedFrames:
        if isinstance(index, slice):
            return LoadedFrames(self._entries[index])
        entry = self._entries[index]
        return entry() if isinstance(entry, FrameReader) else entry

    def __add__(self, others: LoadedFrames) -> LoadedFrames:
        return LoadedFrames([*self._entries, *others._entries])

    @property
    def nbytes(self) -> int:
        """Bytes of the points in memory."""
        return sum(entry.points.nbytes for entry in self._entries if isinstance(entry, TrainingFrame))

    def bare(self) -> list[TrainingFrame]:
        """Return all frames with boxes and labels, without reading files; frames not in memory have no
        points.
        """
        return [entry.bare if isinstance(entry, FrameReader) else entry for entry in self._entries]


def load_frames(
    data_set: DataSet,
    classes: Sequence[str],
    *,
    sensor: SensorKind = ANY_SENSOR,
    pillars: PillarConfig | None = None,
    velocity: bool = False,
    names: Mapping[str, str] | None = None,
    memory_bytes: float = math.inf,
    on_damaged: Callable[[str], None] | None = None,
) -> LoadedFrames:
    """Read every frame of a data set; see :class:`LabelIndex` for the classes of its labels.

    Args:
        data_set: to read.
        classes: names in the order of their indices.
        pillars: of the detector, which may shrink and thin scans and read past ones; None: the default.
        velocity: read velocities, which need the frames around each in a drive.
        names: class by name in labels, see :class:`~perception.config.TrainConfig`.
        sensor: of all frames.
        memory_bytes: memory for points; further frames are read again at every use.
        on_damaged: called with the error of a damaged frame, which is then skipped.

    Raises:
        DataError: a frame is damaged and ``on_damaged`` is None.
    """
    pillars = pillars or PillarConfig()
    # Kinds without sweeps give single scans.
    data_set = data_set.with_sweeps(pillars.sweeps - 1, pillars.max_age_s)
    index = LabelIndex.of(data_set, classes, names or {})
    entries: list[TrainingFrame | FrameReader] = []
    for position in range(len(data_set)):
        try:
            frame = _training_frame(data_set[position], index, pillars, velocity=velocity, sensor=sensor)
        except DataError as error:
            if on_damaged is None:
                raise
            on_damaged(str(error))
            continue
        memory_bytes -= frame.points.nbytes
        bare = replace(frame, points=frame.points[:0])
        entries.append(
            frame if memory_bytes >= 0 else FrameReader(data_set, position, index, pillars, velocity, bare)
        )
    return LoadedFrames(entries)


def without_points(frames: Iterable[TrainingFrame]) -> Iterable[TrainingFrame]:
    """Return frames with boxes and labels only, without reading files."""
    return frames.bare() if isinstance(frames, LoadedFrames) else frames


def _training_frame(
    frame: Frame, index: LabelIndex, pillars: PillarConfig, *, velocity: bool, sensor: SensorKind
) -> TrainingFrame:
    cloud, covered = frame.cloud, frame.covered(frame.boxes)
    kept = [
        row
        for row, name in enumerate(frame.labels)
        if name in index.rows and (covered is None or covered[row])
    ]
    seen = frame.covered(cloud.points)
    if seen is not None:
        # Unlabelled objects elsewhere would teach that there are none.
        cloud = cloud.take(seen)
    points, boxes = as_tensor(cloud, pillars).numpy(), frame.boxes[kept]
    points = points[np.isfinite(points).all(axis=1)]
    raised = np.float32(raised_m(frame.cloud, pillars.shrink))
    if raised or pillars.shrink != 1:
        boxes = boxes.copy()
        boxes[:, 2] += raised
        boxes[:, :6] /= np.float32(pillars.shrink)
    velocities = frame.velocities if velocity else None
    if velocities is None:
        velocities = np.full((len(frame.boxes), 2), np.nan, np.float32)
    return TrainingFrame(
        frame.frame_id,
        points,
        boxes,
        np.array([index.rows[frame.labels[row]] for row in kept], dtype=np.int64),
        velocities[kept] / np.float32(pillars.shrink),
        index.unlabelled,
        sensor,
    )


def with_measured_sizes(config: DetectorConfig, frames: Iterable[TrainingFrame]) -> DetectorConfig:
    """Add mean sizes of classes to a configuration, measured from boxes.

    Args:
        config: of the detector; its own sizes, and those of KITTI's classes, stay.
        frames: labelled with its classes.
    """
    sizes, boxes = dict(config.head.sizes_m), defaultdict(list)
    for frame in without_points(frames):
        for box, label in zip(frame.boxes, frame.labels, strict=True):
            boxes[int(label)].append(box[3:6])
    for row, name in enumerate(config.head.classes):
        if name not in MEAN_SIZES_M | sizes and row in boxes:
            mean = np.stack(boxes[row]).mean(axis=0, dtype=np.float64)
            sizes[name] = tuple(max(0.01, round(float(value), 2)) for value in mean)
    return replace(config, head=replace(config.head, sizes_m=sizes))


def class_counts(frames: Iterable[TrainingFrame], classes: Sequence[str]) -> dict[str, int]:
    """Count the objects of each class."""
    labels = np.concatenate([frame.labels for frame in without_points(frames)] or [np.zeros(0, np.int64)])
    return {name: int((labels == position).sum()) for position, name in enumerate(classes)}
