"""Rotated boxes: corners, points in boxes, exact intersection over union.

Boxes are ``(x, y, z, length, width, height, yaw)``: metres and radians in the LiDAR frame, z at the box
centre, yaw counter-clockwise from +x. All computation is in float64 and relative to the boxes, so large map
coordinates lose no accuracy. Tensors give tensors on the same device; numpy arrays and nested lists give
numpy arrays. Results are float32 if all inputs are float32, else float64. There are no gradients.

The intersection of two rectangles is exact up to rounding, without sampling or vertex lists. In the frame of
box ``b``, clamping to the rectangle ``b`` is a retraction of the plane. The straight path from an outside
point to its image never crosses the interior of ``b``. The clamped boundary of ``a`` therefore has the same
winding number around every interior point of ``b`` as the boundary of ``a``. Green's theorem gives the area:

    area(a ∩ b) = ∮ X dY,    X = clamp(x, ±length_b / 2),    Y = clamp(y, ±width_b / 2)

along the four edges of ``a``. An edge contributes only within the slab ``|y| <= width_b / 2``. There X is
piecewise linear with at most two kinks, so three trapezoids are exact. Parametric line clipping gives the
edge parameters (Liang and Barsky, "A New Concept and Method for Line Clipping", ACM Transactions on Graphics
3(1), 1984). A misplaced kink on a nearly parallel edge changes the area by rounding only, so identical,
touching and slightly rotated boxes stay accurate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ArrayRows = npt.NDArray[Any] | Sequence[Sequence[float]]
Rows = Tensor | ArrayRows
FloatResult = npt.NDArray[np.floating[Any]]
Metric = Literal["bev", "3d"]
Angle = TypeVar("Angle", Tensor, npt.NDArray[Any], float)

#: Names of the seven columns of a box, in order.
BOX_FIELDS = ("x", "y", "z", "length", "width", "height", "yaw")

#: Largest magnitude of a box field; beyond it the product of three sizes would leave float64.
MAX_FIELD = 1e100

# Sizes of chunks. Intermediates take about 1 kB per clipped pair and 60 bytes per entry of a pairwise table.
_CLIPPED_PAIRS_PER_CHUNK = {"cpu": 1 << 14, "cuda": 1 << 19}
_TABLE_ENTRIES_PER_CHUNK = 1 << 18

# Margin of circle tests, so that rounding never drops an overlapping pair.
_CIRCLE_SLACK = 1.0 + 1e-9


def wrap_angle(angle_rad: Angle) -> Angle:
    """Wrap angles to (-pi, pi]; angles within the interval are unchanged, bit for bit.

    Args:
        angle_rad: any shape, radians; integers become float64.

    Returns:
        The same type, shape and floating dtype. NaN and infinite angles give NaN.
    """
    if isinstance(angle_rad, Tensor):
        return _wrap(angle_rad if angle_rad.is_floating_point() else angle_rad.double())
    if isinstance(angle_rad, np.ndarray):
        native = angle_rad if angle_rad.dtype.kind == "f" else angle_rad.astype(np.float64)
        if native.dtype == np.float32 and (np.abs(native) < _ALREADY_WRAPPED).all():
            return native.copy()
        return np.asarray(_wrap(torch.from_numpy(np.array(native))).numpy())
    return float(_wrap(torch.tensor(angle_rad, dtype=torch.float64)))


def along_axes(boxes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the smallest boxes with yaw 0 that enclose boxes (M, 7), of the same dtype."""
    made = np.array(boxes)
    cosine, sine = np.abs(np.cos(made[:, 6])), np.abs(np.sin(made[:, 6]))
    made[:, 3] = cosine * boxes[:, 3] + sine * boxes[:, 4]
    made[:, 4] = sine * boxes[:, 3] + cosine * boxes[:, 4]
    made[:, 6] = 0
    return made


@overload
def box_corners_bev(boxes: Tensor) -> Tensor: ...
@overload
def box_corners_bev(boxes: ArrayRows) -> FloatResult: ...
def box_corners_bev(boxes: Rows) -> Tensor | FloatResult:
    """Return the corners of boxes seen from above.

    Args:
        boxes: (M, 7), LiDAR frame.

    Returns:
        (M, 4, 2) x and y in metres, LiDAR frame, counter-clockwise from above: front left, rear left,
        rear right, front right.

    Raises:
        ValueError: wrong shape, a value that is not finite, or a negative size.
    """
    checked = checked_boxes(boxes)
    return _in_kind_of(_corners_bev(checked), boxes)


@overload
def box_corners_3d(boxes: Tensor) -> Tensor: ...
@overload
def box_corners_3d(boxes: ArrayRows) -> FloatResult: ...
def box_corners_3d(boxes: Rows) -> Tensor | FloatResult:
    """Return the corners of boxes in space.

    Args:
        boxes: (M, 7), LiDAR frame.

    Returns:
        (M, 8, 3) x, y, z in metres, LiDAR frame: the four bottom corners in the order of
        ``box_corners_bev``, then the four top corners in the same order.

    Raises:
        ValueError: wrong shape, a value that is not finite, or a negative size.
    """
    checked = checked_boxes(boxes)
    flat = _corners_bev(checked)
    half_height = checked[:, 5] / 2
    bottom, top = checked[:, 2] - half_height, checked[:, 2] + half_height
    z = torch.stack((bottom, top), dim=1).repeat_interleave(4, dim=1)
    return _in_kind_of(torch.cat((torch.cat((flat, flat), dim=1), z[:, :, None]), dim=2), boxes)


@overload
def points_in_boxes(points: Tensor, boxes: Tensor) -> Tensor: ...
@overload
def points_in_boxes(points: ArrayRows, boxes: ArrayRows) -> npt.NDArray[np.bool_]: ...
def points_in_boxes(points: Rows, boxes: Rows) -> Tensor | npt.NDArray[np.bool_]:
    """Return a mask (M, N) of the points in each box.

    Faces belong to the box, up to rounding. Points with NaN or infinite coordinates are in no box.

    Args:
        points: (N, 3 or more): x, y, z in metres, LiDAR frame; further columns are ignored.
        boxes: (M, 7), LiDAR frame.

    Returns:
        (M, N) bool; a tensor if either input is one.

    Raises:
        ValueError: wrong shape, or a box value that is not finite, or a negative size.
    """
    located = _float64_rows(points, name="points")
    if located.ndim != 2 or located.shape[1] < 3:
        raise ValueError(f"points must have shape (N, 3 or more), got {tuple(located.shape)}")
    checked = checked_boxes(boxes)
    _require_one_device(located, checked, names=("points", "boxes"))
    x, y, z = located[:, :3].t().contiguous()
    inside = torch.empty((len(checked), len(located)), dtype=torch.bool, device=located.device)
    for rows in _chunks(len(checked), max(1, _TABLE_ENTRIES_PER_CHUNK // max(1, len(located)))):
        inside[rows] = _contains(checked[rows], x, y, z)
    if _is_tensor(points, boxes):
        return inside
    return np.asarray(inside.numpy(), dtype=np.bool_)


@overload
def rotated_iou_bev(a: Tensor, b: Tensor) -> Tensor: ...
@overload
def rotated_iou_bev(a: ArrayRows, b: ArrayRows) -> FloatResult: ...
def rotated_iou_bev(a: Rows, b: Rows) -> Tensor | FloatResult:
    """Return the exact bird's-eye IoU of every box of ``a`` with every box of ``b``.

    Args:
        a: (N, 7), LiDAR frame.
        b: (M, 7), LiDAR frame.

    Returns:
        (N, M) in [0, 1]; 0 if a box has no area. A tensor if either input is one.

    Raises:
        ValueError: wrong shape, different devices, a value that is not finite, or a negative size.
    """
    return _iou_matrix(a, b, metric="bev")


@overload
def rotated_iou_3d(a: Tensor, b: Tensor) -> Tensor: ...
@overload
def rotated_iou_3d(a: ArrayRows, b: ArrayRows) -> FloatResult: ...
def rotated_iou_3d(a: Rows, b: Rows) -> Tensor | FloatResult:
    """Return the exact volumetric IoU of every box of ``a`` with every box of ``b``.

    Args:
        a: (N, 7), LiDAR frame.
        b: (M, 7), LiDAR frame.

    Returns:
        (N, M) in [0, 1]; 0 if a box has no volume. A tensor if either input is one.

    Raises:
        ValueError: as ``rotated_iou_bev``.
    """
    return _iou_matrix(a, b, metric="3d")


@overload
def rotated_iou_pairs(a: Tensor, b: Tensor, *, metric: Metric) -> Tensor: ...
@overload
def rotated_iou_pairs(a: ArrayRows, b: ArrayRows, *, metric: Metric) -> FloatResult: ...
def rotated_iou_pairs(a: Rows, b: Rows, *, metric: Metric) -> Tensor | FloatResult:
    """Return the exact IoU of row i of ``a`` with row i of ``b``.

    Args:
        a: (N, 7), LiDAR frame.
        b: (N, 7), LiDAR frame.
        metric: ``"bev"`` compares areas seen from above, ``"3d"`` volumes.

    Returns:
        (N,) in [0, 1]; 0 if a box has no area or volume. A tensor if either input is one.

    Raises:
        ValueError: as ``rotated_iou_bev``, or ``a`` and ``b`` differ in length.
    """
    first, second = _checked_pair(a, b)
    if len(first) != len(second):
        raise ValueError(f"a and b must have the same number of boxes, got {len(first)} and {len(second)}")
    return _in_kind_of(iou_of_checked_pairs(first, second, metric=metric), a, b)


def checked_boxes(boxes: Rows, *, name: str = "boxes") -> Tensor:
    """Check boxes and convert them to a float64 tensor.

    Args:
        boxes: (M, 7) tensor, numpy array or nested list; an empty 1-D input means no boxes.
        name: name of the argument in messages.

    Returns:
        (M, 7) float64 tensor on the device of the input, without gradient. A float64 tensor is not copied.

    Raises:
        TypeError: values that are not real numbers.
        ValueError: wrong shape, a value that is not finite, or a negative size.
    """
    rows = _float64_rows(boxes, name=name)
    if rows.shape == (0,):
        rows = rows.reshape(0, len(BOX_FIELDS))
    if rows.ndim != 2 or rows.shape[1] != len(BOX_FIELDS):
        raise ValueError(f"{name} must have shape (M, 7): {', '.join(BOX_FIELDS)}; got {tuple(rows.shape)}")
    wrong = ~(rows.abs() <= MAX_FIELD)  # the negated comparison also catches NaN
    wrong[:, 3:6] |= rows[:, 3:6] < 0
    if bool(wrong.any()):
        row, column = (int(index) for index in wrong.nonzero()[0])
        wanted = "finite and not negative" if 3 <= column < 6 else "finite"
        raise ValueError(
            f"{name}[{row}]: {BOX_FIELDS[column]} must be {wanted} (magnitude at most {MAX_FIELD:g}),"
            f" got {float(rows[row, column])}"
        )
    return rows


def iou_of_checked_pairs(a: Tensor, b: Tensor, *, metric: Metric) -> Tensor:
    """Return the IoU of aligned rows, without checks: (P,) float64 in [0, 1].

    Operations are elementwise: no read-back to the host, and the same bits for a pair in any batch.

    Args:
        a: (P, 7) float64, as ``checked_boxes`` returns it.
        b: (P, 7) float64, same device.
        metric: ``"bev"`` for areas, ``"3d"`` for volumes.
    """
    if len(a) == 0:
        return a.new_zeros(0)
    chunk = _CLIPPED_PAIRS_PER_CHUNK.get(a.device.type, _CLIPPED_PAIRS_PER_CHUNK["cpu"])
    return torch.cat([_iou_of_chunk(a[rows], b[rows], metric=metric) for rows in _chunks(len(a), chunk)])


def circumscribed_radius(boxes: Tensor) -> Tensor:
    """Return the radius (M,) in metres of the circle around each box (M, 7) seen from above."""
    return torch.hypot(boxes[:, 3], boxes[:, 4]) / 2


def circles_meet(offset_x: Tensor, offset_y: Tensor, reach: Tensor) -> Tensor:
    """Return True for circles that can overlap; ``reach`` is the sum of their radii."""
    return torch.hypot(offset_x, offset_y) <= reach * _CIRCLE_SLACK


def _iou_matrix(a: Rows, b: Rows, *, metric: Metric) -> Tensor | FloatResult:
    first, second = _checked_pair(a, b)
    result = first.new_zeros((len(first), len(second)))
    for rows in _chunks(len(first), max(1, _TABLE_ENTRIES_PER_CHUNK // max(1, len(second)))):
        row, column = _candidates(first[rows], second)
        result[rows.start + row, column] = iou_of_checked_pairs(
            first[rows.start + row], second[column], metric=metric
        )
    return _in_kind_of(result, a, b)


def _checked_pair(a: Rows, b: Rows) -> tuple[Tensor, Tensor]:
    first, second = checked_boxes(a, name="a"), checked_boxes(b, name="b")
    _require_one_device(first, second, names=("a", "b"))
    return first, second


def _candidates(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return pairs of rows to clip: all pairs on a GPU, pairs of overlapping circles on a CPU."""
    if a.device.type != "cpu":
        every = torch.arange(len(a) * len(b), device=a.device)
        return every // max(1, len(b)), every % max(1, len(b))
    meet = circles_meet(
        a[:, 0, None] - b[:, 0],
        a[:, 1, None] - b[:, 1],
        circumscribed_radius(a)[:, None] + circumscribed_radius(b),
    )
    row, column = meet.nonzero(as_tuple=True)
    return row, column


def _iou_of_chunk(a: Tensor, b: Tensor, *, metric: Metric) -> Tensor:
    fields_a, fields_b = a.t().contiguous(), b.t().contiguous()
    shared = _shared_area(fields_a, fields_b)
    size_a, size_b = fields_a[3] * fields_a[4], fields_b[3] * fields_b[4]
    if metric == "3d":
        shared = shared * _shared_height(fields_a, fields_b)
        size_a, size_b = size_a * fields_a[5], size_b * fields_b[5]
    smaller = torch.minimum(size_a, size_b)
    shared = torch.minimum(shared, smaller)
    # A box without area or volume has IoU 0; the denominator 1 avoids 0 / 0.
    union = torch.where(smaller > 0, size_a + size_b - shared, 1.0)
    return torch.where(smaller > 0, shared / union, 0.0).clamp(0.0, 1.0)


def _shared_height(a: Tensor, b: Tensor) -> Tensor:
    """Return the overlap (P,) of the height intervals in metres, from fields (7, P)."""
    offset, half_a, half_b = b[2] - a[2], a[5] / 2, b[5] / 2
    upper = torch.minimum(half_a, offset + half_b)
    lower = torch.maximum(-half_a, offset - half_b)
    return (upper - lower).clamp_min(0.0)


def _shared_area(a: Tensor, b: Tensor) -> Tensor:
    """Return the intersection area (P,) in square metres, from fields (7, P); see the module docstring."""
    half_a, half_b = a[3:5] / 2, b[3:5] / 2
    offset_x, offset_y = a[0] - b[0], a[1] - b[1]
    cos_b, sin_b = torch.cos(b[6]), torch.sin(b[6])
    centre_x = cos_b * offset_x + sin_b * offset_y
    centre_y = cos_b * offset_y - sin_b * offset_x
    turn = a[6] - b[6]
    cos, sin = torch.cos(turn), torch.sin(turn)

    along, across = _rectangle(half_a[0], half_a[1])
    x = centre_x + (cos * along - sin * across)
    y = centre_y + (sin * along + cos * across)
    area = _clamped_boundary_integral(x, y, half_b[0], half_b[1]).clamp_min(0.0)
    apart = _separated(centre_x, centre_y, cos, sin, half_a, half_b)
    return torch.where(apart, 0.0, area)


def _clamped_boundary_integral(x: Tensor, y: Tensor, half_length: Tensor, half_width: Tensor) -> Tensor:
    """Integrate X dY along polygons clamped to a rectangle at the origin: (P,) signed areas.

    Args:
        x, y: (4, P) vertices, counter-clockwise, in the frame of the rectangle.
        half_length, half_width: (P,) half sizes of the rectangle.
    """
    next_x, next_y = x.roll(-1, 0), y.roll(-1, 0)
    enter, leave = _slab_crossing(y, next_y, half_width)
    enter, leave = enter.clamp(0.0, 1.0), leave.clamp(0.0, 1.0)
    kink_in, kink_out = _slab_crossing(x, next_x, half_length)
    kink_in, kink_out = kink_in.clamp(enter, leave), kink_out.clamp(enter, leave)

    # torch.lerp is exact at 0 and 1, so consecutive edges join without a gap.
    parameters = torch.stack((enter, kink_in, kink_out, leave))
    clamped_x = torch.lerp(x, next_x, parameters).clamp(-half_length, half_length)
    clamped_y = torch.lerp(y, next_y, parameters).clamp(-half_width, half_width)
    return ((clamped_x[1:] + clamped_x[:-1]) * clamped_y.diff(dim=0)).sum(dim=(0, 1)) / 2


def _slab_crossing(start: Tensor, end: Tensor, half_width: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parameters at which segments cross -half_width and +half_width, the lower one first.

    For segments parallel to the slab any parameter is right; dividing by infinity gives 0.
    """
    step = end - start
    step = torch.where(step == 0, torch.inf, step)
    below, above = (-half_width - start) / step, (half_width - start) / step
    return torch.minimum(below, above), torch.maximum(below, above)


def _separated(
    centre_x: Tensor, centre_y: Tensor, cos: Tensor, sin: Tensor, half_a: Tensor, half_b: Tensor
) -> Tensor:
    """Return True if an axis of either rectangle separates them, as for disjoint and touching boxes.

    Separating axis test for oriented boxes (Gottschalk, Lin and Manocha, "OBBTree", SIGGRAPH 1996).

    Args:
        centre_x, centre_y: (P,) centre of a in the frame of b.
        cos, sin: (P,) of the yaw of a seen from b.
        half_a, half_b: (2, P) half lengths and half widths.
    """
    abs_cos, abs_sin = cos.abs(), sin.abs()
    apart = centre_x.abs() >= half_b[0] + (half_a[0] * abs_cos + half_a[1] * abs_sin)
    apart |= centre_y.abs() >= half_b[1] + (half_a[0] * abs_sin + half_a[1] * abs_cos)
    along_a, across_a = cos * centre_x + sin * centre_y, cos * centre_y - sin * centre_x
    apart |= along_a.abs() >= half_a[0] + (half_b[0] * abs_cos + half_b[1] * abs_sin)
    apart |= across_a.abs() >= half_a[1] + (half_b[0] * abs_sin + half_b[1] * abs_cos)
    return apart


def _rectangle(half_length: Tensor, half_width: Tensor) -> tuple[Tensor, Tensor]:
    """Return corners (4, M), (4, M) of rectangles at the origin, counter-clockwise from the front left."""
    along = torch.stack((half_length, -half_length, -half_length, half_length))
    across = torch.stack((half_width, half_width, -half_width, -half_width))
    return along, across


def _corners_bev(boxes: Tensor) -> Tensor:
    """Return corners (M, 4, 2) of boxes (M, 7) float64."""
    x, y, _, length, width, _, yaw = boxes.unbind(1)
    along, across = _rectangle(length / 2, width / 2)
    cos, sin = torch.cos(yaw), torch.sin(yaw)
    corner_x = x + (cos * along - sin * across)
    corner_y = y + (sin * along + cos * across)
    return torch.stack((corner_x.t(), corner_y.t()), dim=2)


def _contains(boxes: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Return a mask (M, N) of points in boxes (M, 7)."""
    centre_x, centre_y, centre_z, length, width, height, yaw = boxes[:, :, None].unbind(1)
    offset_x, offset_y = x - centre_x, y - centre_y
    cos, sin = torch.cos(yaw), torch.sin(yaw)
    inside = (cos * offset_x + sin * offset_y).abs() <= length / 2
    inside &= (cos * offset_y - sin * offset_x).abs() <= width / 2
    inside &= (z - centre_z).abs() <= height / 2
    return inside


#: Angles below this are in (-pi, pi] even after rounding.
_ALREADY_WRAPPED = np.float32(3.1415925)


def _wrap(angle_rad: Tensor) -> Tensor:
    angle_rad = angle_rad.detach()
    exact = angle_rad.double()
    turns = torch.ceil((exact - math.pi) / (2 * math.pi))
    wrapped = (exact - turns * (2 * math.pi)).clamp(-math.pi, math.pi).to(angle_rad.dtype)
    # Rounding to the dtype may give the excluded end.
    end = torch.full_like(angle_rad, math.pi)
    wrapped = torch.where(wrapped <= -end, end, wrapped)
    return torch.where((angle_rad > -end) & (angle_rad <= end), angle_rad, wrapped)


def _float64_rows(rows: Rows, *, name: str) -> Tensor:
    if isinstance(rows, Tensor):
        if rows.is_complex() or rows.dtype == torch.bool:
            raise TypeError(f"{name} must hold real numbers, got {rows.dtype}")
        return rows.detach().to(torch.float64)
    try:
        values = np.asarray(rows)
    except ValueError as error:  # ragged lists
        raise ValueError(f"{name} must be rows of equal length: {error}") from error
    if values.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers, got {values.dtype} ({type(rows).__name__})")
    return torch.from_numpy(np.array(values, dtype=np.float64, order="C"))


def _in_kind_of(result: Tensor, *inputs: Rows) -> Tensor | FloatResult:
    """Convert the result to the type and precision of the inputs."""
    single = all(getattr(item, "dtype", None) in (torch.float32, np.dtype(np.float32)) for item in inputs)
    typed = result.float() if single else result
    if _is_tensor(*inputs):
        return typed
    array: FloatResult = typed.numpy()
    return array


def _is_tensor(*inputs: Rows) -> bool:
    return any(isinstance(item, Tensor) for item in inputs)


def _require_one_device(first: Tensor, second: Tensor, *, names: tuple[str, str]) -> None:
    if first.device != second.device:
        raise ValueError(
            f"{names[0]} and {names[1]} must be on one device, got {first.device} and {second.device}"
        )


def _chunks(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
