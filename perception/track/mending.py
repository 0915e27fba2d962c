"""What a recording tells of its tracks once more of it is known: joined, filled, smoothed and judged anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.track.association import Pairs, assign
from perception.track.config import Parameters
from perception.track.lifecycle import belief
from perception.track.nearby import nearby, unseen
from perception.track.poses import inverse, moved_boxes
from perception.track.smoothing import Noise, Smoothed, Spans, smooth
from perception.track.state import (
    BOX,
    HITS,
    LABEL,
    ROW,
    SPREAD,
    TRACK_ID,
    VELOCITY,
    BoolArray,
    Float64Array,
    Int64Array,
    TrackState,
)
from perception.track.tracker import Sightings
from perception.track.tracks import Tracks, tracks_of
from perception.types import EMBEDDING_DIM


class Seen(NamedTuple):
    """All boxes of tracks in a stretch of frames, by track and in each by frame; (S,) each.

    Attributes:
        track: number of the track, from 0.
        frame: number of the frame in the stretch.
        box: (S, 7) in one map for all frames.
        score: log-odds.
        label: number of the class.
        row: of the detection.
        hits, mean: boxes of the track until then, and the mean of their scores.
    """

    track: Int64Array
    frame: Int64Array
    box: Float64Array
    score: Float64Array
    label: Int64Array
    row: Int64Array
    hits: Int64Array
    mean: Float64Array

    def rows(self, which: npt.NDArray[Any], track: Int64Array) -> Seen:
        """Those of a mask, or of numbers in their order, with other numbers of tracks."""
        columns: dict[str, Any] = {name: values[which] for name, values in self._asdict().items()}
        return Seen(**columns | {"track": track[which]})


@dataclass(frozen=True, eq=False)
class Mended:
    """Tracks over a stretch of frames, a row for each frame from the first box to the last.

    Attributes:
        ids: (K,) identity of each track.
        spans: its rows.
        smoothed: what is known of them.
        frame: (R,) number of the frame.
        box: (R, 7) in the map, smoothed.
        row: (R,) of the detection, or -1.
        label, hits: (K,).
        odds: (R,) log-odds, means of the boxes within a second.
        told: (R,) whether it is believed in there.
        missed_s: (R,) since it was seen.
        gap_s: (R,) from the box before to the box after; 0 where there is one.
        embeddings: (K, 128) float32 mean directions of the vectors of boxes; zeros without.
        poses: (F, 4, 4) of the frames, in that map.
    """

    ids: Int64Array
    spans: Spans
    smoothed: Smoothed
    frame: Int64Array
    box: Float64Array
    row: Int64Array
    label: Int64Array
    hits: Int64Array
    odds: Float64Array
    told: BoolArray
    missed_s: Float64Array
    gap_s: Float64Array
    embeddings: npt.NDArray[np.float32]
    poses: Float64Array

    @cached_property
    def owner(self) -> Int64Array:
        """(R,) number of the track."""
        return np.repeat(np.arange(len(self.ids)), self.spans.length)

    @cached_property
    def by_frame(self) -> list[Int64Array]:
        """The rows of each frame."""
        order = np.argsort(self.frame, kind="stable")
        return np.split(order, np.searchsorted(self.frame[order], np.arange(1, len(self.poses))))


def mend(frames: Sequence[Sightings], parameters: Parameters, *, join: bool) -> Mended:
    """Tracks of a stretch of frames.

    Args:
        frames: in their order.
        parameters: of the classes.
        join: also make one of fragments that continue each other.
    """
    ids, seen, poses = _gathered(frames)
    times = np.array([frame.time_ns for frame in frames], np.int64)
    if join and len(ids):
        ids, seen = _joined(ids, seen, times, parameters)
    spans, rows_of_seen, frame = _spans(seen, times)
    first = np.searchsorted(seen.track, np.arange(len(ids)))
    last = np.searchsorted(seen.track, np.arange(len(ids)), side="right") - 1
    label = seen.label[first]
    smoothed = smooth(spans, _noise(parameters, label))
    counts = (last - first + 1).astype(np.float64)
    if join:
        hits = counts.astype(np.int64)
        mean = np.add.reduceat(seen.score, first) / counts if len(ids) else counts
    else:
        hits, mean = seen.hits[last], seen.mean[last]
    owner = np.repeat(np.arange(len(ids)), spans.length)
    known = np.zeros((len(frame), 4))
    known[rows_of_seen, 0], known[rows_of_seen, 1:] = seen.score, seen.box[:, 3:6]
    near = nearby(known, spans, frame, times)
    box = np.concatenate([smoothed.centre, near[:, 1:], smoothed.yaw[:, None]], axis=1)
    range_m = np.sqrt(((box[:, :2] - poses[frame][:, :2, 3]) ** 2).sum(1))
    believed = belief(
        parameters, label[owner], near[:, 0], mean[owner], hits[owner].astype(np.float64), range_m
    )
    row = np.full(len(frame), -1, np.int64)
    row[rows_of_seen] = seen.row
    missed_s, gap_s = unseen(spans.seen, times[frame])
    return Mended(
        ids,
        spans,
        smoothed,
        frame,
        box,
        row,
        label,
        hits,
        near[:, 0],
        believed >= parameters.column("mend_from")[label[owner]],
        missed_s,
        gap_s,
        _directions(frames, seen, len(ids)),
        poses,
    )


def tell(mended: Mended, number: int, frame: Sightings, parameters: Parameters) -> Tracks:
    """The tracks of a frame.

    Args:
        mended: of the stretch.
        number: of the frame in it.
        frame: what was seen in it.
        parameters: of the classes.
    """
    rows = mended.by_frame[number]
    track = mended.owner[rows]
    fine = mended.told[rows] & (mended.gap_s[rows] <= parameters.column("join_s")[mended.label[track]] + 1e-6)
    rows, track = rows[fine], track[fine]
    order = np.lexsort((mended.ids[track], -mended.odds[rows]))
    rows, track = rows[order], track[order]
    state = TrackState.of(len(rows))
    state.numbers[:, BOX] = mended.box[rows]
    # The same, but where the map began anew later on.
    turn = frame.pose[:3, :3] @ mended.poses[number][:3, :3].T
    state.numbers[:, VELOCITY] = mended.smoothed.velocity[rows] @ turn.T
    state.numbers[:, SPREAD] = mended.smoothed.spread[rows]
    columns = {
        TRACK_ID: mended.ids[track],
        LABEL: mended.label[track],
        HITS: mended.hits[track],
        ROW: mended.row[rows],
    }
    for column, values in columns.items():
        state.counts[:, column] = values
    state.embeddings[:] = mended.embeddings[track]
    boxes = moved_boxes(state.numbers[:, BOX], inverse(mended.poses[number]))
    return tracks_of(
        state,
        boxes,
        mended.odds[rows],
        mended.missed_s[rows],
        parameters=parameters,
        pose=frame.pose,
        time_ns=frame.time_ns if frame.stamped else None,
        warnings=frame.warnings,
        detections=frame.detections,
    )


def _gathered(frames: Sequence[Sightings]) -> tuple[Int64Array, Seen, Float64Array]:
    """Identities, boxes by track and frame, and poses, in the map of the last frame."""
    poses = np.zeros((len(frames), 4, 4))
    boxes: list[Float64Array] = []
    shift = np.eye(4)
    for number in range(len(frames) - 1, -1, -1):
        frame = frames[number]
        poses[number] = shift @ frame.pose
        boxes.append(
            moved_boxes(frame.boxes.map_boxes[frame.which], shift) if frame.which.size else np.zeros((0, 7))
        )
        if frame.shift is not None:
            shift = shift @ frame.shift
    track_id = np.concatenate([frame.track_id for frame in frames])
    count = [len(frame.track_id) for frame in frames]
    number_of = np.repeat(np.arange(len(frames)), count)
    order = np.lexsort((number_of, track_id))
    ids, track = np.unique(track_id[order], return_inverse=True)
    seen = Seen(
        track,
        number_of[order],
        np.concatenate(boxes[::-1])[order],
        np.concatenate([frame.boxes.score[frame.which] for frame in frames])[order],
        np.concatenate([frame.boxes.labels[frame.which] for frame in frames])[order],
        np.concatenate([frame.boxes.row[frame.which] for frame in frames])[order],
        np.concatenate([frame.hits for frame in frames])[order],
        np.concatenate([frame.mean_score for frame in frames])[order],
    )
    return ids, _once(seen), poses


def _once(seen: Seen) -> Seen:
    """One box a track and frame: a moment that was looked at twice counts as its last look."""
    if len(seen.track) < 2:
        return seen
    last = np.ones(len(seen.track), np.bool_)
    last[:-1] = (seen.track[1:] != seen.track[:-1]) | (seen.frame[1:] != seen.frame[:-1])
    return seen.rows(last, seen.track)


def _spans(seen: Seen, times: Int64Array) -> tuple[Spans, Int64Array, Int64Array]:
    """Rows from the first box of each track to its last, those that have boxes, and the frame of each."""
    count = int(seen.track[-1]) + 1 if len(seen.track) else 0
    tracks = np.arange(count)
    first = seen.frame[np.searchsorted(seen.track, tracks)] if count else tracks
    last = seen.frame[np.searchsorted(seen.track, tracks, side="right") - 1] if count else tracks
    length = last - first + 1
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])[:-1] if count else tracks
    total = int(length.sum())
    owner = np.repeat(tracks, length)
    frame = np.arange(total) - start[owner] + first[owner]
    at = start[seen.track] + seen.frame - first[seen.track]
    has, centre, yaw = np.zeros(total, np.bool_), np.zeros((total, 3)), np.zeros(total)
    has[at], centre[at], yaw[at] = True, seen.box[:, :3], seen.box[:, 6]
    seconds = np.zeros(total)
    seconds[1:] = (times[frame[1:]] - times[frame[:-1]]) * 1e-9
    seconds[start] = 0.0
    return Spans(start, length, seconds, has, centre, yaw), at, frame


def _noise(parameters: Parameters, label: Int64Array) -> Noise:
    columns = (
        parameters.noise,
        parameters.yaw_noise,
        parameters.speed_noise,
        parameters.density,
        parameters.turning,
    )
    return Noise(*(column[label] for column in columns))


def _directions(frames: Sequence[Sightings], seen: Seen, count: int) -> npt.NDArray[np.float32]:
    """(K, 128) mean direction of the vectors of each track's boxes."""
    total = np.zeros((count, EMBEDDING_DIM), np.float32)
    edges = np.searchsorted(np.sort(seen.frame), np.arange(len(frames) + 1))
    order = np.argsort(seen.frame, kind="stable")
    for number, frame in enumerate(frames):
        vectors = frame.detections.embeddings
        if vectors is not None:
            rows = order[edges[number] : edges[number + 1]]
            total[seen.track[rows]] += vectors[seen.row[rows]]
    length = np.sqrt((total * total).sum(1, keepdims=True))
    return np.asarray(total / np.where(length > 0, length, 1.0), np.float32)


def _joined(
    ids: Int64Array, seen: Seen, times: Int64Array, parameters: Parameters
) -> tuple[Int64Array, Seen]:
    """Fragments that continue each other under the identity of the first."""
    spans, _, frame = _spans(seen, times)
    label = seen.label[np.searchsorted(seen.track, np.arange(len(ids)))]
    smoothed = smooth(spans, _noise(parameters, label))
    head, tail = spans.start, spans.start + spans.length - 1
    begins, ends = times[frame[head]], times[frame[tail]]
    column = parameters.column
    longest_ns = (column("join_s") * 1e9)[label]
    order = np.argsort(begins, kind="stable")
    low = np.searchsorted(begins[order], ends, side="right")
    high = np.searchsorted(begins[order], ends + longest_ns, side="right")
    first = np.repeat(np.arange(len(ids)), np.maximum(0, high - low))
    within = np.arange(len(first)) - np.repeat(np.cumsum(high - low) - (high - low), high - low)
    second = order[low[first] + within] if len(first) else first
    gap_s = (begins[second] - ends[first]) * 1e-9
    there, here = smoothed.centre[head[second]], smoothed.centre[tail[first]]
    forward = here + gap_s[:, None] * smoothed.velocity[tail[first]] - there
    backward = there - gap_s[:, None] * smoothed.velocity[head[second]] - here
    apart = (np.sqrt((forward[:, :2] ** 2).sum(1)) + np.sqrt((backward[:, :2] ** 2).sum(1))) / 2
    gate = column("gate_m")[label[first]] + column("gate_growth_m_s")[label[first]] * gap_s
    fine = (label[first] == label[second]) & (apart <= gate)
    found = assign(
        Pairs(first[fine], second[fine]),
        (apart / gate + gap_s)[fine],
        len(ids),
        len(ids),
        alone=1.0 + float(column("join_s").max()),
    )
    root = np.arange(len(ids))
    for before, after in sorted(
        zip(found.track.tolist(), found.box.tolist(), strict=True), key=lambda p: begins[p[1]]
    ):
        root[after] = root[before]
    kept, track = np.unique(root[seen.track], return_inverse=True)
    order = np.lexsort((seen.frame, track))
    return ids[kept], seen.rows(order, track)
