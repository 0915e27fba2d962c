"""Tracks of a recording as they come, and memories of those that ended."""

from __future__ import annotations

from memory.tracks.collection import Gathered, Sights
from memory.tracks.stories import TrackOptions, memories_of
from memory.types import Memory, check_text


class TrackMemories:
    """Gathers the sights of one recording's tracks; gives memories of those that ended.

    >>> things = TrackMemories("2026-11-23 morning")
    >>> for tracks, time_ns in tracked:  # by a tracker that was told the poses
    ...     seen = tracks[tracks.row >= 0]
    ...     sights = Sights(
    ...         time_ns=time_ns, track_id=seen.track_id, boxes=seen.map_boxes, labels=seen.labels,
    ...         scores=seen.scores,
    ...     )
    ...     store.observe(things.see(sights))
    >>> store.observe(things.end())

    What stood is a memory of kind ``"object"``: at the mean of its places, weighted by how sure each is, with
    all of its sights. What moved is one of kind ``"event"``, an episode, whose payload has where it came from
    and went (``from``, ``to``: x, y, z), its ``way`` (seconds since its begin, x, y), ``length_m`` and
    ``speed_m_s``. A track that stood, moved and stood again is three memories; what it left is ``"moved"``.
    The payload of all has ``tracks``: ``recording/number`` -> the first and the last nanosecond. Two tracks
    of a recording that were seen at one time are never taken for one thing.

    Args:
        recording: what the numbers of tracks belong to; not the same for two recordings of a store.
        map_id: of the memories.
        provenance: who says so.
        options: the defaults where not given.

    Raises:
        ValueError: a recording without a name.
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
            raise ValueError("recording must be named: numbers of tracks mean nothing without")
        self.recording, self.options = recording, options or TrackOptions()
        self._map_id, self._provenance = map_id, provenance
        self._tracks: dict[int, Gathered] = {}
        self._time_ns: int | None = None

    def __len__(self) -> int:
        """Tracks that go on."""
        return len(self._tracks)

    def see(self, sights: Sights) -> list[Memory]:
        """Take in a moment; returns memories of the tracks that have ended by then, and of very long ones.

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
            self._tracks.setdefault(int(number), Gathered()).add(sights, row)
        long = [number for number, one in self._tracks.items() if now - one.times_ns[0] >= long_ns]
        return found + self._take(long)

    def end(self) -> list[Memory]:
        """Memories of all tracks that go on: the recording is over, and another may begin."""
        self._time_ns = None
        return self._take(list(self._tracks))

    def _take(self, numbers: list[int]) -> list[Memory]:
        return [
            memory
            for number in numbers
            for memory in memories_of(
                self._tracks.pop(number),
                f"{self.recording}/{number}",
                map_id=self._map_id,
                provenance=self._provenance,
                options=self.options,
            )
        ]
