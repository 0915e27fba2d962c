"""Augmentation: points stay with their boxes, boxes stay apart, samples depend on seed and number only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from perception.boxes import points_in_boxes, rotated_iou_bev
from perception.config import AugmentConfig, TrainConfig
from perception.data import open_data_set
from perception.train.data.augment import (
    augment,
    disturb_objects,
    drop_points,
    paste_objects,
    transform_scene,
)
from perception.train.data.batches import SampleSequence, batches, collate
from perception.train.data.frames import IGNORED, SensorKind, TrainingFrame, class_counts, load_frames
from perception.train.data.objects import (
    Bearings,
    ObjectSample,
    collect_objects,
    local_positions,
    object_bank,
    points_in_box,
    points_of_object,
    shadowed,
)

Street = Callable[[int], TrainingFrame]
CLASSES = ("Car", "Pedestrian")
SEEDS = range(8)


def inside(points: np.ndarray, boxes: np.ndarray, margin_m: float = 0.0) -> np.ndarray:
    """(N, M) mask by the library's own function, which these modules do not use."""
    enlarged = boxes.astype(np.float64)
    enlarged[:, 3:6] += 2 * margin_m
    mask = points_in_boxes(points[:, :3].astype(np.float64), enlarged)
    return mask if mask.shape == (len(points), len(boxes)) else mask.T


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_points_in_box_equals_the_library(street: Street, seed: int) -> None:
    frame = street(seed)
    expected = inside(frame.points, frame.boxes, margin_m=0.3)
    for row, box in enumerate(frame.boxes):
        mask = points_in_box(frame.points, box, margin_m=0.3)
        assert (mask != expected[:, row]).sum() <= 1  # a point on the face may fall on either side
        assert mask.sum() >= 150


@pytest.mark.parametrize("seed", SEEDS)
def test_bearings_find_all_points_of_a_box_and_behind_it(seed: int) -> None:
    random = generator(seed)
    points = np.zeros((20_000, 4), np.float32)
    points[:, :3] = random.uniform([-40, -40, -2], [40, 40, 2], (20_000, 3))
    bearings = Bearings(points)
    # Boxes all around, among them some across the bearing where a turn begins, and around the origin.
    places = [*random.uniform(-30, 30, (20, 2)), (-20, 0), (-20, 0.5), (-15, -0.5), (0.5, 0), (20, 0)]
    for x, y in places:
        box = np.array([x, y, 0, 4, 2, 3, random.uniform(-3, 3)], np.float32)
        rows = bearings.rows(box, margin_m=0.6)
        assert len(np.unique(rows)) == len(rows)
        left = np.ones(len(points), bool)
        left[rows] = False
        assert not (points_in_box(points, box, margin_m=0.3) & left).any()
        assert not (shadowed(points, box) & left).any()
        assert len(rows) < len(points) or np.hypot(x, y) < 3.5


def test_pasted_objects_are_of_the_same_sensor_if_there_are_enough(street: Street) -> None:
    scene = street(0)
    scene = replace(scene, boxes=scene.boxes[:0], labels=scene.labels[:0], sensor=SensorKind("b", 32))
    shape = (50, 4)
    samples = [
        ObjectSample(
            0,
            np.array([10, 9 * (n % 3), -1, 4, 2, 1.5, 0], np.float32),
            np.full(shape, shade, np.float32) * np.array([0, 0, 0, 1], np.float32),
            sensor=kind,
        )
        for kind, shade in ((SensorKind("a", 64), 0.25), (SensorKind("b", 32), 0.75))
        for n in range(3)
    ]
    for least, shades in ((3, {0.75}), (4, {0.25, 0.75}), (0, {0.25, 0.75})):
        found: set[float] = set()
        for seed in SEEDS:
            config = AugmentConfig(
                paste={"Car": 3}, paste_same_sensor=least, thin_objects=0, paste_view_rad=3.0
            )
            pasted = paste_objects(
                replace(scene, points=scene.points[:0]), {0: samples}, config, CLASSES, generator(seed)
            )
            found |= set(np.unique(pasted.points[:, 3]).tolist())
        assert found == shades


def test_objects_are_cut_out_with_their_points(street: Street) -> None:
    frame = street(0)
    frame = replace(frame, labels=np.array([*frame.labels[:3], IGNORED]))
    found = collect_objects([frame, street(1)])
    assert {label: len(samples) for label, samples in found.items()} == {0: 4, 1: 3}
    for label, samples in found.items():
        for sample in samples:
            assert sample.label == label
            assert (np.abs(local_positions(sample.points, sample.box)) <= sample.box[3:6] / 2 + 1e-5).all()
    assert collect_objects([frame], minimum_points=10_000) == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_scene_moves_as_one(street: Street, seed: int) -> None:
    frame = street(seed)
    config = AugmentConfig(rotation_rad=1.0, scale=0.2, translation_m=1.0)
    moved = transform_scene(frame, config, generator(seed))
    assert not np.allclose(moved.points, frame.points)
    before, after = inside(frame.points, frame.boxes, 1e-3), inside(moved.points, moved.boxes, 2e-3)
    assert before.any(axis=0).all()
    assert (after >= before).all()
    assert abs(int(after.sum()) - int(before.sum())) <= 5
    for row in range(len(frame.boxes)):
        old = np.linalg.norm(local_positions(frame.points[before[:, row]], frame.boxes[row]), axis=1)
        new = np.linalg.norm(local_positions(moved.points[before[:, row]], moved.boxes[row]), axis=1)
        factor = moved.boxes[row, 3] / frame.boxes[row, 3]
        np.testing.assert_allclose(new, old * factor, atol=1e-4)


def test_a_flip_mirrors_headings() -> None:
    box = np.array([[5, 2, 0, 4, 2, 1.5, 0.3]], np.float32)
    frame = TrainingFrame("one", np.array([[6, 3, 0, 0.5]], np.float32), box, np.zeros(1, np.int64))
    still = AugmentConfig(rotation_rad=0, scale=0, translation_m=0)
    flipped = {float(transform_scene(frame, still, generator(seed)).boxes[0, 1]) for seed in range(20)}
    assert flipped == {2.0, -2.0}
    mirrored = next(
        moved
        for moved in (transform_scene(frame, still, generator(seed)) for seed in range(20))
        if moved.boxes[0, 1] < 0
    )
    np.testing.assert_allclose(mirrored.boxes[0], [5, -2, 0, 4, 2, 1.5, -0.3])
    np.testing.assert_allclose(mirrored.points[0], [6, -3, 0, 0.5])


@pytest.mark.parametrize("seed", SEEDS)
def test_each_object_moves_with_its_points(street: Street, seed: int) -> None:
    frame = street(seed)
    moved = disturb_objects(frame, AugmentConfig(object_noise_m=0.5, object_noise_rad=0.4), generator(seed))
    assert (moved.boxes[:, :3] != frame.boxes[:, :3]).any()
    np.testing.assert_array_equal(moved.boxes[:, 3:6], frame.boxes[:, 3:6])
    before = inside(frame.points, frame.boxes)
    for row in range(len(frame.boxes)):
        mine = before[:, row]
        old = local_positions(frame.points[mine], frame.boxes[row])
        new = local_positions(moved.points[mine], moved.boxes[row])
        np.testing.assert_allclose(new, old, atol=1e-4)
    overlap = rotated_iou_bev(moved.boxes, moved.boxes)
    assert (overlap[~np.eye(len(overlap), dtype=bool)] == 0).all()
    untouched = ~before.any(axis=1)
    np.testing.assert_array_equal(moved.points[untouched], frame.points[untouched])


@pytest.mark.parametrize("seed", SEEDS)
def test_pasted_objects_touch_nothing_and_bring_their_points(street: Street, seed: int) -> None:
    frame = street(0)
    objects = collect_objects([street(number) for number in range(1, 5)])
    config = AugmentConfig(paste={"Car": 8, "Pedestrian": 8})
    pasted = paste_objects(frame, objects, config, CLASSES, generator(seed))
    assert len(pasted.boxes) > len(frame.boxes)
    assert all(count <= 8 for count in class_counts([pasted], CLASSES).values())
    np.testing.assert_array_equal(pasted.boxes[: len(frame.boxes)], frame.boxes)
    overlap = rotated_iou_bev(pasted.boxes, pasted.boxes)
    assert (overlap[~np.eye(len(overlap), dtype=bool)] == 0).all()
    assert (inside(pasted.points, pasted.boxes, 1e-3).sum(axis=0) >= 5).all()


def test_nothing_is_pasted_into_a_full_frame_or_from_an_empty_pool(street: Street) -> None:
    frame = street(0)
    objects = collect_objects([street(1)])
    full = AugmentConfig(paste={"Car": 2, "Pedestrian": 2})
    assert paste_objects(frame, objects, full, CLASSES, generator(0)) is frame
    assert paste_objects(frame, {}, AugmentConfig(), CLASSES, generator(0)) is frame


def test_a_class_that_paste_does_not_name(street: Street) -> None:
    objects = collect_objects([street(1)])
    config = AugmentConfig(paste={"Car": 0}, paste_rest=6, paste_view_rad=np.pi)
    found = [paste_objects(street(0), objects, config, CLASSES, generator(seed)) for seed in SEEDS]
    assert all((frame.labels == 0).sum() == 2 for frame in found)
    assert max((frame.labels == 1).sum() for frame in found) > 2
    assert min(frame.boxes[:, 0].min() for frame in found) < 0  # all around


def test_shadows_lie_behind() -> None:
    box = np.array([10, 0, 0, 2, 2, 2, 0.4], np.float32)
    points = np.array(
        [
            [20, 0, 0, 0],
            [5, 0, 0, 0],
            [10, 0, 0, 0],
            [-20, 0, 0, 0],
            [20, 9, 0, 0],
            [20, 0, 5, 0],
            [0, 0, 0, 0],
        ],
        np.float32,
    )
    assert shadowed(points, box).tolist() == [True] + [False] * 6
    upright = np.array([10, 0, 0, 2, 2, 2, 0], np.float32)
    along = np.array(
        [[20, 0, 0, 0], [20, 2, 0, 0], [20, 2.3, 0, 0]], np.float32
    )  # rays parallel to faces too
    assert shadowed(along, upright).tolist() == [True, True, False]
    around = np.array([0, 0, 0, 4, 2, 2, 0], np.float32)
    assert not shadowed(points, around).any()
    assert shadowed(points[:0], box).shape == (0,)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shadow_equals_sampled_rays(seed: int) -> None:
    random = generator(seed)
    box = np.concatenate(
        [random.uniform(-8, 8, 2), random.uniform(-1, 1, 1), random.uniform(1, 4, 3), [seed]]
    )
    box = box.astype(np.float32)
    points = random.uniform(-20, 20, (200, 4)).astype(np.float32)
    points[:, 2] *= 0.1
    steps = np.linspace(0, 1, 2001)[:-1, None]
    through = np.array([points_in_box((steps * point).astype(np.float32), box).any() for point in points])
    if points_in_box(np.zeros((1, 4), np.float32), box).any():
        through[:] = False
    expected = through & ~points_in_box(points, box)
    assert (shadowed(points, box) != expected).sum() <= 2  # rays that graze an edge


def test_what_stands_in_a_shadow_is_ignored(street: Street) -> None:
    car = np.array([12, 0, -1, 4, 2, 1.5, 0], np.float32)
    seen = np.array([[12, 0, -1, 0.5], [11, 0.5, -1, 0.5]], np.float32)
    frame = TrainingFrame("one", seen, car[None], np.zeros(1, np.int64))
    wall = np.array([6, 0, -1, 1, 4, 3, 0], np.float32)
    points = np.repeat(np.array([[5.6, 0, -1, 0.5]], np.float32), 20, axis=0)
    config = AugmentConfig(paste={"Car": 2}, thin_objects=0, paste_shadows=True, paste_view_rad=0)
    pasted = paste_objects(frame, {0: [ObjectSample(0, wall, points)]}, config, ("Car",), generator(0))
    assert pasted.labels.tolist() == [IGNORED, 0]
    np.testing.assert_array_equal(pasted.points, points)
    lit = paste_objects(
        frame,
        {0: [ObjectSample(0, wall, points)]},
        replace(config, paste_shadows=False),
        ("Car",),
        generator(0),
    )
    assert lit.labels.tolist() == [0, 0]
    assert len(lit.points) == 22


def test_only_own_objects_are_in_the_bank(street: Street) -> None:
    own, more = [street(0)], [street(1), street(2)]
    count = lambda bank: {label: len(samples) for label, samples in bank.items()}  # noqa: E731
    assert count(object_bank(own, more)) == count(collect_objects(own)) == {0: 2, 1: 2}
    assert count(object_bank(own, more, extra_below=2)) == {0: 2, 1: 2}
    assert count(object_bank(own, more, extra_below=3)) == {0: 6, 1: 6}


def test_an_object_at_the_sensor_can_be_pasted(street: Street) -> None:
    frame = street(0)
    box = np.array([0, 0, -0.9, 4, 2, 1.5, 0], np.float32)
    points = np.zeros((30, 4), np.float32)
    objects = {0: [ObjectSample(0, box, points)]}
    config = AugmentConfig(paste={"Car": 5}, thin_objects=1.0)
    for seed in SEEDS:
        pasted = paste_objects(frame, objects, config, CLASSES, generator(seed))
        assert np.isfinite(pasted.points).all()
        assert np.isfinite(pasted.boxes).all()


def test_at_most_the_given_share_of_points_is_dropped(street: Street) -> None:
    frame = street(0)
    counts = [len(drop_points(frame, 0.3, generator(seed)).points) for seed in range(30)]
    assert min(counts) > 0.6 * len(frame.points)
    assert len(set(counts)) > 10
    assert drop_points(frame, 0.0, generator(0)) is frame


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_together_is_finite_and_leaves_its_input_alone(street: Street, seed: int) -> None:
    frame = street(0)
    points, boxes = frame.points.copy(), frame.boxes.copy()
    objects = collect_objects([street(number) for number in range(1, 4)])
    kept = [sample.points.copy() for sample in objects[0]]
    changed = augment(frame, objects, AugmentConfig(), CLASSES, generator(seed))
    assert np.isfinite(changed.points).all()
    assert np.isfinite(changed.boxes).all()
    assert changed.points.dtype == changed.boxes.dtype == np.float32
    assert len(changed.boxes) == len(changed.labels)
    np.testing.assert_array_equal(frame.points, points)
    np.testing.assert_array_equal(frame.boxes, boxes)
    for sample, before in zip(objects[0], kept, strict=True):
        np.testing.assert_array_equal(sample.points, before)


def test_empty_frames_pass(without_objects: TrainingFrame) -> None:
    nothing = replace(without_objects, points=without_objects.points[:0])
    for frame in (without_objects, nothing):
        changed = augment(frame, {}, AugmentConfig(), CLASSES, generator(0))
        assert len(changed.boxes) == 0
        assert changed.boxes.shape == (0, 7)


def sequence(config: TrainConfig, street: Street, extra: int = 0) -> SampleSequence:
    frames = [street(number) for number in range(3)]
    more = [street(number) for number in range(10, 10 + extra)]
    return SampleSequence(frames, more, collect_objects(frames), config)


def same_frame(first: TrainingFrame, second: TrainingFrame) -> bool:
    return np.array_equal(first.points, second.points) and np.array_equal(first.boxes, second.boxes)


def test_samples_depend_on_seed_and_number_only(tiny_training: TrainConfig, street: Street) -> None:
    samples = sequence(tiny_training, street)
    forward = [samples[number] for number in range(4)]
    backward = [sequence(tiny_training, street)[number] for number in (3, 2, 1, 0)][::-1]
    assert all(same_frame(a, b) for a, b in zip(forward, backward, strict=True))
    assert not same_frame(forward[0], sequence(replace(tiny_training, seed=5), street)[0])
    assert not same_frame(samples[0], samples[3])
    assert len(samples) == 12


def test_every_frame_comes_once_an_epoch(tiny_training: TrainConfig, street: Street) -> None:
    samples = sequence(tiny_training, street)
    epochs = [[samples[number].frame_id for number in range(start, start + 3)] for start in (0, 3, 6, 9)]
    assert all(sorted(epoch) == ["000000", "000001", "000002"] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_extra_frames_stop_in_time(tiny_training: TrainConfig, street: Street) -> None:
    config = replace(tiny_training, steps=60, extra_share=0.5, extra_until=0.5)
    samples = sequence(config, street, extra=2)
    from_extra = [samples[number].frame_id >= "000010" for number in range(len(samples))]
    assert 15 < sum(from_extra[:60]) < 45
    assert not any(from_extra[60:])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_make_the_same_batches(tiny_training: TrainConfig, street: Street) -> None:
    samples = sequence(tiny_training, street)
    alone = list(batches(samples, first_step=0, workers=0, pin=False))
    helped = list(batches(samples, first_step=2, workers=2, pin=False))
    assert len(alone) == 6
    assert len(helped) == 4
    for first, second in zip(alone[2:], helped, strict=True):
        assert (first.boxes == second.boxes).all()
        assert (first.labels == second.labels).all()
        for one, two in zip(first.clouds, second.clouds, strict=True):
            assert one.equal(two)


def test_batches_are_padded(street: Street, without_objects: TrainingFrame) -> None:
    batch = collate([street(0), without_objects])
    assert batch.boxes.shape == (2, 4, 7)
    assert batch.labels.tolist() == [street(0).labels.tolist(), [-2] * 4]
    assert collate([without_objects]).labels.tolist() == [[-2]]


def test_frames_of_a_folder(kitti_folder: object, street: Street) -> None:
    frames = load_frames(open_data_set(str(kitti_folder), "train"), CLASSES)
    assert [frame.frame_id for frame in frames] == ["000000", "000001", "000002"]
    for frame, expected in zip(frames, (street(number) for number in range(3)), strict=True):
        np.testing.assert_array_equal(frame.points, expected.points)
        np.testing.assert_allclose(frame.boxes[:, :6], expected.boxes[:, :6], atol=0.02)  # labels are rounded
        np.testing.assert_array_equal(frame.labels, expected.labels)
    assert class_counts(frames, CLASSES) == {"Car": 6, "Pedestrian": 6}


def test_neighbouring_types_are_ignored_and_others_background(kitti_folder: object) -> None:
    frames = load_frames(open_data_set(str(kitti_folder), "train"), ("Pedestrian",))
    assert all(set(frame.labels) == {0} for frame in frames)
    assert class_counts(frames, ("Pedestrian",)) == {"Pedestrian": 6}


def moving_frame() -> TrainingFrame:
    """A car ahead that drives 10 m/s to the left, with points of now and of 0.1 s ago."""
    box = np.array([[10, 0, 0, 4, 2, 2, np.pi / 2]], np.float32)
    points = np.array([[10, 0, 0, 0.5, 0], [10, -1, 0, 0.5, 0.1], [10, -4, 0, 0.5, 0.1]], np.float32)
    velocities = np.array([[0, 10]], np.float32)
    return TrainingFrame("car", points, box, np.zeros(1, np.int64), velocities)


def test_the_trail_belongs_to_the_object() -> None:
    frame = moving_frame()
    mask = points_of_object(frame.points, frame.boxes[0], frame.velocities[0])
    # 0.1 s ago the car was 1 m to the right; the last point is off even then.
    assert mask.tolist() == [True, True, False]
    still = points_of_object(frame.points, frame.boxes[0], np.zeros(2, np.float32))
    assert still.tolist() == [True, True, False]
    far = frame.points + np.array([0, -1.5, 0, 0, 0], np.float32)
    assert points_of_object(far, frame.boxes[0], frame.velocities[0]).tolist() == [True, True, False]
    assert points_of_object(far, frame.boxes[0], np.zeros(2, np.float32)).tolist() == [True, False, False]
    unknown = np.full(2, np.nan, np.float32)
    assert points_of_object(far, frame.boxes[0], unknown).tolist() == [True, False, False]


def test_velocities_turn_and_grow_with_the_scene() -> None:
    config = AugmentConfig(flip=True, rotation_rad=3.0, scale=0.3, translation_m=0.0)
    frame = moving_frame()
    for seed in range(8):
        changed = transform_scene(frame, config, generator(seed))
        # The older point is where the car was: back by the velocity times the age.
        trail = changed.points[1, :2] + changed.points[1, 4] * changed.velocities[0]
        np.testing.assert_allclose(trail, changed.points[0, :2], atol=1e-4)
    quarters = transform_scene(frame, replace(config, quarter_turns=True), generator(3))
    trail = quarters.points[1, :2] + 0.1 * quarters.velocities[0]
    np.testing.assert_allclose(trail, quarters.points[0, :2], atol=1e-4)


def test_pasted_and_disturbed_objects_keep_their_trail_and_velocity() -> None:
    (sample,) = collect_objects([moving_frame()], minimum_points=2)[0]
    assert len(sample.points) == 2
    ground = np.random.default_rng(0).uniform([0, -20, -1, 0, 0], [40, 20, -1, 1, 0], (500, 5))
    empty = TrainingFrame(
        "empty", ground.astype(np.float32), np.zeros((0, 7), np.float32), np.zeros(0, np.int64)
    )
    many = ObjectSample(0, sample.box, np.tile(sample.points, (4, 1)), sample.velocity)
    config = AugmentConfig(paste={"Car": 1}, thin_objects=0.0, object_noise_rad=0.5, object_noise_m=0.5)
    turned = 0
    for seed in range(6):
        pasted = paste_objects(empty, {0: [many]}, config, ("Car",), generator(seed))
        moved = disturb_objects(pasted, config, generator(seed))
        own = moved.points[-8:]
        np.testing.assert_allclose(
            own[1, :2] + 0.1 * moved.velocities[0], own[0, :2], atol=1e-4, err_msg=str(seed)
        )
        speed = np.hypot(*moved.velocities[0])
        assert speed == pytest.approx(10, rel=1e-4)
        turned += abs(moved.velocities[0, 0]) > 1
    assert turned > 2
