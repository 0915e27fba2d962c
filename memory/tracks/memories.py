"""Tracks of a recording, turned into memories when they end."""

from __future__ import annotations

from memory.tracks.collection import Sights, TrackSamples
from memory.tracks.stories import TrackOptions, memories_of
from memory.types import Memory, check_text


class TrackMemories:
    """Collects observations of the tracks of a recording; returns memories of ended tracks.

    >>> things = TrackMemories("2026-11-23 morning")
    >>> for tracks, time_ns in tracked:  # From a Tracker with poses.
    ...     seen = tracks[tracks.row >= 0]
    ...     sights = Sights(
    ...         time_ns=time_ns, track_id=seen.track_id, boxes=seen.map_boxes, labels=seen.labels,
    ...         scores=seen.scores, velocities=seen.velocity,
    ...     )
    ...     store.observe(things.see(sights))
    >>> store.observe(things.end())

    A static object becomes a memory of kind ``"object"`` at the weighted mean of its positions. A motion
    becomes one of kind ``"event"``. Its payload has the start and end (``from``, ``to``: x, y, z), the
    trajectory ``way`` (seconds since its start, x, y), ``length_m`` and ``speed_m_s``. A track that stood,
    moved and stood again gives three memories; the first object is ``"moved"``. The payload of all has
    ``tracks``: ``recording/number`` -> first and last nanosecond. Tracks of a recording that overlap in time
    are never merged into one object.

    Args:
        recording: name of the recording, unique within a store.
        map_id: map of the memories.
        provenance: source of the memories.
        options: how tracks become memories.

    Attributes:
        unsure: number of observations of tracks without a memory, because they were too few.

    Raises:
        ValueError: the recording has no name.
    """

    def __init__(
        self,
        recording: str,
        *,
        map_id: str = "default",
        provenance: str = "tracker",
        options: TrackOptions | None = None,
    ) -> None:
        if not check_text("recording", recording):
            raise ValueError("recording needs a name, because track ids are unique only within a recording")
        self.recording, self.options = recording, options or TrackOptions()
        self._map_id, self._provenance = map_id, provenance
        self._tracks: dict[int, TrackSamples] = {}
        self._time_ns: int | None = None
        self.unsure = 0

    def __len__(self) -> int:
        """Return the number of active tracks."""
        return len(self._tracks)

    def see(self, sights: Sights) -> list[Memory]:
        """Add the observations of a moment; return memories of ended and very long tracks.

        Raises:
            ValueError: time goes backwards.
        """
        now = sights.time_ns
        if self._time_ns is not None and now < self._time_ns:
            raise ValueError(f"time_ns must not go backwards, got {now} after {self._time_ns}")
        self._time_ns = now
        ended_ns, long_ns = 1e9 * self.options.ended_s, 1e9 * self.options.at_most_s
        found = self._take([number for number, one in self._tracks.items() if now - one.last_ns > ended_ns])
        for row, number in enumerate(sights.track_id):
            self._tracks.setdefault(int(number), TrackSamples()).add(sights, row)
        long = [number for number, one in self._tracks.items() if now - one.times_ns[0] >= long_ns]
        return found + self._take(long)

    def end(self) -> list[Memory]:
        """End all tracks and return their memories; another recording may follow."""
        self._time_ns = None
        return self._take(list(self._tracks))

    def _take(self, numbers: list[int]) -> list[Memory]:
        found = []
        for number in numbers:
            track = self._tracks.pop(number)
            memories = memories_of(
                track,
                f"{self.recording}/{number}",
                map_id=self._map_id,
                provenance=self._provenance,
                options=self.options,
            )
            self.unsure += 0 if memories else track.sights
            found += memories
        return found
