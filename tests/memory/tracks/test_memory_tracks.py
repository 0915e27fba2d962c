"""Tracks become one memory for what stood, and an episode for what moved."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import Filter, MemoryStore
from memory.merging.fusion import fuse
from memory.merging.tracks import TRACKS, join_tracks, things_of, tracks_of
from memory.questions import Questions
from memory.questions.counting import tally, tally_of
from memory.tracks import Sights, TrackMemories, TrackOptions
from memory.tracks.collection import MOST_SAMPLES, TrackSamples
from memory.tracks.phases import phases_of
from memory.tracks.stories import pieces_of
from memory.types import Memory

SECOND = 10**9
CAR = (4.2, 1.8, 1.5)


def sights(at_s: float, **tracks: tuple[float, ...]) -> Sights:
    """Of cars by number (``t7``), each at x, y and perhaps with a yaw."""
    return Sights(
        time_ns=round(at_s * SECOND),
        track_id=[int(name[1:]) for name in tracks],
        boxes=np.array(
            [
                [*(*place, 0.0)[:2], 0.5, *CAR, place[2] if len(place) > 2 else 0.0]
                for place in tracks.values()
            ]
        ),
        labels=["Car"] * len(tracks),
        scores=[0.8] * len(tracks),
        evidence=f"{at_s:.1f}.bin",
    )


def remembered(*moments: Sights, **options: Any) -> list[Memory]:
    tracks = TrackMemories("drive", options=TrackOptions(**options))
    found = [memory for moment in moments for memory in tracks.see(moment)]
    return [*found, *tracks.end()]


def test_what_stood_is_one_memory_with_all_its_sights() -> None:
    rng = np.random.default_rng(0)
    found = remembered(*(sights(at / 10, t7=tuple(rng.normal([5, 3], 0.1))) for at in range(50)))
    (memory,) = found
    assert (memory.kind, memory.label, memory.count, memory.state) == ("object", "Car", 50, "present")
    assert math.dist(memory.position[:2], (5, 3)) < 0.05
    assert (memory.first_seen_ns, memory.last_seen_ns, memory.time_ns) == (
        0,
        49 * SECOND // 10,
        49 * SECOND // 10,
    )
    assert memory.visits == ((0, 49 * SECOND // 10, 50),)
    assert memory.payload[TRACKS] == {"drive/7": [0, 49 * SECOND // 10]}
    assert memory.payload["size_m"] == list(CAR)
    assert memory.caption == "car that stood for 5 s"
    assert memory.evidence == "0.0.bin\n4.9.bin"
    assert memory.confidence == pytest.approx(0.8)


def test_what_moved_is_an_episode() -> None:
    (memory,) = remembered(*(sights(at / 10, t1=(at * 1.0, 2.0)) for at in range(40)))
    assert (memory.kind, memory.state) == ("event", "moved")
    assert memory.caption == "car moved 39 m in 4 s, from (0, 2) to (39, 2)"
    assert (memory.payload["from"], memory.payload["to"]) == ([0, 2, 0.5], [39, 2, 0.5])
    assert memory.payload["speed_m_s"] == pytest.approx(10.0)
    assert memory.payload["length_m"] == pytest.approx(39.0)
    way = memory.payload["way"]
    assert (len(way), way[0], way[-1]) == (32, [0, 0, 2], [3.9, 39, 2])
    assert memory.position[:2] == (39.0, 2.0)


def test_a_stop_between_two_ways() -> None:
    xs = [*np.arange(0, 30, 1.0), *[30.0] * 40, *np.arange(30, 60, 1.0)]
    kinds = [
        (one.kind, one.state, one.count)
        for one in remembered(*(sights(at / 10, t1=(x, 0)) for at, x in enumerate(xs)))
    ]
    assert [kind for kind, _, _ in kinds] == ["event", "object", "event"]
    assert kinds[1][1] == "moved"
    assert 38 <= kinds[1][2] <= 44


def test_slow_walking_is_no_stop() -> None:
    (memory,) = remembered(*(sights(at / 10, t1=(at * 0.11, 0)) for at in range(80)))
    assert memory.kind == "event"
    # Of what was seen for a moment, the way tells.
    assert [one.kind for one in remembered(*(sights(at / 10, t1=(at * 0.11, 0)) for at in range(8)))] == [
        "event"
    ]
    assert [one.kind for one in remembered(*(sights(at / 10, t1=(at * 0.01, 0)) for at in range(8)))] == [
        "object"
    ]


def test_boxes_that_jump_about_are_no_motion() -> None:
    """A parked car at 30 m: the quarters differ by 0.6 m, but so do consecutive boxes."""
    xs = [0.0, -0.3, 0.2, -0.2, 0.3, -0.2, 0.1, 0.4, -0.1, 0.2, 0.7, 0.8]
    (parked,) = remembered(*(sights(at / 10, t1=(x, 0)) for at, x in enumerate(xs)))
    assert parked.kind == "object"
    (rolling,) = remembered(*(sights(at / 10, t1=(at * 0.075, 0)) for at in range(12)))
    assert rolling.kind == "event"


def test_headings_the_wrong_way_round_do_not_turn_it() -> None:
    moments = [sights(at / 10, t1=(0, 0, 0.3 if at % 3 else 0.3 + math.pi)) for at in range(30)]
    assert remembered(*moments)[0].yaw == pytest.approx(0.3)


def test_tracks_end_by_time_and_long_ones_are_told_meanwhile() -> None:
    tracks = TrackMemories("drive", options=TrackOptions(ended_s=1.0, at_most_s=10.0))
    found = [tracks.see(sights(at / 2, t1=(0, 0), **({"t2": (9, 0)} if at < 6 else {}))) for at in range(50)]
    told = [at for at, some in enumerate(found) if some]
    assert told == [8, 20, 41]  # t2 after a second, t1 every ten
    assert len(tracks) == 1
    assert [sum(one.count for some in found for one in some), *(one.count for one in tracks.end())] == [48, 8]
    assert len(tracks) == 0
    tracks.see(sights(0.0, t1=(0, 0)))  # Another recording may begin.


def test_too_few_sights_are_nothing() -> None:
    assert remembered(sights(0, t1=(0, 0))) == []
    weak = dataclasses.replace(sights(0, t1=(0, 0)), scores=[0.5])
    assert remembered(*(dataclasses.replace(weak, time_ns=at) for at in (0, 1))) == []
    # As much as three boxes that are as often wrong as right.
    assert len(remembered(*(dataclasses.replace(weak, time_ns=at) for at in (0, 1, 2)))) == 1
    assert len(remembered(sights(0, t1=(0, 0)), sights(0.1, t1=(0, 0)))) == 1
    assert remembered(sights(0, t1=(0, 0)), sights(0.1, t1=(0, 0)), least_sights=3) == []


def test_behind_a_jump_it_is_another_thing() -> None:
    """A parked car is lost, and its track goes on with the next one, 3 m away."""
    places = [(0.1 * (at % 2), 0.0) for at in range(8)] + [(3.0, 0.1 * (at % 2)) for at in range(4)]
    first, second = remembered(*(sights(at / 2, t1=place) for at, place in enumerate(places)))
    assert (first.kind, first.state, first.count, first.payload[TRACKS]) == (
        "object", "present", 8, {"drive/1": [0, 7 * SECOND // 2]},
    )  # fmt: skip
    assert (second.kind, second.state, second.count) == ("object", "present", 4)
    assert second.payload[TRACKS] == {"drive/1.2": [8 * SECOND // 2, 11 * SECOND // 2]}
    assert math.dist(second.position[:2], (3.0, 0.05)) < 0.01
    assert things_of([first, second]) == [0, 1]
    # A single box beside it is nothing.
    assert len(remembered(*(sights(at / 2, t1=place) for at, place in enumerate(places[:9])))) == 1


@pytest.mark.parametrize("step_s", [0.1, 0.5])
def test_what_drives_off_does_not_jump(step_s: float) -> None:
    seconds = np.arange(0.0, 12.0, step_s)
    # It stands for 4 s, gains 4 m/s every second up to 20, and brakes as hard as it can.
    speed = np.clip(np.minimum(4.0 * (seconds - 4.0), 8.0 * (11.5 - seconds)), 0.0, 20.0)
    x = np.cumsum(speed) * step_s
    place = np.column_stack([x, 0.2 * np.sin(7.0 * seconds)])
    assert pieces_of((seconds * 1e9).astype(np.int64), place) == [(0, len(x) - 1)]
    assert pieces_of(np.zeros(1, np.int64), place[:1]) == [(0, 0)]
    assert pieces_of(np.array([0, 10**8]), place[[0, -1]]) == [(0, 1)]


def test_bad_sights_are_named() -> None:
    with pytest.raises(ValueError, match=r"boxes must have shape \(1, 7\), got \(2, 7\)"):
        Sights(time_ns=0, track_id=[1], boxes=np.zeros((2, 7)), labels=["Car"], scores=[1.0])
    with pytest.raises(ValueError, match="labels must have 1 rows, one per track, got 0"):
        Sights(time_ns=0, track_id=[1], boxes=np.zeros((1, 7)), labels=[], scores=[1.0])
    with pytest.raises(ValueError, match="an id is repeated"):
        Sights(time_ns=0, track_id=[1, 1], boxes=np.zeros((2, 7)), labels=["Car"] * 2, scores=[1.0] * 2)
    with pytest.raises(ValueError, match="boxes must be finite"):
        Sights(time_ns=0, track_id=[1], boxes=np.full((1, 7), np.nan), labels=["Car"], scores=[1.0])
    tracks = TrackMemories("drive")
    tracks.see(sights(1.0))
    with pytest.raises(ValueError, match="must not go backwards, got 500000000 after 1000000000"):
        tracks.see(sights(0.5))
    with pytest.raises(ValueError, match="recording needs a name"):
        TrackMemories("")
    with pytest.raises(ValueError, match="stay_m must be finite and above 0, got 0"):
        TrackOptions(stay_m=0)


def test_no_track_at_all() -> None:
    tracks = TrackMemories("drive")
    assert tracks.see(Sights(time_ns=0, track_id=[], boxes=np.zeros((0, 7)), labels=[], scores=[])) == []
    assert tracks.end() == []


def test_samples_stay_few() -> None:
    track, count = TrackSamples(), 5 * MOST_SAMPLES
    for at in range(count):
        track.add(sights(at / 10, t1=(at, 0)), 0)
    assert len(track.times_ns) <= MOST_SAMPLES
    assert (track.sights, track.last_ns) == (count, (count - 1) * SECOND // 10)
    steps = np.diff(track.times_ns)
    assert (steps == steps[0]).all()


def test_vectors_are_means_and_labels_votes() -> None:
    tracks = TrackMemories("drive")
    for at, label in enumerate(["Car", "Van", "Car", "Car"]):
        vectors = {"default": np.array([[1.0, at % 2]]), "other": np.array([[0.0, 2.0]])}
        tracks.see(
            Sights(
                time_ns=at * SECOND // 10, track_id=[3], boxes=np.array([[0, 0, 0, *CAR, 0]]), labels=[label],
                scores=[0.5], embeddings=vectors,
            )
        )  # fmt: skip
    (memory,) = tracks.end()
    assert memory.label == "Car"
    assert memory.embedding is not None
    ratio = memory.embedding[1] / memory.embedding[0]
    assert ratio == pytest.approx(1 / (1 + math.sqrt(2)), abs=1e-3)
    assert memory.embeddings["other"].tolist() == [0.0, 2.0]


@pytest.fixture
def parked_and_driven(tmp_path: Path) -> Path:
    """A car that parks, drives off and parks again, and is there on the next day; another one that parks."""
    store = MemoryStore.open(tmp_path / "store", dim=4)
    with store:
        for day in range(2):
            tracks, moments = TrackMemories(f"day {day}"), []
            for at in range(120):
                x = 0.0 if at < 40 else min(1.0 * (at - 40), 40.0)
                x = x if day == 0 else 40.0
                moments.append(sights(at / 10 + 86_400 * day, t1=(x, 0.0), t2=(20.0, 9.0)))
            store.observe([one for moment in moments for one in tracks.see(moment)] + tracks.end())
            store.consolidate()
    return tmp_path / "store"


def test_how_many_counts_things_by_their_tracks(parked_and_driven: Path) -> None:
    with MemoryStore.open(parked_and_driven, readonly=True) as store:
        asked = Questions(store)
        cars = asked.how_many("cars")
        # Where it stood first, how it drove, where it stands since; and the other one.
        assert (cars.memories, cars.things) == (4, 2)
        assert str(cars).startswith(
            "2 present and 2 moved away, of 4 memories of Car, 2 objects by their tracks; seen 4"
        )
        first = asked.how_many("Car", between_ns=(0, 3 * SECOND))
        assert (first.memories, first.things) == (2, 2)
        assert "by their tracks" not in str(first)
        assert asked.how_many("Car", near=(20.0, 9.0), radius_m=1.0).things == 1
        assert asked.summarise().things == 2
        assert tally(store, Filter()) == tally_of(store.find(Filter()))


def test_everything_that_passed_a_place_is_kept(tmp_path: Path) -> None:
    """One after the other, within the hour, to the same place: no one of them stands for another."""
    moments = [
        sights(8 * car + at / 4, **{f"t{car}": (at * 1.0, 0.1 * car)})
        for car in range(30)
        for at in range(20)
    ]
    with MemoryStore.open(tmp_path, dim=4) as store:
        kept = store.observe_logged(remembered(*moments)).kept
        assert len(kept) == 30
        assert all(one.id is not None for one in kept)
        assert kept[-1].reason == "a track with all observations of an object"
        store.consolidate()
        assert Questions(store).how_many("Car").things == 30
        # A single sight has no more room than before.
        alone = Memory(time_ns=239 * SECOND, position=(19, 2, 0.5), kind="event", label="Car")
        assert store.observe([alone])[0].id is None


def test_things_are_joined_by_any_chain_of_tracks() -> None:
    def of(*names: str) -> Memory:
        return Memory(time_ns=0, position=(0, 0, 0), payload={TRACKS: {name: [0, 1] for name in names}})

    assert things_of([]) == []
    found = things_of([of("a/1"), of("a/2"), of("b/1", "a/2"), of(), of(), of("b/1"), of("c/1", "a/1")])
    assert found[1] == found[2] == found[5]
    assert found[0] == found[6]
    assert len(set(found)) == 4
    assert len(set(things_of([of("a/1"), of("b/1"), of("c/1"), of("a/1", "b/1"), of("b/1", "c/1")]))) == 1


@given(
    st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=1, max_size=60), st.integers(1, 5)
)
def test_phases_cover_a_track(places: list[tuple[float, float]], step: int) -> None:
    times = np.arange(len(places)) * (step * SECOND // 4)
    found = phases_of(times, np.array(places), stay_m=1.5, stay_s=2.0)
    assert found[0].first == 0
    assert found[-1].last == len(places) - 1
    for before, after in itertools.pairwise(found):
        assert after.first in (before.last, before.last + 1)
        assert not (before.stood and after.stood) or after.first > before.last


def car(at_s: float, x: float, **tracks: list[int]) -> Memory:
    spans = {f"{name.replace('_', '/')}": [one * SECOND for one in span] for name, span in tracks.items()}
    return Memory(
        time_ns=round(at_s * SECOND), position=(x, 0.0, 0.0), label="Car", covariance=np.eye(3) * 0.25,
        payload={TRACKS: spans} if spans else {},
    )  # fmt: skip


def test_two_tracks_of_one_time_are_two_things(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        # Side by side, seen together; the day after one of them, and one that no tracker followed.
        store.add(
            [car(5, 0.0, a_1=[0, 5]), car(5, 1.0, a_2=[0, 5]), car(90, 0.1, b_1=[80, 90]), car(95, 0.0)]
        )
        store.consolidate()
        left = store.find(Filter())
    assert sorted(len(tracks_of(one)) for one in left) == [1, 2]
    assert sorted(one.count for one in left) == [1, 3]


def test_members_of_a_cluster_are_apart_too(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        # Two beside the one that leads, which was not tracked and could be either.
        leader = [car(1, 0.5)] * 1
        store.add(
            [Memory(**{**vars(leader[0]), "count": 9}), car(5, 0.0, a_1=[0, 5]), car(5, 1.1, a_2=[0, 5])]
        )
        store.consolidate()
        assert sorted(one.count for one in store.find(Filter())) == [1, 10]


def test_a_track_that_ends_where_another_begins_may_be_one_thing(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        store.add([car(5, 0.0, a_1=[0, 5]), car(9, 0.1, a_2=[5, 9])])
        store.consolidate()
        (one,) = store.find(Filter())
    assert one.payload[TRACKS] == {"a/1": [0, 5 * SECOND], "a/2": [5 * SECOND, 9 * SECOND]}


def test_tracks_of_many_are_the_latest() -> None:
    many = [car(at, 0.0, **{f"a_{at}": [at, at + 1]}) for at in range(100)]
    names = join_tracks(many)[TRACKS]
    assert len(names) == 64
    assert "a/99" in names
    assert "a/35" not in names
    assert len(tracks_of(fuse(many))) == 64


@pytest.mark.parametrize(
    "said", [7, "a/1", {"a/1": 3}, {"a1": [0, 1]}, {"a/1": [0.5, 1]}, {"a/1": [0, 1, 2]}]
)
def test_what_else_is_called_tracks_says_nothing(said: Any) -> None:
    assert tracks_of(Memory(time_ns=0, payload={TRACKS: said})) == ()


def test_velocities_of_tracks() -> None:
    """As the tracker says at the last sight; else as the boxes of the last second show; else unknown."""

    def of(moments: list[Sights]) -> list[tuple[float, ...] | None]:
        return [memory.velocity for memory in remembered(*moments)]

    def driving(count: int) -> list[Sights]:
        # Slow at first, then 8 m/s along y.
        return [
            sights(at / 10, t7=(0.0, 0.2 * at if at < 20 else 4.0 + 0.8 * (at - 20))) for at in range(count)
        ]

    said = [
        dataclasses.replace(moment, velocities=[(0.5 * at, 7.0, 0.25)])
        for at, moment in enumerate(driving(40))
    ]
    assert of(said) == [(19.5, 7.0, 0.25)]
    (measured,) = of(driving(40))
    assert measured == pytest.approx((0.0, 8.0, 0.0), abs=1e-9)
    said[-1] = dataclasses.replace(said[-1], velocities=[None])
    assert of(said)[0] == pytest.approx((0.0, 8.0, 0.0), abs=1e-9)
    assert of(driving(2)) == [None]
    stood = [sights(at / 10, t7=(5.0, 3.0)) for at in range(40)]
    assert of(stood) == [pytest.approx((0.0, 0.0, 0.0))]
    # A car that arrives and stays: the motion ends slowly, and the stay stands.
    moments = [sights(at / 10, t7=(min(at, 40) * 0.5, 0.0)) for at in range(100)]
    motion, stay = remembered(*moments)
    assert (motion.kind, stay.kind, stay.moving) == ("event", "object", False)
    long = [
        dataclasses.replace(sights(at / 10, t7=(at, 0.0)), velocities=[(10.0, at / 1e4, 0.0)])
        for at in range(MOST_SAMPLES + 50)
    ]
    track = TrackSamples()
    for moment in long:
        track.add(moment, 0)
    assert len(track.velocities) == len(track.boxes) == len(track.times_ns)
    assert track.velocities[5] == (10.0, track.boxes[5][0] / 1e4, 0.0)
    for wrong, message in (([], "must have 1 rows"), ([(1.0, 2.0)], "must have 3 numbers, got 2")):
        with pytest.raises(ValueError, match=f"velocities {message}"):
            dataclasses.replace(stood[0], velocities=wrong)
    rows = np.array([[1.0, 2.0, 0.5]], np.float32)
    assert dataclasses.replace(stood[0], velocities=rows).velocities == [(1.0, 2.0, 0.5)]
