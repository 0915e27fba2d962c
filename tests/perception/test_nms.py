"""Non-maximum suppression: the hashed version against every pair, index for index."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perception.nms as nms_module
from perception.boxes import rotated_iou_bev
from perception.nms import rotated_nms, rotated_nms_exact

Boxes = npt.NDArray[np.float64]
IMPLEMENTATIONS = [rotated_nms, rotated_nms_exact]
SCENES = ["random", "clustered", "mixed sizes", "street", "far apart", "identical", "lattice"]


def scene(kind: str, count: int, rng: np.random.Generator) -> Boxes:
    centre = np.column_stack((rng.uniform(-40, 40, (count, 2)), rng.uniform(-1, 1, count)))
    size = rng.uniform(0.4, 4.5, (count, 3))
    yaw = rng.uniform(-np.pi, np.pi, count)
    if kind == "clustered":
        centre[:, :2] = rng.uniform(-40, 40, (12, 2))[rng.integers(0, 12, count)]
        centre[:, :2] += rng.normal(0, 0.4, (count, 2))
    elif kind == "mixed sizes":
        size *= 10 ** rng.uniform(-4, 2, (count, 1))
    elif kind == "street":
        centre[:, 1] *= 0.01
        yaw = rng.choice([0.0, np.pi / 2, np.pi], count)
    elif kind == "far apart":
        centre[:, :2] = rng.choice([-1e9, 0.0, 3e6], (count, 2)) + rng.normal(0, 2, (count, 2))
    elif kind == "identical":
        centre, size, yaw = np.ones((count, 3)), np.ones((count, 3)), np.full(count, 0.3)
    elif kind == "lattice":  # IoU of exactly 1/3 and touching edges
        centre = rng.integers(-6, 7, (count, 3)) * [1.0, 2.0, 0.0]
        size, yaw = np.full((count, 3), 2.0), np.zeros(count)
    return np.column_stack((centre, size, yaw))


HASHED: dict[str, Any] = {"_BOXES_IN_ONE_TABLE": {}}
PATHS: dict[str, dict[str, Any]] = {
    "table": {},
    "hash": HASHED,
    "hash, small blocks": {**HASHED, "_PAIRS_PER_BLOCK": 64},
    "hash, two size classes": {**HASHED, "_SIZE_CLASSES": 2},
}


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize(("threshold", "metric"), [(0.0, "bev"), (1 / 3, "bev"), (0.2, "3d")])
def test_every_path_agrees_with_every_pair(
    kind: str, threshold: float, metric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(SCENES.index(kind))
    boxes = scene(kind, 110, rng)
    scores = np.round(rng.random(110), 2)  # many ties
    options: dict[str, Any]
    for options in ({}, {"labels": rng.integers(-1, 2, 110), "max_output": 20}):
        options |= {"iou_threshold": threshold, "metric": metric}
        expected = rotated_nms_exact(boxes, scores, **options)
        for path, constants in PATHS.items():
            with monkeypatch.context() as patch:
                for name, value in constants.items():
                    patch.setattr(nms_module, name, value)
                np.testing.assert_array_equal(rotated_nms(boxes, scores, **options), expected, err_msg=path)


@settings(max_examples=40, derandomize=True)
@given(
    count=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(SCENES),
    threshold=st.floats(0, 1),
)
def test_kept_boxes_do_not_overlap_and_the_rest_do(
    count: int, seed: int, kind: str, threshold: float
) -> None:
    rng = np.random.default_rng(seed)
    boxes, scores = scene(kind, count, rng), rng.integers(0, 5, count).astype(np.float32)
    kept = rotated_nms(boxes, scores, iou_threshold=threshold)
    ranking = [(-scores[index], index) for index in kept]
    assert ranking == sorted(ranking)
    iou = rotated_iou_bev(boxes, boxes)
    # The other half of a symmetric pair may differ in the last bit.
    assert (iou[np.ix_(kept, kept)][~np.eye(len(kept), dtype=bool)] <= threshold + 1e-12).all()
    for index in set(range(count)) - set(kept.tolist()):
        better = [other for other in kept if (-scores[other], other) < (-scores[index], index)]
        assert (iou[better, index] >= threshold - 1e-12).any()


@pytest.mark.parametrize("nms", IMPLEMENTATIONS)
def test_ties_go_to_the_lower_index(nms: Any) -> None:
    boxes = scene("identical", 5, np.random.default_rng(0))
    assert nms(boxes, np.zeros(5), iou_threshold=0.5).tolist() == [0]
    assert nms(boxes, [0.0, 0.5, 0.1, 0.5, -0.0], iou_threshold=0.5).tolist() == [1]
    assert nms(boxes, np.zeros(5), iou_threshold=0.5, labels=[2, 0, 2, 1, 0]).tolist() == [0, 1, 3]
    assert nms(boxes, np.zeros(5), iou_threshold=1.0).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("nms", IMPLEMENTATIONS)
def test_a_suppressed_box_suppresses_nothing(nms: Any) -> None:
    boxes = [[along, 0, 0, 4, 2, 1, 0] for along in (0.0, 1.0, 2.0, 3.0)]  # neighbours share 3/5, next 1/3
    assert nms(boxes, [4, 3, 2, 1], iou_threshold=0.5).tolist() == [0, 2]


@pytest.mark.parametrize("nms", IMPLEMENTATIONS)
def test_metric_decides_whether_stacked_boxes_collide(nms: Any) -> None:
    boxes = [[0, 0, 0, 4, 2, 1, 0.2], [0, 0, 1.5, 4, 2, 1, 0.2]]
    assert nms(boxes, [0.5, 0.9], iou_threshold=0.1).tolist() == [1]
    assert nms(boxes, [0.5, 0.9], iou_threshold=0.1, metric="3d").tolist() == [1, 0]


@pytest.mark.parametrize("nms", IMPLEMENTATIONS)
def test_boxes_without_area_are_kept(nms: Any) -> None:
    boxes = np.zeros((4, 7))
    assert nms(boxes, [1, 2, 3, 4], iou_threshold=0.0).tolist() == [3, 2, 1, 0]
    boxes[1, 3:6] = 2.0
    boxes[2, 3] = 5.0
    assert nms(boxes, [1, 2, 3, 4], iou_threshold=0.0).tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("nms", IMPLEMENTATIONS)
def test_no_box_and_one_box(nms: Any) -> None:
    for boxes in (np.zeros((0, 7), np.float32), []):
        kept = nms(boxes, [], iou_threshold=0.5, labels=[])
        assert kept.shape == (0,)
        assert kept.dtype == np.int64
    empty = nms(torch.zeros(0, 7), torch.zeros(0), iou_threshold=0.5)
    assert empty.shape == (0,)
    assert empty.dtype == torch.int64
    one = [[1, 2, 3, 4, 2, 1, 0.5]]
    assert nms(one, [0.3], iou_threshold=0.5).tolist() == [0]
    assert nms(one, [0.3], iou_threshold=0.5, max_output=0).tolist() == []


@pytest.mark.parametrize("nms", IMPLEMENTATIONS)
def test_result_is_of_the_kind_of_the_boxes(nms: Any) -> None:
    boxes = scene("clustered", 30, np.random.default_rng(1)).astype(np.float32)
    scores = np.linspace(0, 1, 30, dtype=np.float32)
    from_numpy = nms(boxes, scores, iou_threshold=0.3)
    from_torch = nms(torch.from_numpy(boxes), torch.from_numpy(scores), iou_threshold=0.3)
    assert isinstance(from_numpy, np.ndarray)
    assert from_numpy.dtype == np.int64
    assert isinstance(from_torch, torch.Tensor)
    assert from_torch.dtype == torch.int64
    np.testing.assert_array_equal(from_torch.numpy(), from_numpy)


@pytest.mark.parametrize("nms", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"scores": [0.1, np.nan, 0.2]}, ValueError, r"scores\[1\] is NaN"),
        ({"scores": [0.1, 0.2]}, ValueError, r"scores must have shape \(3,\), one per box; got \(2,\)"),
        ({"scores": ["a", "b", "c"]}, TypeError, "scores must hold real numbers"),
        ({"scores": torch.zeros(3, dtype=torch.bool)}, TypeError, "scores must hold real numbers"),
        ({"boxes": np.full((3, 7), np.nan)}, ValueError, r"boxes\[0\]: x must be finite"),
        ({"boxes": np.zeros((3, 5))}, ValueError, r"boxes must have shape \(M, 7\)"),
        ({"labels": [0, 1]}, ValueError, "labels must have shape"),
        ({"labels": [0.0, 1.0, 2.0]}, TypeError, "labels must be integers"),
        ({"iou_threshold": 1.5}, ValueError, r"iou_threshold must be in \[0, 1\], got 1.5"),
        ({"iou_threshold": float("nan")}, ValueError, r"iou_threshold must be in \[0, 1\]"),
        ({"max_output": -1}, ValueError, "max_output must be None or at least 0, got -1"),
        ({"metric": "area"}, ValueError, "metric must be 'bev' or '3d', got 'area'"),
    ],
)
def test_bad_arguments(nms: Any, changed: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"boxes": np.zeros((3, 7)), "scores": [0.1, 0.2, 0.3], "iou_threshold": 0.5}
    arguments.update(changed)
    with pytest.raises(error, match=message):
        nms(arguments.pop("boxes"), arguments.pop("scores"), **arguments)


class _Clipping:
    """Counts the pairs that reach the exact IoU, and the most proposed at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pairs = 0
        self.largest_proposal = 0
        clip, expand = nms_module.iou_of_checked_pairs, nms_module._expand

        def counting_clip(a: Any, b: Any, *, metric: Any) -> Any:
            self.pairs += len(a)
            return clip(a, b, metric=metric)

        def counting_expand(*arguments: Any) -> Any:
            first, second = expand(*arguments)
            self.largest_proposal = max(self.largest_proposal, len(first))
            return first, second

        monkeypatch.setattr(nms_module, "iou_of_checked_pairs", counting_clip)
        monkeypatch.setattr(nms_module, "_expand", counting_expand)


@pytest.mark.parametrize("labels", [None, np.arange(4000) % 3])
def test_thousands_of_identical_boxes_stay_within_the_budget(
    labels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clipping = _Clipping(monkeypatch)
    boxes = scene("identical", 4000, np.random.default_rng(2))
    kept = rotated_nms(boxes, np.arange(4000), iou_threshold=0.5, labels=labels)
    assert kept.tolist() == ([3999] if labels is None else [3999, 3998, 3997])
    assert clipping.largest_proposal <= nms_module._PAIRS_PER_BLOCK
    assert clipping.pairs <= nms_module._PAIRS_PER_BLOCK


def test_one_box_with_more_neighbours_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nms_module, "_PAIRS_PER_BLOCK", 10)
    clipping = _Clipping(monkeypatch)
    boxes = scene("identical", 300, np.random.default_rng(3))
    assert len(rotated_nms(boxes, np.zeros(300), iou_threshold=1.0)) == 300
    assert clipping.largest_proposal == 300
    assert clipping.pairs == 300 * 299 // 2


def test_a_huge_box_does_not_make_every_pair_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    boxes = scene("random", 400, rng) * [3, 3, 1, 0.3, 0.3, 1, 1]
    boxes[:2, 3:6] = 500.0
    scores = rng.random(400)
    clipping = _Clipping(monkeypatch)
    kept = rotated_nms(boxes, scores, iou_threshold=0.2)
    assert clipping.pairs < 3 * len(boxes)
    monkeypatch.undo()
    # The huge boxes overlap everything by next to nothing, so small boxes are decided among themselves.
    small = 2 + rotated_nms_exact(boxes[2:], scores[2:], iou_threshold=0.2)
    np.testing.assert_array_equal(kept[~np.isin(kept, [0, 1])], small)


def test_long_thin_crossing_boxes() -> None:
    rng = np.random.default_rng(5)
    boxes = scene("random", 150, rng) * [0.5, 0.5, 1, 10, 0.02, 1, 1]  # long and thin: circles say little
    scores = rng.random(150)
    np.testing.assert_array_equal(
        rotated_nms(boxes, scores, iou_threshold=0.0), rotated_nms_exact(boxes, scores, iou_threshold=0.0)
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", SCENES)
def test_gpu_agrees_with_cpu(kind: str) -> None:
    rng = np.random.default_rng(6)
    boxes, scores = torch.from_numpy(scene(kind, 800, rng)), torch.from_numpy(np.round(rng.random(800), 2))
    labels = torch.from_numpy(rng.integers(0, 3, 800))
    for metric in ("bev", "3d"):
        expected = rotated_nms(boxes, scores, iou_threshold=0.25, labels=labels, metric=metric)
        kept = rotated_nms(
            boxes.cuda(), scores.cuda(), iou_threshold=0.25, labels=labels.cuda(), metric=metric
        )
        assert kept.device.type == "cuda"
        assert torch.equal(kept.cpu(), expected)
    with pytest.raises(ValueError, match="on the device of boxes"):
        rotated_nms(boxes.cuda(), scores, iou_threshold=0.25)
