"""Refinement of recorded tracks with later frames: joined, interpolated, smoothed and re-scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.boxes import rotated_iou_pairs
from perception.rigid_motion import inverse
from perception.track.association import Pairs, assign, near_pairs
from perception.track.config import Parameters
from perception.track.lifecycle import belief
from perception.track.poses import moved_boxes
from perception.track.smoothing import Noise, SmoothedStates, Spans, smooth
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
from perception.track.tracker import FrameAssignment
from perception.track.tracks import Tracks, tracks_of
from perception.types import EMBEDDING_DIM

#: Boxes within this time are averaged.
_NEARBY_NS = 1_000_000_000


def mean_of_neighbours(
    known: Float64Array, spans: Spans, frame: Int64Array, times: Int64Array
) -> Float64Array:
    """Return (R, C) means of the boxes of each track within a second before and after.

    Rows of ``known`` without a box are zero. Without a box within a second, the nearest boxes count.
    """
    if not len(frame):
        return known
    rows = np.arange(len(frame))
    first = np.repeat(spans.start, spans.length)
    last = first + np.repeat(spans.length, spans.length) - 1
    low = rows - frame + np.searchsorted(times, times - _NEARBY_NS, side="left")[frame]
    high = rows - frame + np.searchsorted(times, times + _NEARBY_NS, side="right")[frame] - 1
    before, after = _neighbours(spans.seen)
    low = np.minimum(np.maximum(low, first), before)
    high = np.maximum(np.minimum(high, last), after)
    sums = np.concatenate([np.zeros((1, known.shape[1])), np.cumsum(known, axis=0)])
    count = np.concatenate([np.zeros(1), np.cumsum(spans.seen)])
    return np.asarray((sums[high + 1] - sums[low]) / (count[high + 1] - count[low])[:, None])


def time_since_seen(seen: BoolArray, time_ns: Int64Array) -> tuple[Float64Array, Float64Array]:
    """Return seconds since the box before, and from there to the box after; tracks start and end with
    boxes.
    """
    if not len(seen):
        return np.zeros(0), np.zeros(0)
    before, after = _neighbours(seen)
    since, gap = time_ns - time_ns[before], time_ns[after] - time_ns[before]
    return np.asarray(since * 1e-9), np.asarray(gap * 1e-9)


def frames_to_box(seen: BoolArray) -> Int64Array:
    """Return the (R,) number of rows to the nearest row with a box; 0 in rows with a box."""
    before, after = _neighbours(seen)
    rows = np.arange(len(seen))
    return np.asarray(np.minimum(rows - before, after - rows))


def _neighbours(seen: BoolArray) -> tuple[Int64Array, Int64Array]:
    """Return (R,) rows of the box before and the box after; a row with a box is its own neighbour."""
    rows = np.arange(len(seen))
    before = np.maximum.accumulate(np.where(seen, rows, 0))
    after = np.minimum.accumulate(np.where(seen, rows, len(rows) - 1)[::-1])[::-1]
    return before, after


#: An unseen box with more overlap (IoU from above) with a seen box is not reported.
_OVERLAP = 0.05


class TrackedBoxes(NamedTuple):
    """All boxes of tracks in a stretch of frames, sorted by track and frame; (S,) each.

    Attributes:
        track: track number, from 0.
        frame: frame number in the stretch.
        box: (S, 7) in one map for all frames.
        score: log-odds.
        label: class number.
        row: row of the detection.
        hits, mean: number of boxes of the track so far, and the mean of their scores.
    """

    track: Int64Array
    frame: Int64Array
    box: Float64Array
    score: Float64Array
    label: Int64Array
    row: Int64Array
    hits: Int64Array
    mean: Float64Array

    def rows(self, which: npt.NDArray[Any], track: Int64Array) -> TrackedBoxes:
        """Return rows of a mask or of numbers, with new track numbers."""
        columns: dict[str, Any] = {name: values[which] for name, values in self._asdict().items()}
        return TrackedBoxes(**columns | {"track": track[which]})


@dataclass(frozen=True, eq=False)
class RefinedTracks:
    """Tracks over a stretch of frames, with a row for each frame from the first box to the last.

    Attributes:
        ids: (K,) id of each track.
        spans: its rows.
        smoothed: smoothed states of all rows.
        frame: (R,) frame number.
        box: (R, 7) smoothed, in the map.
        row: (R,) row of the detection, or -1.
        label, hits: (K,).
        odds: (R,) log-odds, means of the boxes within a second.
        reported: (R,) True if the belief suffices for a report.
        missed_s: (R,) time since the last box.
        gap_s: (R,) time from the box before to the box after; 0 in rows with a box.
        embeddings: (K, 128) float32 mean directions of the boxes' embeddings; zeros without.
        poses: (F, 4, 4) of the frames, in that map.
    """

    ids: Int64Array
    spans: Spans
    smoothed: SmoothedStates
    frame: Int64Array
    box: Float64Array
    row: Int64Array
    label: Int64Array
    hits: Int64Array
    odds: Float64Array
    reported: BoolArray
    missed_s: Float64Array
    gap_s: Float64Array
    embeddings: npt.NDArray[np.float32]
    poses: Float64Array

    @cached_property
    def owner(self) -> Int64Array:
        """(R,) track number of each row."""
        return np.repeat(np.arange(len(self.ids)), self.spans.length)

    @cached_property
    def by_frame(self) -> list[Int64Array]:
        """Rows of each frame."""
        order = np.argsort(self.frame, kind="stable")
        return np.split(order, np.searchsorted(self.frame[order], np.arange(1, len(self.poses))))


def refine(frames: Sequence[FrameAssignment], parameters: Parameters, *, join: bool) -> RefinedTracks:
    """Refine the tracks of consecutive frames; ``join`` also joins fragments that continue each other."""
    ids, seen, poses = _gather(frames)
    times = np.array([frame.time_ns for frame in frames], np.int64)
    if join and len(ids):
        ids, seen = _join_fragments(ids, seen, times, parameters)
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
    near = mean_of_neighbours(known, spans, frame, times)
    box = np.concatenate([smoothed.centre, near[:, 1:], smoothed.yaw[:, None]], axis=1)
    range_m = np.sqrt(((box[:, :2] - poses[frame][:, :2, 3]) ** 2).sum(1))
    believed = belief(
        parameters, label[owner], near[:, 0], mean[owner], hits[owner].astype(np.float64), range_m
    )
    kind, column = label[owner], parameters.column
    # A single missing box is common; more of them are evidence against the object.
    missing = np.maximum(frames_to_box(spans.seen) - 1, 0)
    believed = believed - column("coast_weight")[kind] * missing
    row = np.full(len(frame), -1, np.int64)
    row[rows_of_seen] = seen.row
    missed_s, gap_s = time_since_seen(spans.seen, times[frame])
    return RefinedTracks(
        ids,
        spans,
        smoothed,
        frame,
        box,
        row,
        label,
        hits,
        near[:, 0],
        believed >= column("mend_from")[kind],
        missed_s,
        gap_s,
        _directions(frames, seen, len(ids)),
        poses,
    )


def tracks_in_frame(
    refined: RefinedTracks, number: int, frame: FrameAssignment, parameters: Parameters
) -> Tracks:
    """Return the refined tracks of one frame; ``number`` is its position in the stretch."""
    rows = refined.by_frame[number]
    track = refined.owner[rows]
    join_s = parameters.column("join_s")[refined.label[track]]
    fine = refined.reported[rows] & (refined.gap_s[rows] <= join_s + 1e-6)
    rows, track = rows[fine], track[fine]
    free = ~_occupied(refined.box[rows], refined.row[rows] >= 0, refined.odds[rows])
    rows, track = rows[free], track[free]
    order = np.lexsort((refined.ids[track], -refined.odds[rows]))
    rows, track = rows[order], track[order]
    state = TrackState.of(len(rows))
    state.numbers[:, BOX] = refined.box[rows]
    # Identity, unless the map restarted later in the recording.
    turn = frame.pose[:3, :3] @ refined.poses[number][:3, :3].T
    state.numbers[:, VELOCITY] = refined.smoothed.velocity[rows] @ turn.T
    state.numbers[:, SPREAD] = refined.smoothed.spread[rows]
    columns = {
        TRACK_ID: refined.ids[track],
        LABEL: refined.label[track],
        HITS: refined.hits[track],
        ROW: refined.row[rows],
    }
    for column, values in columns.items():
        state.counts[:, column] = values
    state.embeddings[:] = refined.embeddings[track]
    boxes = moved_boxes(state.numbers[:, BOX], inverse(refined.poses[number]))
    return tracks_of(
        state,
        boxes,
        refined.odds[rows],
        refined.missed_s[rows],
        parameters=parameters,
        pose=frame.pose,
        time_ns=frame.time_ns if frame.stamped else None,
        warnings=frame.warnings,
        detections=frame.detections,
    )


def _occupied(boxes: Float64Array, seen: BoolArray, odds: Float64Array) -> BoolArray:
    """Mark (M, 7) unseen boxes that overlap a seen one with greater (M,) log-odds.

    Two objects cannot be at the same place.
    """
    found = np.zeros(len(boxes), np.bool_)
    unseen, there = np.flatnonzero(~seen), np.flatnonzero(seen)
    if not (unseen.size and there.size):
        return found
    length = boxes[:, 3]
    pairs = near_pairs(boxes[unseen, :2], boxes[there, :2], (length[unseen] + length[there].max()) / 2)
    own, other = unseen[pairs.track], there[pairs.box]
    likelier = odds[other] > odds[own]
    own, other = own[likelier], other[likelier]
    if own.size:
        overlap = rotated_iou_pairs(boxes[own], boxes[other], metric="bev")
        found[own[overlap > _OVERLAP]] = True
    return found


def _gather(frames: Sequence[FrameAssignment]) -> tuple[Int64Array, TrackedBoxes, Float64Array]:
    """Return track ids, boxes by track and frame, and poses, all in the map of the last frame."""
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
    seen = TrackedBoxes(
        track,
        number_of[order],
        np.concatenate(boxes[::-1])[order],
        np.concatenate([frame.boxes.score[frame.which] for frame in frames])[order],
        np.concatenate([frame.boxes.labels[frame.which] for frame in frames])[order],
        np.concatenate([frame.boxes.row[frame.which] for frame in frames])[order],
        np.concatenate([frame.hits for frame in frames])[order],
        np.concatenate([frame.mean_score for frame in frames])[order],
    )
    return ids, _last_per_frame(seen), poses


def _last_per_frame(seen: TrackedBoxes) -> TrackedBoxes:
    """Keep one box per track and frame: the last look at a moment counts."""
    if len(seen.track) < 2:
        return seen
    last = np.ones(len(seen.track), np.bool_)
    last[:-1] = (seen.track[1:] != seen.track[:-1]) | (seen.frame[1:] != seen.frame[:-1])
    return seen.rows(last, seen.track)


def _spans(seen: TrackedBoxes, times: Int64Array) -> tuple[Spans, Int64Array, Int64Array]:
    """Return rows from the first box of each track to its last, the rows that have boxes, and each row's
    frame.
    """
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


def _directions(frames: Sequence[FrameAssignment], seen: TrackedBoxes, count: int) -> npt.NDArray[np.float32]:
    """Return the (K, 128) mean direction of the embeddings of each track's boxes."""
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


def _join_fragments(
    ids: Int64Array, seen: TrackedBoxes, times: Int64Array, parameters: Parameters
) -> tuple[Int64Array, TrackedBoxes]:
    """Join fragments that continue each other under the id of the first."""
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
