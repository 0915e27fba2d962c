"""Box geometry against shapely's polygons, and the properties an IoU must have."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perception.boxes as boxes_module
from perception.boxes import (
    BOX_FIELDS,
    box_corners_3d,
    box_corners_bev,
    checked_boxes,
    points_in_boxes,
    rotated_iou_3d,
    rotated_iou_bev,
    rotated_iou_pairs,
    wrap_angle,
)

shapely = pytest.importorskip("shapely")

Boxes = npt.NDArray[np.float64]
PAIRS = [partial(rotated_iou_pairs, metric=metric) for metric in ("bev", "3d")]
IOU_FUNCTIONS = [rotated_iou_bev, rotated_iou_3d, *PAIRS]
CASES = 10_000
TOLERANCE = 1e-9


def random_boxes(count: int, rng: np.random.Generator, *, spread_m: float = 4.0) -> Boxes:
    centre = rng.uniform(-spread_m, spread_m, (count, 3)) * [1, 1, 0.3]
    return np.column_stack((centre, np.exp(rng.uniform(-2.5, 2.0, (count, 3))), rng.uniform(-7, 7, count)))


def moved(boxes: Boxes, along: Any, across: Any) -> Boxes:
    """The boxes pushed in their own frame, in metres."""
    result = boxes.copy()
    cos, sin = np.cos(boxes[:, 6]), np.sin(boxes[:, 6])
    result[:, 0] += cos * along - sin * across
    result[:, 1] += sin * along + cos * across
    return result


def shapely_iou(a: Boxes, b: Boxes) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Bird's-eye and volumetric IoU of aligned pairs, computed about the centre of a."""
    a, b = a.copy(), b.copy()
    b[:, :3] -= a[:, :3]
    a[:, :3] = 0
    area = shapely.area(shapely.intersection(shapely.polygons(rectangle(a)), shapely.polygons(rectangle(b))))
    height = np.minimum(a[:, 5] / 2, b[:, 2] + b[:, 5] / 2) - np.maximum(-a[:, 5] / 2, b[:, 2] - b[:, 5] / 2)
    volume = area * np.maximum(height, 0)
    areas = a[:, 3] * a[:, 4], b[:, 3] * b[:, 4]
    return area / (sum(areas) - area), volume / (areas[0] * a[:, 5] + areas[1] * b[:, 5] - volume)


def rectangle(boxes: Boxes) -> npt.NDArray[np.float64]:
    """Corners (M, 4, 2) written independently of the code under test."""
    result = np.empty((len(boxes), 4, 2))
    for corner, (along, across) in enumerate(((1, 1), (-1, 1), (-1, -1), (1, -1))):
        result[:, corner] = moved(boxes, along * boxes[:, 3] / 2, across * boxes[:, 4] / 2)[:, :2]
    return result


def oracle_pairs(kind: str) -> tuple[Boxes, Boxes]:
    rng = np.random.default_rng(7)
    a = random_boxes(CASES, rng)
    b = random_boxes(CASES, rng)
    if kind == "touching":
        b[:, 6] = a[:, 6] + rng.integers(-4, 5, CASES) * np.pi / 2
        turned = (np.round((b[:, 6] - a[:, 6]) / (np.pi / 2)) % 2).astype(bool)
        b_extent = np.where(turned, b[:, 4], b[:, 3])
        pushed = moved(a, (a[:, 3] + b_extent) / 2, rng.uniform(-0.5, 0.5, CASES) * a[:, 4])
        b[:, :3] = pushed[:, :3]
    elif kind == "nested":
        b[:, 3:6] = a[:, 3:6] * rng.uniform(0.01, 0.5, (CASES, 1))
        b[:, 4] = np.minimum(b[:, 4], b[:, 3] * 0.5)
        b[:, :3] = a[:, :3]
    elif kind == "rotated by 1e-7":
        b = a.copy()
        b[:, 6] += rng.choice([-1e-7, 1e-7, 1e-9, 1e-13], CASES)
        b = moved(b, rng.choice([0, 1e-7, 1e-12], CASES), rng.choice([0, -1e-7], CASES))
    elif kind == "sharing an edge":
        b = moved(a, rng.uniform(-1, 1, CASES) * a[:, 3], 0.0)
        b[:, 3:6] = a[:, 3:6]
        b[:, 6] = a[:, 6] + rng.integers(-2, 3, CASES) * np.pi
    elif kind == "far from the origin":
        a[:, :2] += 5e6
        b[:, :2] += 5e6
    elif kind == "thin and huge":
        a[:, 3], a[:, 4] = rng.uniform(100, 1000, CASES), rng.uniform(1e-2, 1e-1, CASES)
        b = moved(a, rng.uniform(-50, 50, CASES), rng.uniform(-1, 1, CASES) * a[:, 4])
        b[:, 6] += rng.normal(0, 1e-4, CASES)
    return a, b


@pytest.mark.parametrize(
    "kind",
    [
        "random",
        "touching",
        "nested",
        "rotated by 1e-7",
        "sharing an edge",
        "far from the origin",
        "thin and huge",
    ],
)
def test_iou_agrees_with_shapely(kind: str) -> None:
    a, b = oracle_pairs(kind)
    expected_bev, expected_3d = shapely_iou(a, b)
    bev, volumetric = rotated_iou_pairs(a, b, metric="bev"), rotated_iou_pairs(a, b, metric="3d")
    np.testing.assert_allclose(bev, expected_bev, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(volumetric, expected_3d, rtol=0, atol=TOLERANCE)
    assert kind == "touching" or (expected_bev > 0.01).mean() > 0.05  # the case is not vacuous


@pytest.mark.parametrize(("matrix", "pairs"), [(IOU_FUNCTIONS[0], IOU_FUNCTIONS[2]), IOU_FUNCTIONS[1::2]])
def test_matrix_is_every_pair(matrix: Any, pairs: Any) -> None:
    rng = np.random.default_rng(1)
    a, b = random_boxes(37, rng), random_boxes(23, rng)
    expected = pairs(np.repeat(a, 23, axis=0), np.tile(b, (37, 1))).reshape(37, 23)
    np.testing.assert_array_equal(matrix(a, b), expected)
    assert 0 < (expected > 0).mean() < 1  # the circle test had something to keep and something to drop


def test_identical_boxes_have_iou_exactly_one() -> None:
    boxes = random_boxes(2000, np.random.default_rng(2), spread_m=1e5)
    assert (rotated_iou_pairs(boxes, boxes, metric="bev") == 1).all()
    assert (rotated_iou_pairs(boxes, boxes, metric="3d") == 1).all()


def test_turns_that_map_a_box_onto_itself() -> None:
    box = np.array([[3.0, -2.0, 1.0, 4.0, 2.0, 1.5, 0.4]])
    half_turn = box + np.array([0, 0, 0, 0, 0, 0, np.pi])
    quarter_turn = box + np.array([0, 0, 0, 0, 0, 0, np.pi / 2])
    swapped = quarter_turn[:, [0, 1, 2, 4, 3, 5, 6]]
    assert rotated_iou_bev(box, half_turn)[0, 0] == pytest.approx(1, abs=1e-14)
    assert rotated_iou_3d(box, swapped)[0, 0] == pytest.approx(1, abs=1e-14)
    assert rotated_iou_bev(box, quarter_turn)[0, 0] == pytest.approx(4 / 12, abs=1e-14)


@pytest.mark.parametrize("offset", [(4.0, 0.0, 0.0), (0.0, 2.0, 0.0), (4.0, 2.0, 0.0), (0.0, 2.1, 0.0)])
def test_disjoint_and_touching_boxes_share_exactly_nothing(offset: tuple[float, float, float]) -> None:
    box = np.array([[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.0]])
    other = box + np.array([*offset, 0, 0, 0, 0])
    assert rotated_iou_bev(box, other)[0, 0] == 0
    assert rotated_iou_3d(box, other)[0, 0] == 0


def test_boxes_stacked_on_each_other_share_area_but_no_volume() -> None:
    box = np.array([[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.3]])
    above = box + np.array([0, 0, 1.5, 0, 0, 0, 0])
    assert rotated_iou_bev(box, above)[0, 0] == 1
    assert rotated_iou_3d(box, above)[0, 0] == 0


@pytest.mark.parametrize("flat", [(3,), (4,), (5,), (3, 4), (3, 4, 5)])
def test_degenerate_boxes_have_iou_zero(flat: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    a = random_boxes(CASES // 10, rng, spread_m=0.5)
    b = a.copy()
    b[:, flat] = 0
    for first, second in ((a, b), (b, a), (b, b)):
        assert (rotated_iou_pairs(first, second, metric="3d") == 0).all()
        if flat != (5,):  # without height the area is still there
            assert (rotated_iou_pairs(first, second, metric="bev") == 0).all()


@pytest.mark.parametrize("size", [1e-90, 1e-30, 1e30, 1e100])
def test_extreme_sizes_stay_in_range(size: float) -> None:
    box = np.array([[0.0, 0.0, 0.0, size, size, size, 0.3], [0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 1.0]])
    for iou in (rotated_iou_bev(box, box), rotated_iou_3d(box, box)):
        assert ((iou >= 0) & (iou <= 1)).all()
        assert iou[1, 1] == 1


finite_boxes = st.tuples(
    *[st.floats(-20, 20)] * 2,
    st.floats(-2, 2),
    *[st.floats(0.05, 12)] * 3,
    st.floats(-10, 10),
).map(lambda values: np.array([values]))
property_settings = settings(max_examples=100, derandomize=True)


@property_settings
@given(a=finite_boxes, b=finite_boxes)
def test_iou_is_symmetric_and_bounded(a: Boxes, b: Boxes) -> None:
    for function in (rotated_iou_bev, rotated_iou_3d):
        iou = float(function(a, b)[0, 0])
        assert 0 <= iou <= 1
        assert iou == pytest.approx(float(function(b, a)[0, 0]), abs=1e-12)


@property_settings
@given(
    a=finite_boxes,
    b=finite_boxes,
    shift=st.tuples(*[st.floats(-1000, 1000)] * 3),
    turn=st.floats(-math.pi, math.pi),
)
def test_iou_is_invariant_under_rigid_motion(
    a: Boxes, b: Boxes, shift: tuple[float, float, float], turn: float
) -> None:
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])

    def carried(box: Boxes) -> Boxes:
        return np.concatenate(
            (box[:, :2] @ rotation.T + shift[:2], box[:, 2:3] + shift[2], box[:, 3:6], box[:, 6:] + turn),
            axis=1,
        )

    for function in (rotated_iou_bev, rotated_iou_3d):
        before, after = function(a, b)[0, 0], function(carried(a), carried(b))[0, 0]
        assert before == pytest.approx(after, abs=1e-9)


@property_settings
@given(box=finite_boxes, shrink=st.floats(0.01, 1))
def test_iou_with_a_concentric_smaller_box_is_the_ratio_of_areas(box: Boxes, shrink: float) -> None:
    smaller = box.copy()
    smaller[:, 3:6] *= shrink
    assert rotated_iou_bev(box, box)[0, 0] == 1
    assert rotated_iou_bev(box, smaller)[0, 0] == pytest.approx(shrink**2, abs=1e-12)
    assert rotated_iou_3d(box, smaller)[0, 0] == pytest.approx(shrink**3, abs=1e-12)


@pytest.mark.parametrize("function", IOU_FUNCTIONS)
def test_result_has_the_kind_and_dtype_of_the_input(function: Any) -> None:
    boxes = random_boxes(3, np.random.default_rng(4))
    assert function(boxes, boxes).dtype == np.float64
    assert function(boxes.astype(np.float32), boxes.astype(np.float32)).dtype == np.float32
    assert function(boxes.astype(np.float32), boxes).dtype == np.float64
    assert isinstance(function(boxes.tolist(), boxes.tolist()), np.ndarray)
    tensor = torch.tensor(boxes, dtype=torch.float32, requires_grad=True)
    result = function(tensor, tensor)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == torch.float32
    assert not result.requires_grad
    assert isinstance(function(tensor, boxes), torch.Tensor)


def test_no_boxes() -> None:
    none, some = np.zeros((0, 7), np.float32), random_boxes(3, np.random.default_rng(5))
    assert rotated_iou_bev(none, some).shape == (0, 3)
    assert rotated_iou_3d(some, []).shape == (3, 0)
    assert rotated_iou_pairs(none, none, metric="bev").shape == (0,)
    assert box_corners_bev(none).shape == (0, 4, 2)
    assert box_corners_3d(none).shape == (0, 8, 3)
    assert points_in_boxes(np.zeros((5, 4)), none).shape == (0, 5)
    assert points_in_boxes(np.zeros((0, 4)), some).shape == (3, 0)


def test_read_only_strided_and_integer_arrays() -> None:
    wide = np.arange(28).reshape(2, 14).astype(np.float64)
    wide.flags.writeable = False
    view = wide[::-1, ::2]
    np.testing.assert_array_equal(rotated_iou_bev(view, view), rotated_iou_bev(view.copy(), view.copy()))
    assert points_in_boxes(wide, view).shape == (2, 2)
    assert rotated_iou_bev([[0, 0, 0, 4, 2, 1, 0]], [[2, 0, 0, 4, 2, 1, 0]])[0, 0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", range(7))
def test_values_that_are_not_finite_are_named(value: float, column: int) -> None:
    boxes = random_boxes(4, np.random.default_rng(6))
    wrong = boxes.copy()
    wrong[2, column] = value
    with pytest.raises(ValueError, match=rf"a\[2\]: {BOX_FIELDS[column]} must be finite"):
        rotated_iou_bev(wrong, boxes)
    with pytest.raises(ValueError, match=rf"b\[2\]: {BOX_FIELDS[column]} must be finite"):
        rotated_iou_pairs(boxes, wrong, metric="3d")


@pytest.mark.parametrize("field", ["length", "width", "height"])
def test_negative_sizes_are_named(field: str) -> None:
    boxes = random_boxes(4, np.random.default_rng(6))
    boxes[3, BOX_FIELDS.index(field)] = -0.5
    with pytest.raises(ValueError, match=rf"boxes\[3\]: {field} must be .*not negative.*got -0.5"):
        box_corners_bev(boxes)


def test_wrong_shapes_say_what_was_expected() -> None:
    boxes = random_boxes(4, np.random.default_rng(6))
    with pytest.raises(ValueError, match=r"a must have shape \(M, 7\).*got \(4, 6\)"):
        rotated_iou_bev(boxes[:, :6], boxes)
    with pytest.raises(ValueError, match=r"b must have shape \(M, 7\).*got \(7,\)"):
        rotated_iou_3d(boxes, boxes[0])
    with pytest.raises(ValueError, match=r"same number of boxes.*got 4 and 3"):
        rotated_iou_pairs(boxes, boxes[:3], metric="bev")
    with pytest.raises(ValueError, match=r"points must have shape \(N, 3 or more\), got \(4, 2\)"):
        points_in_boxes(boxes[:, :2], boxes)
    with pytest.raises(ValueError, match="rows of equal length"):
        box_corners_bev([[1, 2], [3]])
    with pytest.raises(TypeError, match="real numbers"):
        box_corners_bev(boxes.astype(complex))
    with pytest.raises(TypeError, match="real numbers"):
        checked_boxes(torch.zeros(2, 7, dtype=torch.bool))


def test_clipping_is_chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = np.tile([[0.0, 0, 0, 4, 2, 1, 0.3]], (50, 1))
    expected = rotated_iou_bev(boxes, boxes)
    sizes: list[int] = []
    clip = boxes_module._iou_of_chunk

    def recording(a: Any, b: Any, *, metric: Any) -> Any:
        sizes.append(len(a))
        return clip(a, b, metric=metric)

    monkeypatch.setattr(boxes_module, "_iou_of_chunk", recording)
    monkeypatch.setattr(boxes_module, "_CLIPPED_PAIRS_PER_CHUNK", {"cpu": 37})
    monkeypatch.setattr(boxes_module, "_TABLE_ENTRIES_PER_CHUNK", 333)
    np.testing.assert_array_equal(rotated_iou_bev(boxes, boxes), expected)
    assert max(sizes) == 37
    assert sum(sizes) == 2500


def test_corners_of_a_known_box() -> None:
    box = np.array([[1.0, 2.0, 3.0, 4.0, 2.0, 1.0, math.pi / 2]], dtype=np.float32)
    flat = [[0, 4], [0, 0], [2, 0], [2, 4]]  # facing +y: front left is at smaller x
    bev, corners = box_corners_bev(box), box_corners_3d(box)
    assert bev.dtype == corners.dtype == np.float32
    np.testing.assert_allclose(bev[0], flat, atol=1e-6)
    np.testing.assert_allclose(corners[0, :, :2], flat + flat, atol=1e-6)
    np.testing.assert_allclose(corners[0, :, 2], [2.5] * 4 + [3.5] * 4, atol=1e-6)
    assert isinstance(box_corners_3d(torch.from_numpy(box)), torch.Tensor)


def test_corners_run_counter_clockwise() -> None:
    boxes = random_boxes(200, np.random.default_rng(8))
    np.testing.assert_allclose(box_corners_bev(boxes), rectangle(boxes), atol=1e-12)
    assert shapely.is_ccw(shapely.linearrings(box_corners_bev(boxes))).all()


def test_points_in_boxes_agrees_with_shapely(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    boxes = random_boxes(20, rng)
    points = rng.uniform(-6, 6, (2000, 4)) * [1, 1, 0.3, 1]
    polygons = shapely.polygons(rectangle(boxes))
    expected = shapely.contains_xy(polygons[:, None], points[None, :, 0], points[None, :, 1])
    expected &= np.abs(points[:, 2] - boxes[:, 2:3]) <= boxes[:, 5:6] / 2
    assert expected.any()
    np.testing.assert_array_equal(points_in_boxes(points, boxes), expected)
    monkeypatch.setattr(boxes_module, "_TABLE_ENTRIES_PER_CHUNK", 4001)
    np.testing.assert_array_equal(points_in_boxes(points, boxes), expected)
    assert isinstance(points_in_boxes(torch.from_numpy(points), boxes), torch.Tensor)


def test_faces_belong_to_the_box_and_nan_points_to_none() -> None:
    box = [[0.0, 0.0, 0.0, 4.0, 2.0, 1.0, 0.0]]
    points = [[2.0, 1.0, 0.5], [2.0001, 0, 0], [0, 0, 0.51], [np.nan, 0, 0], [0, 0, np.inf], [0, 0, 0]]
    assert points_in_boxes(points, box).tolist() == [[True, False, False, False, False, True]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_wrap_angle_stays_in_the_half_open_interval(dtype: Any) -> None:
    edges = np.array([0, 1, 2, 3, -1, -2, -3, 101, -100]) * np.pi
    angles = np.concatenate((edges, np.nextafter(edges, 1e9), np.nextafter(edges, -1e9))).astype(dtype)
    wrapped = wrap_angle(angles)
    assert wrapped.dtype == dtype
    assert (wrapped > -dtype(np.pi)).all()
    assert (wrapped <= dtype(np.pi)).all()
    np.testing.assert_array_equal(wrap_angle(wrapped), wrapped)
    np.testing.assert_array_equal(wrap_angle(torch.from_numpy(angles)).numpy(), wrapped)


@property_settings
@given(angle=st.floats(-1e4, 1e4))
def test_wrap_angle_keeps_the_direction(angle: float) -> None:
    wrapped = wrap_angle(angle)
    assert isinstance(wrapped, float)
    assert -math.pi < wrapped <= math.pi
    assert math.cos(wrapped - angle) == pytest.approx(1, abs=1e-12)
    if -math.pi < angle <= math.pi:
        assert wrapped == angle


def test_wrap_angle_of_half_turns_and_integers() -> None:
    assert wrap_angle(math.pi) == math.pi
    assert wrap_angle(-math.pi) == math.pi
    assert wrap_angle(3 * math.pi) == pytest.approx(math.pi)
    assert wrap_angle(np.array([4])).tolist() == pytest.approx([4 - 2 * math.pi])
    assert math.isnan(wrap_angle(math.inf))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu_agrees_with_cpu() -> None:
    rng = np.random.default_rng(10)
    a, b = torch.from_numpy(random_boxes(301, rng)), torch.from_numpy(random_boxes(77, rng))
    for function in (rotated_iou_bev, rotated_iou_3d):
        result = function(a.cuda(), b.cuda())
        assert result.device.type == "cuda"
        torch.testing.assert_close(result.cpu(), function(a, b), rtol=0, atol=1e-12)
    points = torch.from_numpy(rng.uniform(-6, 6, (5000, 4)))
    assert torch.equal(points_in_boxes(points.cuda(), a.cuda()).cpu(), points_in_boxes(points, a))
    with pytest.raises(ValueError, match="one device"):
        rotated_iou_bev(a, b.cuda())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_pairs_never_wait_for_the_gpu() -> None:
    boxes = torch.from_numpy(random_boxes(64, np.random.default_rng(11))).cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        boxes_module.iou_of_checked_pairs(boxes, boxes.flip(0), metric="3d")
    finally:
        torch.cuda.set_sync_debug_mode("default")
