"""Observations: detector features of objects with known identity, in full and thinned scans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from perception.boxes import rotated_iou_bev
from perception.data import DataSet
from perception.errors import ConfigError, DataError
from perception.model.embedding import EmbeddingHead
from perception.model.network import Network
from perception.registry import kind_of
from perception.run.eager import EagerRunner
from perception.types import FloatArray
from sparse_core.common.files import replacing

IntArray = npt.NDArray[np.int64]
StringArray = npt.NDArray[np.str_]

#: Least BEV overlap with a label of an observation.
_LEAST_IOU = 0.3
#: Typical beam gap of a spinning sensor; thinning removes every second beam.
_BEAM_RAD = 0.0072
#: Range of the share of points kept when thinning removes random points.
_KEPT_SHARES = (0.25, 0.75)


@dataclass(frozen=True, eq=False)
class View:
    """A scan with all objects in it and their identities.

    Attributes:
        points: (N, 4) float32, LiDAR frame, in the detector's range.
        boxes: (M, 7) float32; identities: M numbers, unique per object within the scene.
        scene: name of the scene; time_s: seconds.
        thinned: True if points were removed.
    """

    points: FloatArray
    boxes: FloatArray
    identities: IntArray
    scene: str
    time_s: float
    thinned: bool = False


@dataclass(frozen=True, eq=False)
class Observations:
    """Detected boxes that match a labelled object, one per row.

    Attributes:
        features: (N, 256) float32 of the last refinement step.
        boxes: (N, 7) float32 as detected; labels: (N,) int64 class numbers as detected.
        objects: (N,) names of scene and identity, equal for observations of one object.
        scenes: (N,) names; times_s: (N,) float64.
        thinned: (N,) bool.
    """

    features: FloatArray
    boxes: FloatArray
    labels: IntArray
    objects: StringArray
    scenes: StringArray
    times_s: npt.NDArray[np.float64]
    thinned: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, rows: npt.NDArray[Any]) -> Observations:
        """Return the rows of a mask or of numbers."""
        return Observations(**{name: values[rows] for name, values in vars(self).items()})

    @classmethod
    def joined(cls, parts: Sequence[Observations]) -> Observations:
        """Join observations in order."""
        names = cls.__dataclass_fields__
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in (_empty(), *parts)]) for name in names}
        )

    def save(self, path: Path) -> None:
        """Write the file atomically, with features in half precision."""
        arrays = {**vars(self), "features": self.features.astype(np.float16)}
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Observations:
        """Read a file written by :meth:`save`.

        Raises:
            DataError: the file is damaged, or of another kind.
        """
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in cls.__dataclass_fields__}
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise DataError(f"{path}: damaged observations ({error}). Delete the file") from error
        return cls(**{**arrays, "features": arrays["features"].astype(np.float32)})


class Observer:
    """A detector that returns the features of labelled objects in views.

    Args:
        network: folded, with refinement; its own embedding head is not used.

    Raises:
        ConfigError: the network shrinks or thins scans.
    """

    def __init__(self, network: Network) -> None:
        pillars = network.config.pillars
        if pillars.shrink != 1 or pillars.cube_m or pillars.sweeps > 1:
            raise ConfigError(
                "embeddings need a detector without pillars.shrink, pillars.cube_m and pillars.sweeps. Use"
                " other weights."
            )
        self._network = network
        self.device = next(network.parameters()).device

    def __call__(self, views: Iterable[View]) -> Observations:
        """Return the observations of all objects found in the views."""
        return Observations.joined([self.look(view) for view in views])

    def look(self, view: View) -> Observations:
        """Return the observations of the objects found in a view."""
        own, self._network.embedding = self._network.embedding, _FeatureHead()
        try:
            (found,) = EagerRunner(self._network, kind_of(self._network.config).eager)(
                [torch.from_numpy(view.points)]
            )
        finally:
            self._network.embedding = own
        assert found.embeddings is not None
        given = (found.boxes, found.scores, view.boxes)
        rows, named = _match_labels(*(torch.from_numpy(part) for part in given))
        count, chosen = len(rows), rows.numpy()
        if count == 0:
            return _empty()
        return Observations(
            found.embeddings[chosen],
            found.boxes[chosen],
            found.labels[chosen],
            np.array([f"{view.scene} {view.identities[row]}" for row in named], np.str_),
            np.full(count, view.scene),
            np.full(count, view.time_s),
            np.full(count, view.thinned),
        )


class _FeatureHead(EmbeddingHead):
    """Stand-in for an embedding head that returns features unchanged."""

    def forward(self, features: Tensor) -> Tensor:
        """Return the (N, 256) features as float32."""
        return features.float()


def _empty() -> Observations:
    empty = np.zeros(0)
    names = np.zeros(0, np.str_)
    return Observations(
        np.zeros((0, 256), np.float32), np.zeros((0, 7), np.float32), empty.astype(np.int64), names, names,
        empty, empty.astype(np.bool_),
    )  # fmt: skip


def _match_labels(boxes: Tensor, scores: Tensor, truth: Tensor) -> tuple[Tensor, list[int]]:
    """Return the rows of boxes that match a label, and those labels; each label takes its best-overlapping
    box.
    """
    if len(boxes) == 0 or len(truth) == 0:
        return torch.zeros(0, dtype=torch.int64), []
    overlap, label = rotated_iou_bev(boxes, truth).max(dim=1)
    best: dict[int, int] = {}
    for row in torch.argsort(overlap, descending=True, stable=True).tolist():
        if overlap[row] > _LEAST_IOU:
            best.setdefault(int(label[row]), row)
    rows = sorted((row, named) for named, row in best.items())
    return torch.tensor([row for row, _ in rows], dtype=torch.int64), [named for _, named in rows]


def thin_points(points: FloatArray, random: np.random.Generator) -> FloatArray:
    """Remove every second beam, or random points, as a worse or more distant sensor would."""
    if random.random() < 0.5:
        elevation = np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1]))
        kept = np.floor(elevation / _BEAM_RAD).astype(np.int64) % 2 == random.integers(2)
    else:
        kept = random.random(len(points)) < random.uniform(*_KEPT_SHARES)
    return np.ascontiguousarray(points[kept])


def drive_views(frames: DataSet, *, scene: str, seed: int) -> Iterator[View]:
    """Yield the frames of a drive, each in full and once thinned.

    Args:
        frames: with track ids.
        scene: name of the drive.
        seed: of the thinning.

    Raises:
        DataError: a frame has no track ids.
    """
    for number, frame in enumerate(frames):
        if frame.track_ids is None:
            raise DataError(
                f"{frames.folder}: frame {frame.frame_id!r} has no track ids, which embeddings are trained"
                " from. Use a drive with track ids, such as a KITTI sequence with labels.txt"
            )
        points = frame.points[np.isfinite(frame.points).all(axis=1)]
        time_s = number if frame.time_ns is None else frame.time_ns / 1e9
        view = View(points, frame.boxes, frame.track_ids, scene, time_s)
        yield view
        fewer = thin_points(points, np.random.default_rng([seed, number]))
        yield View(fewer, view.boxes, view.identities, scene, time_s, thinned=True)
