"""Cooperative pairs of DAIR-V2X: a scan of the vehicle with one of the roadside post, and joint labels.

Points and labels are in the frame of the vehicle's LiDAR. Joint labels are written in world coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.boxes import wrap_angle
from perception.data.camera import CameraCalibration
from perception.data.dair_v2x.files import INFO, ROADSIDE, VEHICLE, Matrix, stem_of
from perception.data.dair_v2x.side import DairV2xSide, SideFrame
from perception.data.own.formats.dair_v2x import number_of, vector_of_text
from perception.data.own.parsing import field_of, items_of, read_json, table, text_of
from perception.data.types import DataSet, Frame, Part
from perception.errors import DataError
from perception.types import Boxes3D, PointCloud

#: Folder of the joint labels.
_LABELS = "label_world"
#: Corners of a label: lower 0 to 3, then upper. Edge 3 to 0 is as long as the object.
_CORNERS = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class PairFrame(Frame):
    """A scan of the vehicle and one of the roadside post, taken within 30 ms.

    Attributes:
        vehicle, roadside: frames of the sides; poses include the offset of the pair.
        world_labels: file of the joint labels.
    """

    vehicle: SideFrame
    roadside: SideFrame
    world_labels: Path

    @cached_property
    def vehicle_from_roadside(self) -> Matrix:
        """(4, 4) float64 transform of roadside points into the frame of the vehicle's LiDAR."""
        world_from_vehicle, world_from_roadside = self.vehicle.pose, self.roadside.pose
        if world_from_vehicle is None or world_from_roadside is None:
            raise DataError(f"frame {self.frame_id!r} has no pose of both sides. Add the calibrations.")
        return np.asarray(np.linalg.inv(world_from_vehicle) @ world_from_roadside)

    @cached_property
    def cloud(self) -> PointCloud:
        """The vehicle's scan, followed by the points of the roadside post."""
        own, other = self.vehicle.cloud, self.roadside.cloud.points.astype(np.float64)
        moved = other[:, :3] @ self.vehicle_from_roadside[:3, :3].T + self.vehicle_from_roadside[:3, 3]
        points = np.column_stack([moved, other[:, 3]]).astype(np.float32)
        return PointCloud(
            np.concatenate([own.points, points]),
            timestamp_ns=self.time_ns,
            source=str(self.source),
            sensor_height_m=own.sensor_height_m,
        )

    @cached_property
    def truth(self) -> Boxes3D:
        """Joint labels in the frame of the vehicle's LiDAR."""
        assert self.pose is not None
        return read_world_labels(self.world_labels, np.linalg.inv(self.pose).astype(np.float64))

    @cached_property
    def calibration(self) -> CameraCalibration:
        """Camera of the vehicle."""
        return self.vehicle.calibration

    @cached_property
    def image_size(self) -> tuple[int, int]:
        """Width and height of the vehicle's picture in pixels."""
        return self.vehicle.image_size

    def covered(self, positions: npt.ArrayLike) -> npt.NDArray[np.bool_] | None:
        """Return which positions one of the two cameras sees; None without both calibrations."""
        places = np.asarray(positions, np.float64)[:, :3]
        back = np.linalg.inv(self.vehicle_from_roadside)
        seen = self.vehicle.covered(places), self.roadside.covered(places @ back[:3, :3].T + back[:3, 3])
        return None if seen[0] is None or seen[1] is None else seen[0] | seen[1]


class _Pair(NamedTuple):
    """Frame names of a pair on both sides."""

    vehicle: str
    roadside: str


class DairV2xPairs(DataSet):
    """The pairs of the folder ``cooperative``, named by the vehicle's scans."""

    kind = "DAIR-V2X pairs"
    layout = f"{INFO} and {_LABELS}/ next to {VEHICLE.folder}/ and {ROADSIDE.folder}/"
    classes = DairV2xSide.classes
    neighbours: ClassVar[Mapping[str, str]] = DairV2xSide.neighbours
    evaluation = "boxes"

    @cached_property
    def _pairs(self) -> dict[str, _Pair]:
        path = self.folder / INFO
        found = {}
        for number, row in enumerate(items_of(str(path), "the file", read_json(path))):
            place = f"{path}: entry {number}"
            names = [stem_of(place, row, f"{side.key}_pointcloud_path") for side in (VEHICLE, ROADSIDE)]
            found[names[0]] = _Pair(*names)
        return found

    @cached_property
    def _sides(self) -> tuple[DairV2xSide, DairV2xSide]:
        vehicle, roadside = (
            DairV2xSide(self.folder.resolve().parent / names.folder, None, "scan or labels", None)
            for names in (VEHICLE, ROADSIDE)
        )
        return vehicle, roadside

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return True if the table of pairs and both sides exist."""
        sides = folder.resolve().parent
        pairs = (folder / INFO).is_file() and (folder / _LABELS).is_dir()
        return pairs and all((sides / names.folder).is_dir() for names in (VEHICLE, ROADSIDE))

    def frames_having(self, part: Part) -> Iterable[str]:
        """Return the pairs with labels, or with both scans."""
        vehicle, roadside = (side.files.scans for side in self._sides)
        scanned = {
            name for name, pair in self._pairs.items() if name in vehicle and pair.roadside in roadside
        }
        labelled = {name for name in self._pairs if (self.folder / _LABELS / f"{name}.json").is_file()}
        return {"scan": scanned, "labels": labelled, "scan or labels": scanned | labelled}[part]

    def frame(self, frame_id: str) -> PairFrame:
        """Return a pair by the name of the vehicle's scan."""
        if frame_id not in self._pairs:
            raise DataError(f"{self.folder}: no pair {frame_id!r}. Check the frame id.")
        vehicle, roadside = (
            side.frame(name) for side, name in zip(self._sides, self._pairs[frame_id], strict=True)
        )
        path = self.folder / _LABELS / f"{frame_id}.json"
        return PairFrame(
            frame_id=frame_id,
            source=vehicle.source,
            labelled=path.is_file() and vehicle.pose is not None,
            calibrated=vehicle.calibrated,
            image=vehicle.image,
            pose=vehicle.pose,
            time_ns=vehicle.time_ns,
            transform=vehicle.transform,
            vehicle=vehicle,
            roadside=roadside,
            world_labels=path,
        )


def read_world_labels(path: Path, lidar_from_world: Matrix) -> Boxes3D:
    """Read joint labels as boxes in a LiDAR frame.

    A box is as long as its edge from corner 3 to 0, which points backwards in three of four boxes.
    ``rotation``, the yaw in the vehicle's LiDAR frame, chooses between the two headings where it is given.
    Otherwise the box points from corner 0 to 3.
    """
    rows, names = [], []
    for number, item in enumerate(items_of(str(path), "the file", read_json(path))):
        place = f"{path}: object {number}"
        size = vector_of_text(place, item, "3d_dimensions", ("l", "w", "h"))
        if min(size) <= 0:
            continue
        centre = lidar_from_world[:3, :3] @ vector_of_text(place, item, "3d_location", ("x", "y", "z"))
        corners = _corners(place, item)
        ahead = lidar_from_world[:3, :3] @ (corners[3] - corners[0])
        yaw = float(np.arctan2(ahead[1], ahead[0]))
        if item.get("rotation") is not None:
            away = wrap_angle(number_of(place, "rotation", item["rotation"]) - yaw)
            yaw += np.pi * (abs(away) > np.pi / 2)
        rows.append([*(centre + lidar_from_world[:3, 3]), *size, wrap_angle(yaw)])
        names.append(text_of(place, item, "type").capitalize())
    return Boxes3D(table(rows).astype(np.float32), names)


def _corners(place: str, item: Mapping[str, Any]) -> Matrix:
    """Return (8, 3) corners in world coordinates."""
    told = field_of(place, item, "world_8_points")
    rows = told if isinstance(told, list) else []
    if len(rows) != _CORNERS or not all(isinstance(row, list) and len(row) == 3 for row in rows):
        raise DataError(f"{place}: field world_8_points must be 8 corners of 3 numbers, got {told!r:.80}")
    return table([[number_of(place, "world_8_points", part) for part in row] for row in rows], 3)
