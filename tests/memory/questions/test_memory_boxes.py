"""Relations between boxes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapely.affinity import rotate, translate
from shapely.geometry import box as rectangle

from memory.questions.boxes import (
    Box,
    gap_m,
    is_above,
    is_between,
    is_inside,
    is_next_to,
    is_on,
    is_under,
    may_be_under,
    side_of,
    side_of_robot,
)

TABLE = Box(2.0, 1.0, 0.4, 1.6, 0.8, 0.8, 0.0)
SIDES = st.floats(0.1, 5.0)
PLACES = st.floats(-10.0, 10.0)
BOXES = st.builds(Box, PLACES, PLACES, PLACES, SIDES, SIDES, SIDES, st.floats(-7.0, 7.0))


def shape(box: Box) -> object:
    flat = rectangle(-box.length / 2, -box.width / 2, box.length / 2, box.width / 2)
    return translate(rotate(flat, box.yaw, origin=(0, 0), use_radians=True), box.x, box.y)


@given(BOXES, BOXES)
def test_gaps_are_those_of_shapely(one: Box, other: Box) -> None:
    assert gap_m(one, other) == pytest.approx(shape(one).distance(shape(other)), abs=1e-6)


def test_the_gap_of_points_is_their_distance() -> None:
    assert gap_m(Box(0, 0, 0, 0, 0, 0, 0), Box(3, 4, 0, 0, 0, 0, 1)) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("z", "height", "expected"),
    [(0.85, 0.1, True), (1.0, 0.1, True), (1.1, 0.1, False), (0.5, 0.1, True), (0.3, 0.1, False)],
)
def test_on_is_from_half_the_height_to_a_little_above(z: float, height: float, expected: bool) -> None:
    assert is_on(Box(2.5, 1.2, z, 0.1, 0.1, height, 0.0), TABLE) is expected


def test_on_and_inside_need_the_outline() -> None:
    turned = TABLE._replace(yaw=math.pi / 2)
    cup = Box(2.7, 1.0, 0.85, 0.1, 0.1, 0.1, 0.0)
    assert is_on(cup, TABLE)
    assert not is_on(cup, turned)
    assert is_inside(cup._replace(z=0.4), TABLE)
    assert not is_inside(cup._replace(z=0.4), turned)
    assert not is_inside(TABLE, cup)


def test_under_and_above_are_opposites_and_need_both_sizes() -> None:
    cup, ball = Box(2.5, 1.2, 0.85, 0.1, 0.1, 0.1, 0.0), Box(2.5, 1.2, 0.1, 0.2, 0.2, 0.2, 0.0)
    shelf = Box(2.0, 1.0, 1.9, 1.0, 0.3, 0.2, 0.0)
    for low, high in ((TABLE, cup), (TABLE, shelf), (cup, shelf), (ball, shelf)):
        assert is_under(low, high)
        assert is_above(high, low)
        assert not is_under(high, low)
        assert not may_be_under(low, high)
    assert not is_under(TABLE, cup._replace(x=3.0))
    # The box of a table reaches to the floor, so that of a ball below it lies inside.
    assert not is_under(ball, TABLE)
    assert may_be_under(ball, TABLE)
    assert not may_be_under(ball._replace(x=4.0), TABLE)
    unsized = Box(2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert not is_under(unsized, shelf)
    assert may_be_under(unsized, shelf)


def test_next_to_grows_with_the_landmark() -> None:
    cup = Box(2.0, 1.0 + 0.4 + 1.04, 0.8, 0.1, 0.1, 0.1, 0.0)
    assert is_next_to(cup, TABLE)
    assert not is_next_to(cup._replace(y=cup.y + 0.1), TABLE)
    assert is_next_to(cup._replace(y=cup.y + 0.1), TABLE._replace(length=3.0))


def test_between_is_near_the_line_and_not_beyond_its_ends() -> None:
    first, second = Box(0, 0, 0, 1, 1, 1, 0), Box(8, 0, 0, 1, 1, 1, 0)
    for x, y, expected in ((4, 1.1, True), (4, 1.3, False), (-1, 0, False), (9, 0, False)):
        assert is_between(Box(x, y, 0, 0, 0, 0, 0), first, second) is expected


@pytest.mark.parametrize(
    ("point", "side"),
    [
        ((5, 1), "in front of"),
        ((1, 5), "left of"),
        ((1, -5), "right of"),
        ((-5, 1), "behind"),
        ((50, 0), None),
    ],
)
def test_sides_of_the_robot(point: tuple[float, float], side: str | None) -> None:
    box = Box(*point, 0, 0, 0, 0, 0)
    assert side_of_robot(box, (0.0, 0.0, 0.0)) == side
    # A robot that is turned around sees everything on the other side.
    opposite = {
        "left of": "right of",
        "right of": "left of",
        "behind": "in front of",
        "in front of": "behind",
    }
    assert side_of_robot(box, (0.0, 0.0, math.pi)) == (None if side is None else opposite[side])


def test_sides_of_an_object_are_as_the_robot_sees_them() -> None:
    landmark, robot = Box(10, 0, 0, 1, 1, 1, 0), (0.0, 0.0, 1.0)
    for point, side in (
        ((10, 3), "left of"),
        ((10, -3), "right of"),
        ((8, 0), "in front of"),
        ((12, 0), "behind"),
    ):
        assert side_of(Box(*point, 0, 0, 0, 0, 0), landmark, robot) == side
    assert side_of(Box(10, 3, 0, 0, 0, 0, 0), landmark, (20.0, 0.0, 0.0)) == "right of"
