"""Exact overlap of rotated boxes as a Triton device function, with the arithmetic of ``perception.boxes``."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _clamp(value, low, high):
    return tl.minimum(tl.maximum(value, low), high)


@triton.jit
def _lerp(start, end, share):
    """As torch.lerp: exact at both ends."""
    step = end - start
    return tl.where(share < 0.5, start + share * step, end - step * (1.0 - share))


@triton.jit
def _edge(x, y, next_x, next_y, half_length, half_width):
    """Twice the part of one edge in the integral of X dY along the clamped boundary."""
    infinite = float("inf")
    step_y = next_y - y
    step_y = tl.where(step_y == 0, infinite, step_y)
    below, above = (-half_width - y) / step_y, (half_width - y) / step_y
    enter = _clamp(tl.minimum(below, above), 0.0, 1.0)
    leave = _clamp(tl.maximum(below, above), 0.0, 1.0)
    step_x = next_x - x
    step_x = tl.where(step_x == 0, infinite, step_x)
    below, above = (-half_length - x) / step_x, (half_length - x) / step_x
    kink_in = _clamp(tl.minimum(below, above), enter, leave)
    kink_out = _clamp(tl.maximum(below, above), enter, leave)
    x0 = _clamp(_lerp(x, next_x, enter), -half_length, half_length)
    x1 = _clamp(_lerp(x, next_x, kink_in), -half_length, half_length)
    x2 = _clamp(_lerp(x, next_x, kink_out), -half_length, half_length)
    x3 = _clamp(_lerp(x, next_x, leave), -half_length, half_length)
    y0 = _clamp(_lerp(y, next_y, enter), -half_width, half_width)
    y1 = _clamp(_lerp(y, next_y, kink_in), -half_width, half_width)
    y2 = _clamp(_lerp(y, next_y, kink_out), -half_width, half_width)
    y3 = _clamp(_lerp(y, next_y, leave), -half_width, half_width)
    return (x1 + x0) * (y1 - y0) + (x2 + x1) * (y2 - y1) + (x3 + x2) * (y3 - y2)


@triton.jit
def iou_of(ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, VOLUME: tl.constexpr):
    """IoU in [0, 1] of boxes a and b, float64 fields of any shape that broadcasts."""
    half_al, half_aw, half_bl, half_bw = al / 2, aw / 2, bl / 2, bw / 2
    offset_x, offset_y = ax - bx, ay - by
    cos_b, sin_b = tl.cos(byaw), tl.sin(byaw)
    centre_x = cos_b * offset_x + sin_b * offset_y
    centre_y = cos_b * offset_y - sin_b * offset_x
    turn = ayaw - byaw
    cos, sin = tl.cos(turn), tl.sin(turn)
    # Corners of a in the frame of b: front left, rear left, rear right, front right.
    x_0 = centre_x + (cos * half_al - sin * half_aw)
    y_0 = centre_y + (sin * half_al + cos * half_aw)
    x_1 = centre_x + (-cos * half_al - sin * half_aw)
    y_1 = centre_y + (-sin * half_al + cos * half_aw)
    x_2 = centre_x + (-cos * half_al + sin * half_aw)
    y_2 = centre_y + (-sin * half_al - cos * half_aw)
    x_3 = centre_x + (cos * half_al + sin * half_aw)
    y_3 = centre_y + (sin * half_al - cos * half_aw)
    area = _edge(x_0, y_0, x_1, y_1, half_bl, half_bw)
    area += _edge(x_1, y_1, x_2, y_2, half_bl, half_bw)
    area += _edge(x_2, y_2, x_3, y_3, half_bl, half_bw)
    area += _edge(x_3, y_3, x_0, y_0, half_bl, half_bw)
    shared = tl.maximum(area / 2, 0.0)
    abs_cos, abs_sin = tl.abs(cos), tl.abs(sin)
    along, across = cos * centre_x + sin * centre_y, cos * centre_y - sin * centre_x
    apart = tl.abs(centre_x) >= half_bl + (half_al * abs_cos + half_aw * abs_sin)
    apart = apart | (tl.abs(centre_y) >= half_bw + (half_al * abs_sin + half_aw * abs_cos))
    apart = apart | (tl.abs(along) >= half_al + (half_bl * abs_cos + half_bw * abs_sin))
    apart = apart | (tl.abs(across) >= half_aw + (half_bl * abs_sin + half_bw * abs_cos))
    shared = tl.where(apart, 0.0, shared)
    size_a, size_b = al * aw, bl * bw
    if VOLUME:
        rise = bz - az
        upper = tl.minimum(ah / 2, rise + bh / 2)
        lower = tl.maximum(-ah / 2, rise - bh / 2)
        shared = shared * tl.maximum(upper - lower, 0.0)
        size_a, size_b = size_a * ah, size_b * bh
    smaller = tl.minimum(size_a, size_b)
    shared = tl.minimum(shared, smaller)
    union = tl.where(smaller > 0, size_a + size_b - shared, 1.0)
    return _clamp(tl.where(smaller > 0, shared / union, 0.0), 0.0, 1.0)
