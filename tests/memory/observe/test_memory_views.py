"""What a sensor should have seen."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.observe.views import Views, expected_visible


def one_view(**values: object) -> Views:
    return Views(
        **{  # type: ignore[arg-type]
            "position": np.zeros((1, 3)),
            "yaw": np.zeros(1),
            "time_ns": np.zeros(1, dtype=np.int64),
            "range_m": 10.0,
            "field_of_view_rad": math.pi / 2,
            **values,
        }
    )


def at(distance: float, bearing_deg: float, z: float = 0.0) -> tuple[float, float, float]:
    bearing = math.radians(bearing_deg)
    return distance * math.cos(bearing), distance * math.sin(bearing), z


@pytest.mark.parametrize(
    ("point", "seen"),
    [
        (at(5, 0), True),
        (at(5, 40), True),
        (at(5, -40), True),
        (at(5, 44.5), False),  # within the margin
        (at(5, 60), False),
        (at(5, 180), False),
        (at(9.6, 0), True),
        (at(9.8, 0), False),  # within the margin
        (at(1.2, 0), False),
        (at(1.4, 0), True),
        (at(9, 0, z=9.0), False),
    ],
)
def test_range_and_field_of_view(point: tuple[float, float, float], seen: bool) -> None:
    view = one_view(near_m=1.0)
    assert expected_visible(view, [point]).tolist() == [[seen]]


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 2 * math.pi))
def test_each_pair_is_the_rule_written_out(seed: int, whole: float) -> None:
    rng = np.random.default_rng(seed)
    views = Views(
        position=rng.normal(scale=3.0, size=(5, 3)),
        yaw=rng.uniform(-10, 10, 5),
        time_ns=np.arange(5),
        range_m=rng.uniform(1, 9, 5),
        field_of_view_rad=whole,
        elevation_rad=(-0.5, 0.3),
    )
    points = rng.normal(scale=4.0, size=(7, 3))
    found = expected_visible(views, points, margin_m=0.1, margin_rad=0.05)
    for v in range(5):
        for n in range(7):
            x, y, z = points[n] - views.position[v]
            heading = complex(math.cos(views.yaw[v]), math.sin(views.yaw[v]))
            turn = abs(math.atan2((complex(x, y) / heading).imag, (complex(x, y) / heading).real))
            distance = math.sqrt(x * x + y * y + z * z)
            expected = (
                (turn <= whole / 2 - 0.05 or whole > 2 * math.pi - 1e-9)
                and 0.1 <= distance <= np.asarray(views.range_m)[v] - 0.1
                and -0.5 <= math.atan2(z, math.hypot(x, y)) <= 0.3
            )
            assert found[v, n] == expected


@given(st.floats(-100, 100), st.floats(-180, 180))
def test_a_full_circle_has_no_sides(yaw: float, bearing_deg: float) -> None:
    view = one_view(yaw=np.array([yaw]), field_of_view_rad=2 * math.pi)
    assert expected_visible(view, [at(5, bearing_deg)]).all()


def test_what_hides_a_thing_is_taken_into_account() -> None:
    # From right to left: free, a wall at 3 m, nothing hit, unknown.
    view = one_view(free_m=np.array([[8.0, 3.0, math.inf, 0.0]]))
    points = [at(7, -40), at(5, -10), at(2.5, -10), at(3.2, -10), at(9, 10), at(9, 40), at(8.5, -40)]
    assert expected_visible(view, points).tolist() == [[True, False, True, True, True, False, False]]


def test_nothing_seen_from_nowhere() -> None:
    none = one_view(position=np.zeros((0, 3)), yaw=np.zeros(0), time_ns=np.zeros(0, dtype=np.int64))
    assert expected_visible(none, np.zeros((4, 3))).shape == (0, 4)
    assert expected_visible(one_view(), np.zeros((0, 3))).shape == (1, 0)
    assert len(none) == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"position": np.zeros((1, 2))}, "position must have shape"),
        ({"position": np.full((1, 3), np.nan)}, "position must be finite"),
        ({"yaw": np.zeros(2)}, "yaw must have shape"),
        ({"yaw": np.array([math.nan])}, "yaw must be finite"),
        ({"time_ns": np.zeros(1)}, "time_ns must be 1 integers"),
        ({"range_m": -1.0}, "range_m must be finite and from 0"),
        ({"field_of_view_rad": 7.0}, "field_of_view_rad must be"),
        ({"free_m": np.zeros((2, 4))}, "free_m must have shape"),
        ({"free_m": np.full((1, 4), math.nan)}, "free_m must not be NaN"),
    ],
)
def test_bad_views_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one_view(**values)


def test_positions_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="positions must have shape"):
        expected_visible(one_view(), np.zeros((3, 2)))
