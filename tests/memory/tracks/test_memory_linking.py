"""Boxes of one object in consecutive frames get one track number."""

from __future__ import annotations

import numpy as np

from memory.tracks import BoxLinker

TENTH = 10**8
CAR, VAN, WALKER = (4.2, 1.8, 1.5), (4.6, 1.9, 2.1), (0.6, 0.6, 1.7)


def boxes(*places: tuple[float, float], size: tuple[float, float, float] = CAR) -> np.ndarray:
    return np.array([[x, y, 0.5, *size, 0.0] for x, y in places])


def linked(*frames: np.ndarray, every: int = TENTH) -> list[list[int]]:
    linker = BoxLinker()
    return [linker.link(at * every, one, ["Car"] * len(one)) for at, one in enumerate(frames)]


def test_parked_and_moving_objects_keep_their_numbers() -> None:
    found = linked(*(boxes((0, 0), (2.6, 0), (at * 1.5 - 10, 3)) for at in range(12)))
    assert found == [[1, 2, 3]] * 12


def test_the_order_of_the_boxes_does_not_matter() -> None:
    found = linked(boxes((0, 0), (2.6, 0)), boxes((2.6, 0), (0, 0)), boxes((0, 0), (2.6, 0)))
    assert found == [[1, 2], [2, 1], [1, 2]]


def test_a_row_does_not_shift_when_one_of_it_is_hidden() -> None:
    row = [(2.6 * at, 0.0) for at in range(5)]
    found = linked(boxes(*row), boxes(*row), boxes(*row[1:]), boxes(*row[1:]), boxes(*row))
    assert found[2] == found[3] == [2, 3, 4, 5]
    assert found[4] == [1, 2, 3, 4, 5]


def test_a_moving_object_is_found_again_after_a_gap() -> None:
    linker = BoxLinker()
    times = [*range(10), *range(21, 25)]  # A gap of 1.2 s.
    found = {linker.link(at * TENTH, boxes((at * 1.0, 0)), ["Car"])[0] for at in times}
    assert found == {1}


def test_a_place_is_free_for_another_object_after_a_while() -> None:
    linker = BoxLinker()
    for at in range(5):
        linker.link(at * TENTH, boxes((0, 0)), ["Car"])
    assert linker.link(30 * TENTH, boxes((0, 0)), ["Car"]) == [2]


def test_a_false_alarm_does_not_take_the_box_of_a_parked_car() -> None:
    linker = BoxLinker()
    for at in range(3):
        linker.link(at * TENTH, boxes((0, 0)), ["Car"])
    assert linker.link(3 * TENTH, boxes((0, 3)), ["Car"]) == [2]
    assert linker.link(5 * TENTH, boxes((0, 0.6)), ["Car"]) == [1]


def test_a_class_may_flicker_but_a_walker_is_no_car() -> None:
    linker = BoxLinker()
    assert linker.link(0, boxes((0, 0)), ["Car"]) == [1]
    assert linker.link(TENTH, boxes((0.1, 0), size=VAN), ["Van"]) == [1]
    assert linker.link(2 * TENTH, boxes((0, 0.1), size=WALKER), ["Pedestrian"]) == [2]


def test_nothing_seen_and_a_restart() -> None:
    linker = BoxLinker()
    assert linker.link(0, np.zeros((0, 7)), []) == []
    assert linker.link(0, boxes((0, 0)), ["Car"]) == [1]
    linker.restart()
    assert linker.link(0, boxes((0, 0)), ["Car"]) == [2]
