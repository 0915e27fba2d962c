"""Fusion: every field of the one memory, against the formulas written out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.merging.fusion import fuse, position_covariances, unit_embeddings
from memory.types import Memory

SEEDS = st.integers(0, 2**32 - 1)


def covariance(rng: np.random.Generator) -> np.ndarray:
    root = rng.normal(scale=0.5, size=(3, 3))
    return root @ root.T + 0.01 * np.eye(3)


@given(SEEDS, st.integers(1, 6), st.sampled_from([0.0, 5e6]))
def test_position_is_the_product_of_the_gaussians(seed: int, count: int, far: float) -> None:
    rng = np.random.default_rng(seed)
    positions = far + rng.normal(size=(count, 3))
    covariances = [covariance(rng) for _ in range(count)]
    fused = fuse(
        [Memory(time_ns=i, position=tuple(p), covariance=covariances[i]) for i, p in enumerate(positions)]
    )
    information = [np.linalg.inv(matrix) for matrix in covariances]
    expected = np.linalg.inv(sum(information))
    offset = expected @ sum(a @ (p - far) for a, p in zip(information, positions, strict=True))
    assert fused.covariance is not None
    np.testing.assert_allclose(fused.covariance, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.array(fused.position) - far, offset, atol=1e-7 if far else 1e-10)


def test_without_covariance_the_mean_by_count_and_still_none() -> None:
    memories = [
        Memory(time_ns=1, position=(0.0, 0.0, 0.0), count=3),
        Memory(time_ns=2, position=(4.0, -4.0, 8.0), count=1),
    ]
    fused = fuse(memories)
    np.testing.assert_allclose(fused.position, (1.0, -1.0, 2.0))
    assert fused.covariance is None
    assert fused.count == 4


def test_fusing_in_steps_is_fusing_at_once() -> None:
    rng = np.random.default_rng(3)
    memories = [
        Memory(
            time_ns=i,
            position=tuple(rng.normal(size=3)),
            covariance=covariance(rng),
            yaw=rng.uniform(0.0, 1.0),
            reward=float(i),
        )
        for i in range(5)
    ]
    once = fuse(memories)
    steps = fuse([fuse(memories[:3]), *memories[3:]])
    np.testing.assert_allclose(steps.position, once.position, atol=1e-9)
    np.testing.assert_allclose(steps.covariance, once.covariance, atol=1e-9)
    assert steps.reward == pytest.approx(once.reward) == 2.0
    assert (steps.count, steps.first_seen_ns, steps.last_seen_ns) == (5, 0, 4)


def test_a_flat_covariance_is_trusted_to_the_floor_only_where_it_is_flat() -> None:
    flat = Memory(time_ns=1, position=(0.0, 0.0, 0.0), covariance=np.diag([0.0, 1.0, 4.0]))
    round_ = np.diag([0.25, 1.0, 4.0])
    found = position_covariances(
        [flat, replace(flat, covariance=round_), Memory(time_ns=1, count=4)],
        default_sigma_m=0.5,
        floor_sigma_m=0.1,
    )
    np.testing.assert_allclose(found[0], np.diag([0.01, 1.0, 4.0]), atol=1e-12)
    np.testing.assert_array_equal(found[1], round_)
    np.testing.assert_allclose(found[2], np.eye(3) * 0.0625)
    fused = fuse([flat, Memory(time_ns=2, position=(1.0, 0.0, 0.0), covariance=np.eye(3))])
    assert np.isfinite(fused.position).all()
    assert 0.0 < fused.position[0] < 0.01


@given(st.lists(st.tuples(st.floats(-10, 10), st.integers(1, 9)), min_size=1, max_size=6))
def test_yaw_is_the_circular_mean(turns: list[tuple[float, int]]) -> None:
    memories = [Memory(time_ns=i, yaw=yaw, count=count) for i, (yaw, count) in enumerate(turns)]
    fused = fuse(memories).yaw
    total = sum(count * complex(math.cos(yaw), math.sin(yaw)) for yaw, count in turns)
    if abs(total) <= 1e-6:
        return
    assert -math.pi < fused <= math.pi
    assert abs(complex(math.cos(fused), math.sin(fused)) - total / abs(total)) < 1e-6


def test_opposite_directions_leave_the_most_recent() -> None:
    one, other = np.array([1, 0], np.float32), np.array([-1, 0], np.float32)
    fused = fuse(
        [Memory(time_ns=2, yaw=0.5 + math.pi, embedding=other), Memory(time_ns=9, yaw=0.5, embedding=one)]
    )
    assert fused.yaw == pytest.approx(0.5)
    np.testing.assert_array_equal(fused.embedding, one)


@given(SEEDS)
def test_embeddings_are_the_mean_direction_weighted_by_count(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(4, 8)).astype(np.float32) * np.array([[1], [100], [0.01], [3]], np.float32)
    counts = rng.integers(1, 9, 4)
    memories = [
        Memory(time_ns=i, embedding=vectors[i], count=int(counts[i]), embeddings={"image": vectors[i]})
        for i in range(4)
    ]
    fused = fuse([*memories, Memory(time_ns=9, count=100, embeddings={"text": vectors[0]})])
    mean = counts @ (vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True))
    mean /= np.linalg.norm(mean)
    np.testing.assert_allclose(fused.embedding, mean, atol=1e-6)
    np.testing.assert_allclose(fused.embeddings["image"], mean, atol=1e-6)
    assert np.linalg.norm(fused.embeddings["text"]) == pytest.approx(1.0, abs=1e-6)


def test_the_other_fields() -> None:
    early = Memory(
        id=4,
        time_ns=10,
        first_seen_ns=1,
        last_seen_ns=99,
        label="cup",
        caption="a red cup",
        confidence=0.9,
        reward=1.0,
        count=3,
        payload={"a": 1, "b": 1},
        evidence="run1/7.bag\nrun1/8.bag",
        provenance="detector",
        marked=True,
        importance=0.25,
        state="gone",
    )
    late = Memory(
        id=5,
        time_ns=20,
        label="cup",
        confidence=0.5,
        payload={"b": 2},
        evidence="run1/8.bag\nrun2/1.bag",
        provenance="detector",
        reward=5.0,
        importance=0.125,
    )
    for order in ([early, late], [late, early]):
        fused = fuse(order)
        assert (fused.id, fused.time_ns, fused.first_seen_ns, fused.last_seen_ns) == (None, 20, 1, 99)
        assert (fused.caption, fused.label, fused.state) == ("a red cup", "cup", "present")
        assert (fused.confidence, fused.reward, fused.count) == (0.9, 2.0, 4)
        assert fused.payload == {"a": 1, "b": 2}
        assert fused.evidence == "run1/7.bag\nrun1/8.bag\nrun2/1.bag"
        assert fused.provenance == "detector"
        assert (fused.marked, fused.importance) == (True, 0.25)


def test_robots_are_joined_and_half_the_trust_is_enough_to_be_the_latest() -> None:
    early = Memory(time_ns=1, yaw=-math.pi, label="cup", payload={"seen_by": {"a": [1, 1, 1]}})
    late = Memory(time_ns=2, yaw=-math.pi, label="mug", payload={"seen_by": {"b": [2, 2, 1], "a": [0, 0, 2]}})
    late_alone = replace(late, payload={"seen_by": {"b": [2, 2, 1]}})
    assert fuse([early, late]).payload == {"seen_by": {"a": [0, 1, 3], "b": [2, 2, 1]}}
    assert fuse([early, late_alone], trust={"b": 0.5}).label == "mug"
    assert fuse([early, late_alone], trust={"b": 0.49}).label == "cup"
    assert fuse([early]).yaw == math.pi
    apart = [replace(early, position=(0.0, 0.0, 0.0)), replace(late_alone, position=(3.0, 0.0, 0.0))]
    assert fuse(apart, trust={"b": 0.5}).position == pytest.approx((1.0, 0.0, 0.0))


def test_what_cannot_be_fused_is_refused() -> None:
    with pytest.raises(ValueError, match="no memories to fuse"):
        fuse([])
    with pytest.raises(ValueError, match="one map_id can be fused, got a, b"):
        fuse([Memory(time_ns=1, map_id="a"), Memory(time_ns=1, map_id="b")])
    with pytest.raises(ValueError, match="one kind can be fused"):
        fuse([Memory(time_ns=1), Memory(time_ns=1, kind="note")])
    pair = [Memory(time_ns=1, embedding=np.ones(n, np.float32)) for n in (2, 3)]
    with pytest.raises(ValueError, match="one size"):
        fuse(pair)
    with pytest.raises(ValueError, match="one size, got 2, 3"):
        unit_embeddings(pair)


def test_unit_embeddings_of_extreme_lengths() -> None:
    big, small = np.full(4, 3e38, np.float32), np.full(4, 1e-40, np.float32)
    rows = unit_embeddings([Memory(time_ns=1, embedding=v) for v in (big, small)] + [Memory(time_ns=1)])
    np.testing.assert_allclose(rows, [[0.5] * 4, [0.5] * 4, [0.0] * 4], rtol=1e-4)
    assert unit_embeddings([]).shape == (0, 0)
    assert position_covariances([], default_sigma_m=1.0, floor_sigma_m=0.1).shape == (0, 3, 3)
