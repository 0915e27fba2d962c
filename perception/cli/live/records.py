"""Records of a live run, in the format of ``perceive track``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perception.cli.scans.surroundings import Surroundings
from perception.live import Delivery, Result

Writer = Callable[[dict[str, Any], int], None]


class Records:
    """A sink that turns results into records.

    Args:
        surroundings: adds fields.
        writers: called with each record and the number of restarts of the tracker.
        at_end: called at the end.
        predict_s: adds the tracks at the time of delivery, plus these seconds; None adds nothing.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        writers: Sequence[Writer],
        at_end: Sequence[Callable[[], None]] = (),
        *,
        predict_s: float | None = None,
    ) -> None:
        self._surroundings, self._writers, self._at_end = surroundings, tuple(writers), tuple(at_end)
        self._predict_s = predict_s

    def take(self, result: Result) -> None:
        """Pass the record of a result to the writers."""
        arrival, pose = result.arrival, result.pose
        record = {
            "frame": arrival.name,
            **result.tracks.to_dict(),
            "source": arrival.cloud.source or arrival.name,
            "time_ns": arrival.cloud.timestamp_ns,
            "latency_ms": round(result.latency_s * 1e3, 2),
            "limits_reached": list(result.found.limits_reached),
            **({} if pose is None else {"pose": pose.to_dict()}),
            **self._surroundings.fields(result.found),
            **self._surroundings.places(arrival.cloud),
        }
        if self._predict_s is not None:
            record["delivery"] = delivery_fields(result.deliver(self._predict_s))
        for write in self._writers:
            write(record, result.restarts)

    def close(self) -> None:
        """Call the functions for the end."""
        for end in self._at_end:
            end()


def delivery_fields(delivery: Delivery) -> dict[str, Any]:
    """Return the field ``delivery`` of a record: boxes at the time of delivery, with their uncertainty."""
    tracks = delivery.tracks
    return {
        "time_ns": tracks.timestamp_ns,
        "latency_ms": round(delivery.age_s * 1e3, 2),
        "map_from_lidar": tracks.pose[:3].tolist(),
        "track_id": tracks.track_id.tolist(),
        "labels": tracks.labels,
        "boxes": [[round(float(value), 4) for value in box] for box in tracks.boxes],
        "radius_m": [round(float(value), 4) for value in tracks.radius_m()],
        "warnings": list(tracks.warnings),
    }
