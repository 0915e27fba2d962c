"""Where a robot is that does not know it: poses from objects and place vectors, and refusals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from memory import Memory, MemoryStore
from memory.locate.answers import LocateOptions, LocateResult
from memory.locate.places import calibrate
from memory.merging.motion import Motion

LABELS = ("bench", "lamp", "hydrant", "sign", "tree")
ENCODER, DIM = "scene-encoder", 64


def town(seed: int, count: int = 60) -> list[Memory]:
    """Objects that stand anywhere on 100 m by 100 m."""
    random = np.random.default_rng(seed)
    return [
        Memory(time_ns=0, position=(*place, 0.0), label=LABELS[number % len(LABELS)])
        for number, place in enumerate(random.uniform(0.0, 100.0, (count, 2)).tolist())
    ]


def seen_from(pose: Motion, objects: list[Memory], within_m: float = 30.0, seed: int = 0) -> list[Memory]:
    """The objects around a pose, in the frame of the sensor, with errors of 0.1 m."""
    random = np.random.default_rng(seed)
    places = pose.inverse().points(np.array([each.place for each in objects]))
    return [
        Memory(
            time_ns=0, label=each.label, position=(x + random.normal(0, 0.1), y + random.normal(0, 0.1), z)
        )
        for each, (x, y, z) in zip(objects, places.tolist(), strict=True)
        if math.hypot(x, y) < within_m
    ]


def error(found: LocateResult, pose: Motion) -> tuple[float, float]:
    """Metres and radians between the answer and the truth."""
    assert found.pose is not None
    x, y, _ = found.pose.position
    turned = abs(math.remainder(found.pose.yaw - pose.yaw_rad, math.tau))
    return math.dist((x, y), (pose.x_m, pose.y_m)), turned


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore.open(tmp_path / "store", dim=4) as opened:
        yield opened


@pytest.mark.parametrize("seed", range(5))
def test_objects_alone_give_the_pose_in_any_direction(store: MemoryStore, seed: int) -> None:
    objects = town(seed)
    ids = store.add(objects)
    pose = Motion(1.3 * seed - 3.0, 40.0 + 5 * seed, 60.0 - 6 * seed)
    found = store.locate(seen_from(pose, objects))
    away_m, turned = error(found, pose)
    assert away_m < 0.5
    assert turned < math.radians(2.0)
    assert found.pose is not None
    assert set(found.pose.objects) <= set(ids)
    assert len(found.pose.objects) >= 0.8 * found.seen


@pytest.mark.parametrize("seed", range(5))
def test_another_town_is_unknown(store: MemoryStore, seed: int) -> None:
    store.add(town(seed))
    found = store.locate(seen_from(Motion(0.4, 50.0, 50.0), town(seed + 100)))
    assert found.pose is None
    assert found.verdict != "located"
    assert str(found).startswith(("Unknown place", "I cannot tell"))


def test_two_places_that_look_the_same_are_ambiguous(store: MemoryStore) -> None:
    corner = [each for each in town(1) if max(each.place[:2]) < 45.0]
    twin = [
        Memory(time_ns=0, label=each.label, position=(each.place[0] + 500.0, each.place[1], 0.0))
        for each in corner
    ]
    store.add([*corner, *twin])
    found = store.locate(seen_from(Motion(0.0, 20.0, 20.0), corner))
    assert found.verdict == "ambiguous"
    assert found.pose is None
    first, second = sorted(round(each.position[0]) for each in found.candidates[:2])
    assert (first, second) == (20, 520)
    assert found.candidates[0].probability == pytest.approx(0.5, abs=0.1)


def test_one_of_the_twins_in_a_map_of_its_own_can_be_chosen(store: MemoryStore) -> None:
    objects = town(2)
    other = [Memory(time_ns=0, label=e.label, position=e.position, map_id="copy") for e in objects]
    store.add([*objects, *other])
    view = seen_from(Motion(0.2, 50.0, 50.0), objects)
    assert store.locate(view).verdict == "ambiguous"
    chosen = store.locate(view, map_id="copy")
    assert chosen.pose is not None
    assert chosen.pose.map_id == "copy"


def test_objects_that_are_gone_are_no_evidence(store: MemoryStore) -> None:
    objects = town(3)
    ids = store.add(objects)
    view = seen_from(Motion(0.0, 50.0, 50.0), objects)
    assert store.locate(view).pose is not None
    store.mark(ids, "gone")
    assert store.locate(view).pose is None


def test_labels_must_agree(store: MemoryStore) -> None:
    objects = town(4)
    store.add(objects)
    view = [
        Memory(time_ns=0, label="sofa", position=e.position)
        for e in seen_from(Motion(0.0, 50.0, 50.0), objects)
    ]
    assert store.locate(view).verdict == "unknown"


def test_an_empty_store_and_an_empty_view_are_unknown(store: MemoryStore) -> None:
    assert store.locate(seen_from(Motion(), town(5))).verdict == "unknown"
    store.add(town(5))
    assert store.locate([]).verdict == "unknown"


def waves(seed: int) -> NDArray[np.float64]:
    """(DIM, 3) frequencies and phase of vectors that change with the place."""
    random = np.random.default_rng(seed)
    return np.column_stack([random.normal(0, 0.3, (DIM, 2)), random.uniform(0, math.tau, DIM)])


def vector(x: float, y: float, seed: int = 0, noise: float = 0.05) -> NDArray[np.float32]:
    """A place vector, similar for close places of one seed."""
    wave = waves(seed)
    random = np.random.default_rng([seed, round(1e3 * abs(x)), round(1e3 * abs(y))])
    values = np.cos(wave[:, 0] * x + wave[:, 1] * y + wave[:, 2]) + random.normal(0, noise, DIM)
    return np.asarray(values, np.float32)


def street(step_m: float, length_m: float = 120.0) -> list[Memory]:
    """Places along a street."""
    return [
        Memory(
            time_ns=0,
            kind="place",
            position=(float(x), 0.0, 1.7),
            embeddings={ENCODER: vector(float(x), 0.0)},
        )
        for x in np.arange(0.0, length_m, step_m)
    ]


def place_view(x: float, seed: int = 0) -> Memory:
    """The place of a scan, at the origin of its sensor."""
    return Memory(time_ns=0, kind="place", embeddings={ENCODER: vector(x, 0.3, seed)})


def test_place_vectors_alone_give_the_pose_where_places_are_dense(store: MemoryStore) -> None:
    places = street(1.0)
    ids = store.add(places)
    found = store.locate([place_view(60.4)], options=LocateOptions(least_probability=0.6))
    away_m, _ = error(found, Motion(0.0, 60.4, 0.0))
    assert away_m < 1.5
    assert found.pose is not None
    assert found.pose.place in ids[58:63]
    assert found.pose.similarity is not None
    assert store.locate([place_view(60.4, seed=9)]).verdict == "unknown"


def test_objects_make_a_pose_between_two_places_precise(store: MemoryStore) -> None:
    objects = [
        Memory(time_ns=0, label="Car", position=(x, y, 0.0))
        for x, y in (
            (48.0, 4.0),
            (52.0, -5.2),
            (56.5, 4.2),
            (61.0, -5.0),
            (70.5, 3.9),
            (77.0, -5.1),
            (83.5, 4.1),
            (88.0, -4.9),
        )
    ]
    store.add([*street(6.0), *objects])
    pose = Motion(0.0, 63.0, 0.3)
    assert store.locate([place_view(63.0)]).pose is None
    found = store.locate([place_view(63.0), *seen_from(pose, objects)])
    away_m, turned = error(found, pose)
    assert away_m < 0.6
    assert turned < math.radians(2.0)


def test_few_places_tell_nothing_about_similarity() -> None:
    poses = np.column_stack([np.arange(5.0), np.zeros(5), np.zeros(5)])
    vectors = np.eye(5)
    assert calibrate(poses, vectors) is None


def test_dissimilar_places_are_evidence_against_and_similar_ones_for() -> None:
    places = street(1.0)
    rows = np.array([each.embeddings[ENCODER] for each in places], np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = calibrate(np.array([[*each.place[:2], 0.0] for each in places]), rows)
    assert found is not None
    low, high = found.evidence(np.array([0.1, 0.99])).tolist()
    assert low < -1.0
    assert high > 3.0
    near_m, far_m = found.distance_m(np.array([0.99, 0.7])).tolist()
    assert near_m < far_m


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"least_probability": 1.0}, "least_probability must be between 0 and 1, got 1.0"),
        ({"within_m": 0.0}, "within_m must be finite and above 0, got 0.0"),
        ({"most_candidates": 0}, "most_candidates must be at least 1, got 0"),
    ],
)
def test_options_out_of_range_are_refused(values: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LocateOptions(**values)  # type: ignore[arg-type]


def test_json_has_a_pose_only_if_it_is_certain(store: MemoryStore) -> None:
    objects = town(6)
    store.add(objects)
    found = store.locate(seen_from(Motion(0.1, 50.0, 40.0), objects)).to_json()
    assert found["verdict"] == "located"
    assert found["pose"] == found["candidates"][0]
    assert store.locate(seen_from(Motion(0.1, 50.0, 40.0), town(7))).to_json()["pose"] is None
