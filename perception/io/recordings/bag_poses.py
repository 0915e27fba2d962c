"""Sensor poses from the odometry, poses or transforms of a recording, interpolated in time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.recordings import foxglove, ros
from perception.io.recordings.bags import Bag, Topic, join_names
from perception.io.recordings.stamped import StampedTransform
from perception.io.recordings.trajectory import Trajectory

_POSES = (ros.ODOMETRY, *ros.POSES, foxglove.POSE)
_TRANSFORMS = (ros.TRANSFORMS, *foxglove.TRANSFORMS)
POSE_TYPES = (*_POSES, *_TRANSFORMS)
#: Topics whose transforms hold at any time.
_STATIC = "tf_static"
_Matrix = npt.NDArray[np.float64]


class BagPoses:
    """Sensor poses of a recording, which is read once.

    Odometry and poses describe the robot. Static transforms give the sensor's position on it; without them,
    the sensor is assumed at the robot's origin.

    Args:
        bag: open recording.
        topic: topic of odometry, poses or transforms. The default is the only topic with odometry or poses,
            else all topics with transforms.
        sensor: the recording's name of the sensor's frame.

    Raises:
        DataError: the topic does not exist, there are no poses, or several topics have some.
    """

    def __init__(self, bag: Bag, topic: str | None = None, *, sensor: str = "") -> None:
        self.bag = bag
        chosen = pose_topics(bag, topic)
        self.topics = tuple(one.name for one in chosen)
        given, statics = _read(bag, chosen)
        self._edges: dict[str, tuple[str, Trajectory]] = {}
        for child, found in {**statics, **given}.items():
            static = child not in given
            parent = found[-1].parent
            self._edges[child] = (
                parent,
                Trajectory([one for one in found if one.parent == parent], static=static),
            )
        self._start = self._start_of(chosen, sensor)
        self.frame_id = self._chain(self._start)[-1]
        if self.frame_id == self._start:
            known = join_names(sorted(self._edges)) or "none"
            raise DataError(
                f"{bag.path}: {join_names(self.topics)}: no transform leads to the sensor's frame {sensor!r};"
                f" frames: {known}. Choose a topic of poses with --pose-topic."
            )

    def at(self, time_ns: int) -> _Matrix | None:
        """Return (4, 4) float64 map_from_lidar at a time, or None without a pose within a second."""
        made, child = np.eye(4), self._start
        while child in self._edges:
            child, track = self._edges[child]
            here = track.at(time_ns)
            if here is None:
                return None
            made = here @ made
        return made

    def _chain(self, frame: str) -> list[str]:
        """Return a frame and its ancestors; raise ``DataError`` for a cycle."""
        frames = [frame]
        while frames[-1] in self._edges:
            frames.append(self._edges[frames[-1]][0])
            if len(set(frames)) < len(frames):
                raise DataError(
                    f"{self.bag.path}: transforms form a cycle: {' -> '.join(frames)[:1000]}. Choose a topic"
                    " of poses with --pose-topic."
                )
        return frames

    def _start_of(self, chosen: list[Topic], sensor: str) -> str:
        """Return the frame at which the chain starts: the sensor, or the robot if it is not connected."""
        if chosen[0].type in _TRANSFORMS:
            return sensor
        robot = next(child for child in self._edges if self._edges[child][1].static is False)
        return sensor if robot in self._chain(sensor) else robot


def pose_topics(bag: Bag, name: str | None = None) -> list[Topic]:
    """Choose the topics of poses; raise ``DataError`` as ``BagPoses`` does."""
    if name is not None:
        chosen = next((topic for topic in bag.topics if topic.name == name), None)
        if chosen is None or chosen.type not in POSE_TYPES or not chosen.size:
            what = "no topic" if chosen is None else f"no poses ({chosen.type}, {chosen.size}) in topic"
            raise DataError(
                f"{bag.path}: {what} {name!r}. Choose another with --pose-topic; topics: {bag.described()}"
            )
        return [chosen]
    poses = bag.topics_of(_POSES)
    if len(poses) > 1:
        names = join_names(f"{topic.name} ({topic.type})" for topic in poses)
        raise DataError(f"{bag.path}: {len(poses)} topics hold poses: {names}. Choose one with --pose-topic.")
    found = poses or bag.topics_of(_TRANSFORMS)
    if all(topic.name.endswith(_STATIC) for topic in found):
        raise DataError(
            f"{bag.path}: no poses; expected {', '.join(POSE_TYPES[:2])} or {ros.TRANSFORMS} messages. Name a"
            f" pose file with --poses; topics: {bag.described()}"
        )
    return found


def _read(
    bag: Bag, chosen: list[Topic]
) -> tuple[dict[str, list[StampedTransform]], dict[str, list[StampedTransform]]]:
    """Read moving and static transforms, by the name of their child frame."""
    moving: dict[str, list[StampedTransform]] = {}
    static: dict[str, list[StampedTransform]] = {}
    fixed = {topic.name for topic in bag.topics_of(_TRANSFORMS) if topic.name.endswith(_STATIC)}
    names = {topic.name for topic in chosen}
    for one, topic in _transforms(bag, names | fixed):
        (static if topic in fixed else moving).setdefault(one.child, []).append(one)
    if not moving and not static:
        raise DataError(
            f"{bag.path}: topics {join_names(sorted(names))} hold no poses. Name a pose file with --poses."
        )
    if chosen[0].type in _POSES and len(moving) > 1:
        raise DataError(
            f"{bag.path}: topic {chosen[0].name} has poses of several frames: {join_names(sorted(moving))}."
            " Choose another with --pose-topic."
        )
    return moving, {child: found for child, found in static.items() if child not in moving}


def _transforms(bag: Bag, names: set[str]) -> Iterator[tuple[StampedTransform, str]]:
    counts: dict[str, int] = {}
    for message in bag.messages(names):
        name = message.topic.name
        place = f"{bag.path}: topic {name}, message {counts.get(name, 0)}"
        counts[name] = counts.get(name, 0) + 1
        decode = (
            foxglove.foxglove_transforms if message.topic.type.startswith("foxglove.") else ros.ros_transforms
        )
        for one in decode(message, place):
            yield one, name
