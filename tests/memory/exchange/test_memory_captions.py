"""What is known of boxes, in words."""

from __future__ import annotations

import numpy as np
import pytest

from memory.exchange.captions import captions_of, place_caption

CAR, CYCLIST = [4.24, 1.8, 1.5], [1.7, 0.6, 1.7]


def test_class_size_distance_side_and_neighbours() -> None:
    boxes = np.array(
        [[12, 0, 0, *CAR, 0], [12, 5, 0, *CYCLIST, 0], [12, -4, 0, *CYCLIST, 0], [0, 40, 0, *CAR, 0]], float
    )
    found = captions_of(boxes, ["Car", "Cyclist", "Cyclist", "Excavator"])
    assert found == [
        "car, 4.2 x 1.8 x 1.5 m, 12 m ahead, near 2 cyclists",
        "cyclist, 1.7 x 0.6 x 1.7 m, 13 m ahead, near a car",
        "cyclist, 1.7 x 0.6 x 1.7 m, 13 m ahead, near a car",
        "excavator, 4.2 x 1.8 x 1.5 m, 40 m to the left",
    ]


@pytest.mark.parametrize(
    ("x", "y", "side"), [(5, 1, "ahead"), (-5, 1, "behind"), (-5, -1, "behind"), (1, -5, "to the right")]
)
def test_sides(x: float, y: float, side: str) -> None:
    (caption,) = captions_of(np.array([[x, y, 0, *CAR, 0]]), [""])
    assert caption == f"object, 4.2 x 1.8 x 1.5 m, 5 m {side}"


def test_nothing_and_places() -> None:
    assert captions_of(np.zeros((0, 7)), []) == []
    assert place_caption([]) == "place with no known object in view"
    assert place_caption(["Car", "Excavator", "Car"]) == "place with 2 cars and an excavator in view"
