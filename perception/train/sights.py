"""Sights: what a detector makes of objects whose identity is known, seen whole and thinned out."""

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
from perception.errors import DataError
from perception.model.embedding import EmbeddingHead
from perception.model.network import Network
from perception.registry import kind_of
from perception.run.eager import EagerRunner
from perception.types import FloatArray
from sparse_core.common.files import replacing

IntArray = npt.NDArray[np.int64]
StringArray = npt.NDArray[np.str_]

#: Overlap (BEV) with a label from which a box is a sight of its object.
_LEAST_IOU = 0.3
#: Rows of points of a spinning sensor are about this far apart; every second one is left out.
_BEAM_RAD = 0.0072
#: Shares of the points that are kept where single ones are left out.
_KEPT_SHARES = (0.25, 0.75)


@dataclass(frozen=True, eq=False)
class View:
    """A scan with everything that is in it, and who it is.

    Attributes:
        points: (N, 4) float32, LiDAR frame, what the detector looks at ahead.
        boxes: (M, 7) float32; identities: M numbers, each object's own in its scene.
        scene: where; time_s: when.
        thinned: whether points were left out.
    """

    points: FloatArray
    boxes: FloatArray
    identities: IntArray
    scene: str
    time_s: float
    thinned: bool = False


@dataclass(frozen=True, eq=False)
class Sights:
    """Boxes of a detector that found a labelled object, a row each.

    Attributes:
        features: (N, 256) float32 of the last refinement step.
        boxes: (N, 7) float32 as found; labels: (N,) int64 class numbers as found.
        objects: (N,) names: scene and identity, the same for sights of one object.
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

    def __getitem__(self, rows: npt.NDArray[Any]) -> Sights:
        """Some of them, by numbers or a mask."""
        return Sights(**{name: values[rows] for name, values in vars(self).items()})

    @classmethod
    def joined(cls, parts: Sequence[Sights]) -> Sights:
        """All of them, in their order; none of none."""
        names = cls.__dataclass_fields__
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in (_none(), *parts)]) for name in names}
        )

    def save(self, path: Path) -> None:
        """Write them; features in half precision. The file is there once it is whole."""
        arrays = {**vars(self), "features": self.features.astype(np.float16)}
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Sights:
        """What :meth:`save` wrote.

        Raises:
            DataError: another file, or a damaged one.
        """
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in cls.__dataclass_fields__}
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise DataError(f"{path}: no file of sights, or damaged ({error}); delete it") from error
        return cls(**{**arrays, "features": arrays["features"].astype(np.float32)})


class Observer:
    """A detector that looks at views and tells the features of what it finds.

    Args:
        network: folded, with refinement; a head for vectors that it has is left aside.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self.device = next(network.parameters()).device

    def __call__(self, views: Iterable[View]) -> Sights:
        """Sights of all objects that are found in some views."""
        return Sights.joined([self.look(view) for view in views])

    def look(self, view: View) -> Sights:
        """Sights of the objects that are found in a view."""
        own, self._network.embedding = self._network.embedding, _Untouched()
        try:
            (found,) = EagerRunner(self._network, kind_of(self._network.config).eager)(
                [torch.from_numpy(view.points)]
            )
        finally:
            self._network.embedding = own
        assert found.embeddings is not None
        given = (found.boxes, found.scores, view.boxes)
        rows, named = _who(*(torch.from_numpy(part) for part in given))
        count, chosen = len(rows), rows.numpy()
        if count == 0:
            return _none()
        return Sights(
            found.embeddings[chosen],
            found.boxes[chosen],
            found.labels[chosen],
            np.array([f"{view.scene} {view.identities[row]}" for row in named], np.str_),
            np.full(count, view.scene),
            np.full(count, view.time_s),
            np.full(count, view.thinned),
        )


class _Untouched(EmbeddingHead):
    """In place of a head: features as they are."""

    def forward(self, features: Tensor) -> Tensor:
        """(N, 256) float32."""
        return features.float()


def _none() -> Sights:
    empty = np.zeros(0)
    names = np.zeros(0, np.str_)
    return Sights(
        np.zeros((0, 256), np.float32), np.zeros((0, 7), np.float32), empty.astype(np.int64), names, names,
        empty, empty.astype(np.bool_),
    )  # fmt: skip


def _who(boxes: Tensor, scores: Tensor, truth: Tensor) -> tuple[Tensor, list[int]]:
    """Rows of boxes that show a label, and which: each label is shown by the box that overlaps it most."""
    if len(boxes) == 0 or len(truth) == 0:
        return torch.zeros(0, dtype=torch.int64), []
    overlap, label = rotated_iou_bev(boxes, truth).max(dim=1)
    best: dict[int, int] = {}
    for row in torch.argsort(overlap, descending=True, stable=True).tolist():
        if overlap[row] > _LEAST_IOU:
            best.setdefault(int(label[row]), row)
    rows = sorted((row, named) for named, row in best.items())
    return torch.tensor([row for row, _ in rows], dtype=torch.int64), [named for _, named in rows]


def thinned(points: FloatArray, random: np.random.Generator) -> FloatArray:
    """As a worse sensor scans, or one farther away: without every second beam, or without single points."""
    if random.random() < 0.5:
        elevation = np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1]))
        kept = np.floor(elevation / _BEAM_RAD).astype(np.int64) % 2 == random.integers(2)
    else:
        kept = random.random(len(points)) < random.uniform(*_KEPT_SHARES)
    return np.ascontiguousarray(points[kept])


def drive_views(frames: DataSet, *, scene: str, seed: int, thin: bool = True) -> Iterator[View]:
    """The frames of a drive as they are, and each thinned out once.

    Args:
        frames: with identities.
        scene: name of the drive.
        seed: of what is left out.
        thin: whether to thin them out too.

    Raises:
        DataError: a frame without identities.
    """
    for number, frame in enumerate(frames):
        if frame.track_ids is None:
            raise DataError(
                f"{frames.folder}: frame {frame.frame_id!r} does not tell which object is which;"
                " vectors are learned from drives with track ids, such as a KITTI sequence with labels.txt"
            )
        points = frame.points[np.isfinite(frame.points).all(axis=1)]
        time_s = number if frame.time_ns is None else frame.time_ns / 1e9
        view = View(points, frame.boxes, frame.track_ids, scene, time_s)
        yield view
        if thin:
            random = np.random.default_rng([seed, number])
            fewer = thinned(points, random)
            yield View(fewer, view.boxes, view.identities, scene, time_s, thinned=True)
