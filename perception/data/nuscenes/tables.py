"""nuScenes' tables: JSON lists of records that refer to each other by tokens.

Source: the nuScenes schema (https://www.nuscenes.org/nuscenes#data-format).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from perception.data.nuscenes.classes import BICYCLE_RACK, CLASS_OF_CATEGORY, CLASSES
from perception.errors import DataError

Matrix = npt.NDArray[np.float64]
Record = dict[str, Any]

LIDAR, CAMERA = "LIDAR_TOP", "CAM_FRONT"
#: Largest time between neighbouring annotations for a velocity, as in nuScenes' evaluation.
_MOST_S = 1.5
# Bicycle racks are not a class; bicycles inside them are not evaluated.
_RACK_ID = -2


class SensorReading(NamedTuple):
    """A scan or picture: its file, time (nanoseconds since the epoch) and pose.

    Attributes:
        global_from_sensor: (4, 4) float64, metres.
        global_from_ego: (4, 4) float64 pose of the vehicle at that time.
        intrinsics: (3, 3) float64 camera matrix.
    """

    token: str
    file: str
    time_ns: int
    global_from_sensor: Matrix
    global_from_ego: Matrix
    intrinsics: Matrix | None
    before: str


class Labels(NamedTuple):
    """Labels of a sample for the ten classes of the detection task, in the global frame.

    Attributes:
        centres: (M, 3) float64, metres.
        sizes: (M, 3) float64: length, width, height.
        rotations: (M, 4) float64 quaternions x, y, z, w.
        velocities: (M, 3) float64, m/s; NaN without a neighbouring annotation.
        classes: M names.
        instances: (M,) int64, rows of the table of instances.
        attributes: M names, or "".
        points: (M,) int64 LiDAR and radar points inside.
    """

    centres: Matrix
    sizes: Matrix
    rotations: Matrix
    velocities: Matrix
    classes: list[str]
    instances: npt.NDArray[np.int64]
    attributes: list[str]
    points: npt.NDArray[np.int64]


class _Annotations(NamedTuple):
    """All labels of the detection classes, sorted by sample."""

    sample: npt.NDArray[np.int64]
    numbers: Matrix
    velocities: Matrix
    class_id: npt.NDArray[np.int64]
    instance: npt.NDArray[np.int64]
    attribute: list[str]
    points: npt.NDArray[np.int64]
    rack_sample: npt.NDArray[np.int64]
    rack_numbers: Matrix


class Tables:
    """The tables of one version, such as ``v1.0-mini``, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def samples(self) -> list[Record]:
        """Key frames with token, scene, and time in microseconds."""
        return self._read("sample", ("token", "scene_token", "timestamp"))

    @cached_property
    def sample_rows(self) -> dict[str, int]:
        """Row of ``samples`` by token."""
        return {record["token"]: row for row, record in enumerate(self.samples)}

    @cached_property
    def scene_names(self) -> dict[str, str]:
        """Name by token, such as ``scene-0061``."""
        return {record["token"]: record["name"] for record in self._read("scene", ("token", "name"))}

    @cached_property
    def key_sights(self) -> dict[str, dict[str, str]]:
        """Tokens of LiDAR scan and front picture by channel, by sample token."""
        found: dict[str, dict[str, str]] = {}
        for record in self._sight_records.values():
            if record["is_key_frame"]:
                channel = self._channels[record["calibrated_sensor_token"]]
                found.setdefault(record["sample_token"], {})[channel] = record["token"]
        return found

    def sight(self, token: str) -> SensorReading:
        """Return the scan or picture of a token of ``sample_data``.

        Raises:
            DataError: the record, or one that it refers to, is missing.
        """
        record = self._named(self._sight_records, "sample_data", token, "a sample")
        mount = self._named(self._mounts, "calibrated_sensor", record["calibrated_sensor_token"], token)
        ego = self._named(self._egos, "ego_pose", record["ego_pose_token"], token)
        global_from_ego = self._rigid(ego, "ego_pose")
        camera = mount["camera_intrinsic"]
        return SensorReading(
            token,
            record["filename"],
            int(record["timestamp"]) * 1000,
            global_from_ego @ self._rigid(mount, "calibrated_sensor"),
            global_from_ego,
            np.array(camera, np.float64) if camera else None,
            record["prev"],
        )

    def labels(self, sample: str) -> Labels:
        """Return the labels of a sample, in the order of the table."""
        table = self._annotations
        row = self.sample_rows[sample]
        first, last = np.searchsorted(table.sample, [row, row + 1])
        part = slice(int(first), int(last))
        numbers = table.numbers[part]
        return Labels(
            numbers[:, :3],
            numbers[:, 3:6],
            numbers[:, 6:],
            table.velocities[part],
            [CLASSES[number] for number in table.class_id[part]],
            table.instance[part],
            table.attribute[part],
            table.points[part],
        )

    def bicycle_racks(self, sample: str) -> Matrix:
        """Return (K, 7) float64 boxes of a sample's bicycle racks in the global frame."""
        table = self._annotations
        numbers = table.rack_numbers[table.rack_sample == self.sample_rows[sample]]
        # Yaw is the direction of the x axis on the ground.
        x, y, z, w = numbers[:, 6:].T
        yaw = np.arctan2(2 * (x * y + w * z), w * w + x * x - y * y - z * z)
        return np.column_stack([numbers[:, :6], yaw])

    @cached_property
    def labelled(self) -> bool:
        """True if there are labels; the test set has none."""
        return bool(len(self._annotations.sample))

    @cached_property
    def _sight_records(self) -> dict[str, Record]:
        fields = ("token", "sample_token", "ego_pose_token", "calibrated_sensor_token", "timestamp")
        records = self._read("sample_data", (*fields, "is_key_frame", "filename", "prev"))
        kept = {record["token"]: record for record in records}
        return {
            token: record
            for token, record in kept.items()
            if self._channels.get(record["calibrated_sensor_token"]) in (LIDAR, CAMERA)
        }

    @cached_property
    def _mounts(self) -> dict[str, Record]:
        fields = ("token", "sensor_token", "translation", "rotation", "camera_intrinsic")
        return {record["token"]: record for record in self._read("calibrated_sensor", fields)}

    @cached_property
    def _channels(self) -> dict[str, str]:
        """Channel by token of a calibrated sensor."""
        sensors = {entry["token"]: entry["channel"] for entry in self._read("sensor", ("token", "channel"))}
        return {token: sensors.get(mount["sensor_token"], "") for token, mount in self._mounts.items()}

    @cached_property
    def _egos(self) -> dict[str, Record]:
        wanted = {record["ego_pose_token"] for record in self._sight_records.values()}
        records = self._read("ego_pose", ("token", "translation", "rotation"))
        return {record["token"]: record for record in records if record["token"] in wanted}

    @cached_property
    def _annotations(self) -> _Annotations:
        names = {entry["token"]: entry["name"] for entry in self._read("category", ("token", "name"))}
        instances = self._read("instance", ("token", "category_token"))
        rows = {entry["token"]: row for row, entry in enumerate(instances)}
        ids = np.array([_class_id(names.get(entry["category_token"], "")) for entry in instances], np.int64)
        attributes = {entry["token"]: entry["name"] for entry in self._read("attribute", ("token", "name"))}
        fields = (
            "token",
            "sample_token",
            "instance_token",
            "translation",
            "size",
            "rotation",
            "prev",
            "next",
        )
        records = self._read("sample_annotation", (*fields, "attribute_tokens", "num_lidar_pts"))
        sample = np.array([self._row(self.sample_rows, "sample", entry) for entry in records], np.int64)
        instance = np.array([self._row(rows, "instance", entry) for entry in records], np.int64)
        numbers = np.array(
            [(*entry["translation"], *entry["size"], *entry["rotation"]) for entry in records], np.float64
        ).reshape(-1, 10)
        places = {entry["token"]: row for row, entry in enumerate(records)}
        velocities = self._velocities(numbers[:, :3], sample, places, records)
        # The tables have width, length, height, and quaternions w, x, y, z.
        numbers = numbers[:, [0, 1, 2, 4, 3, 5, 7, 8, 9, 6]]
        judged, rack = ids[instance] >= 0, ids[instance] == _RACK_ID
        order = np.flatnonzero(judged)[np.argsort(sample[judged], kind="stable")]
        points = [entry["num_lidar_pts"] + entry.get("num_radar_pts", 0) for entry in records]
        named = [
            next((attributes.get(token, "") for token in entry["attribute_tokens"]), "") for entry in records
        ]
        return _Annotations(
            sample[order],
            numbers[order],
            velocities[order],
            ids[instance][order],
            instance[order],
            [named[row] for row in order],
            np.array(points, np.int64)[order],
            sample[rack],
            numbers[rack],
        )

    def _velocities(
        self,
        centres: Matrix,
        sample: npt.NDArray[np.int64],
        places: dict[str, int],
        records: Sequence[Record],
    ) -> Matrix:
        """Return (N, 3) velocities between the annotations before and after, or to the only neighbour."""
        own = np.arange(len(records))
        before, after = (
            np.array([places.get(entry[key], row) for row, entry in enumerate(records)], np.int64)
            for key in ("prev", "next")
        )
        seconds = np.array([entry["timestamp"] for entry in self.samples], np.int64)[sample] * 1e-6
        passed = (seconds[after] - seconds[before])[:, None]
        most = np.where((before != own) & (after != own), 2 * _MOST_S, _MOST_S)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            made: Matrix = (centres[after] - centres[before]) / passed
        return np.where((passed > 0) & (passed <= most), made, np.nan)

    def _row(self, rows: dict[str, int], table: str, entry: Record) -> int:
        token = entry[f"{table}_token"]
        if token not in rows:
            raise DataError(
                f"{self.folder / 'sample_annotation.json'}: {entry['token']} refers to {table} {token!r},"
                f" which {table}.json does not have. Copy all tables of one version."
            )
        return rows[token]

    def _named(self, records: dict[str, Record], table: str, token: str, by: str) -> Record:
        if token not in records:
            raise DataError(
                f"{self.folder / table}.json: no record {token!r}, which {by} refers to. Copy all tables of"
                " one version."
            )
        return records[token]

    def _rigid(self, record: Record, table: str) -> Matrix:
        place = f"{self.folder / table}.json: {record['token']}"
        made = np.eye(4)
        try:
            w, x, y, z = record["rotation"]
            made[:3, :3] = Rotation.from_quat([x, y, z, w]).as_matrix()
            made[:3, 3] = record["translation"]
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{place}: invalid rotation (w, x, y, z) or translation ({error}). Copy the table again."
            ) from error
        if not np.isfinite(made).all():
            raise DataError(f"{place}: rotation or translation is not finite. Copy the table again.")
        return made

    def _read(self, name: str, fields: Iterable[str]) -> list[Record]:
        path = self.folder / f"{name}.json"
        try:
            records = json.loads(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: reading failed ({error.strerror}). Copy the table again.") from error
        except ValueError as error:
            raise DataError(f"{path}: not valid JSON ({error}). Copy the table again.") from error
        if not isinstance(records, list):
            raise DataError(f"{path}: not a list of records. Copy the table again.")
        wanted = tuple(fields)
        for number, record in enumerate(records):
            missing = [field for field in wanted if not isinstance(record, dict) or field not in record]
            if missing:
                raise DataError(f"{path}: record {number} has no {missing[0]!r}. Copy the table again.")
        return records


def _class_id(category: str) -> int:
    if category == BICYCLE_RACK:
        return _RACK_ID
    name = CLASS_OF_CATEGORY.get(category)
    return -1 if name is None else CLASSES.index(name)


@lru_cache(maxsize=2)
def tables_of(folder: Path) -> Tables:
    """Return the tables of a version, cached for all scans of the data set."""
    return Tables(folder)
