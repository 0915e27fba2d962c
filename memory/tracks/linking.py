"""Track numbers for boxes that have none: boxes of one object in consecutive frames get one number.

Detectors report boxes without identities. One memory per box would count a parked car as often as it was
seen, and a cyclist as a row of parked ones. ``perceive track`` gives better identities, because it follows
velocities and scores with a filter; this module covers detections that nobody tracked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.tracks.stories import TrackOptions

#: Error of a predicted position, in metres, and acceleration of an object, in m/s².
_NOISE_M, _GAINS_M_S2 = 1.0, 5.0
#: Speed of an object that was seen once, its largest step, and that of an object whose speed is known.
_FASTEST_M_S, _FARTHEST_M, _WIDEST_M = 20.0, 8.0, 4.0
#: Time over which a speed is measured, and time by which a short measurement is damped.
_OVER_S, _DAMPED_S = 0.5, 0.1
#: Boxes of different classes are one object only if their sides differ by less than this factor.
_OTHER_SIZE = 1.5
#: Distance in metres that another class costs.
_OTHER_CLASS_M = 0.5
#: A track with one box ends after this time, because it is often a false alarm.
_ONCE_S = 0.7


@dataclass
class _Link:
    """A track so far: its number, and the boxes of the last half second.

    Attributes:
        label: class of the last box.
        times_ns, places: of the boxes, in order.
        size: length and width of the last box in metres.
    """

    number: int
    label: str
    times_ns: list[int]
    places: list[NDArray[np.float64]]
    size: NDArray[np.float64]

    def velocity(self) -> NDArray[np.float64] | None:
        """Return metres per second, damped if it was measured over a short time; ``None`` of one box."""
        took_s = (self.times_ns[-1] - self.times_ns[0]) / 1e9
        if took_s <= 0.0:
            return None
        moved: NDArray[np.float64] = (self.places[-1] - self.places[0]) / (took_s + _DAMPED_S)
        return moved

    def add(self, time_ns: int, box: NDArray[np.float64], label: str) -> None:
        """Add a box, and drop those that are too old for the speed."""
        self.label, self.size = label, box[3:5]
        self.times_ns.append(time_ns)
        self.places.append(box[:2])
        while len(self.times_ns) > 2 and time_ns - self.times_ns[0] > _OVER_S * 1e9:
            del self.times_ns[0], self.places[0]


class BoxLinker:
    """Numbers the objects of a recording; feed it the frames in order of time.

    A box continues the track whose predicted position is closest, if it lies within the gate of the track.
    The gate is the noise of a position plus what an acceleration adds. Pairs are chosen in order of their
    distance, so results do not depend on the order of the boxes, except for boxes at one place.

    Args:
        options: ``ended_s`` decides when a track has ended.
    """

    def __init__(self, options: TrackOptions | None = None) -> None:
        self._ended_ns = round((options or TrackOptions()).ended_s * 1e9)
        self._links: list[_Link] = []
        self._next = 1

    def restart(self) -> None:
        """End all tracks; numbers go on."""
        self._links = []

    def link(self, time_ns: int, boxes: NDArray[np.float64], labels: Sequence[str]) -> list[int]:
        """Return the number of the track of each box, and remember the boxes.

        Args:
            time_ns: of the frame, not before the last one.
            boxes: (n, 7) in the map: x, y, z, length, width, height, yaw, in metres and radians.
            labels: n class names.
        """
        once_ns = min(round(_ONCE_S * 1e9), self._ended_ns)
        self._links = [
            link
            for link in self._links
            if time_ns - link.times_ns[-1] <= (self._ended_ns if len(link.times_ns) > 1 else once_ns)
        ]
        found: list[_Link | None] = [None] * len(boxes)
        taken: set[int] = set()
        for _, row, at in sorted(self._pairs(time_ns, boxes, labels)):
            if found[row] is None and at not in taken:
                found[row] = self._links[at]
                taken.add(at)
        for row, label in enumerate(labels):
            link = found[row]
            if link is None:
                link = found[row] = _Link(self._next, label, [], [], boxes[row, 3:5])
                self._links.append(link)
                self._next += 1
            link.add(time_ns, boxes[row], label)
        return [link.number for link in found if link is not None]

    def _pairs(
        self, time_ns: int, boxes: NDArray[np.float64], labels: Sequence[str]
    ) -> list[tuple[float, int, int]]:
        """Return distance in metres, box and track of all pairs that may be one object."""
        pairs = []
        for at, link in enumerate(self._links):
            ahead_s = (time_ns - link.times_ns[-1]) / 1e9
            velocity = link.velocity()
            if velocity is None:
                place, gate_m = link.places[-1], _NOISE_M + _FASTEST_M_S * ahead_s
            else:
                place = link.places[-1] + velocity * ahead_s
                gate_m = min(_NOISE_M + 0.5 * _GAINS_M_S2 * ahead_s**2, _WIDEST_M)
            away = np.hypot(*(boxes[:, :2] - place).T)
            for row in np.flatnonzero(away < gate_m).tolist():
                cost = float(away[row])
                if labels[row] != link.label:
                    cost += _OTHER_CLASS_M
                    if cost >= gate_m or not _are_alike(boxes[row, 3:5], link.size):
                        continue
                pairs.append((cost, row, at))
        return pairs


def _are_alike(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """True if length and width of two boxes are similar."""
    return all(
        max(a, b) < _OTHER_SIZE * max(min(a, b), 1e-6)
        for a, b in zip(one.tolist(), other.tolist(), strict=True)
    )
