"""Still there, moved, gone, or new."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.observe.presence import PresenceOptions, look_again
from memory.observe.views import Views
from memory.types import Memory

SECOND = 10**9
CHAIR = np.array([1.0, 0.0, 0.0], np.float32)
OTHER = np.array([0.0, 1.0, 0.0], np.float32)


def views(*times_s: float, position: tuple = (0.0, 0.0, 0.0), range_m: float = 20.0) -> Views:
    count = len(times_s)
    return Views(
        position=np.tile(position, (count, 1)).astype(float),
        yaw=np.zeros(count),
        time_ns=np.array([round(time * SECOND) for time in times_s], dtype=np.int64),
        range_m=range_m,
    )


def chair(time_s: float, x: float, embedding: np.ndarray | None = CHAIR, **values: object) -> Memory:
    return Memory(
        time_ns=round(time_s * SECOND),
        position=(x, 0.0, 0.0),
        label="chair",
        embedding=embedding,
        provenance="detector",
        **values,  # type: ignore[arg-type]
    )


def test_seen_again_at_its_place_is_present() -> None:
    change = look_again([chair(0, 5.0, id=7)], [chair(10, 5.2), chair(12, 5.1)], views(10, 12))
    (known,) = change.known
    assert (known.state, known.seen, known.missed) == ("present", 2, 0)
    assert known.last_seen_ns == 12 * SECOND
    assert known.reasons == ("seen again at its place", "still there with probability 0.950")
    assert change.matched.tolist() == [0, 0]
    assert change.new.tolist() == []
    assert change.reasons[0] == "chair (memory 7) at its place, 0.47 standard deviations from where it was"


def test_an_empty_place_seen_often_enough_is_gone() -> None:
    for looks, state in ((0, "unknown"), (1, "unknown"), (2, "unknown"), (3, "gone")):
        (known,) = look_again([chair(0, 5.0)], [], views(*range(10, 10 + 2 * looks, 2))).known
        there = 0.95 * 0.1**looks
        assert known.state == state
        assert known.missed == looks
        assert known.probability == pytest.approx(there / (there + 0.05))
    assert known.reasons[0] == "3 independent looks at its place should have shown it and did not"


def test_looks_that_prove_nothing_do_not_count() -> None:
    for name, looked in {
        "out of range": views(10, 20, 30, 40, range_m=4.0),
        "before it was last seen": views(-40, -30, -20, 0),
        "elsewhere": views(10, 20, 30, 40, position=(500.0, 0.0, 0.0)),
        "none": views(),
    }.items():
        (known,) = look_again([chair(0, 5.0)], [], looked).known
        assert (known.state, known.missed) == ("unknown", 0), name
    (known,) = look_again([chair(0, 5.0)], [], views(*np.arange(10, 11, 0.01))).known
    assert (known.state, known.missed) == ("unknown", 1), "a hundred looks within a second are one"


def test_a_hidden_place_is_not_an_empty_one() -> None:
    looked = views(10, 20, 30, 40)
    hidden = Views(looked.position, looked.yaw, looked.time_ns, 20.0, free_m=np.full((4, 8), 3.0))
    assert look_again([chair(0, 5.0)], [], looked).known[0].state == "gone"
    assert look_again([chair(0, 5.0)], [], hidden).known[0].state == "unknown"


def test_misses_before_the_last_sight_are_forgiven() -> None:
    change = look_again([chair(0, 5.0)], [chair(50, 5.0)], views(10, 20, 30, 40, 50))
    assert (change.known[0].state, change.known[0].missed) == ("present", 0)
    change = look_again([chair(0, 5.0)], [chair(10, 5.0)], views(10, 20, 30, 40))
    assert (change.known[0].state, change.known[0].seen, change.known[0].missed) == ("gone", 1, 3)


def test_gone_and_seen_elsewhere_is_moved() -> None:
    known = [chair(0, 5.0, id=3), chair(0, 9.0, OTHER, id=4)]
    seen = [chair(30, 15.0), chair(30, 9.0, OTHER)]
    change = look_again(known, seen, views(10, 20, 30))
    assert [presence.state for presence in change.known] == ["moved", "present"]
    assert change.known[0].moved_to == 0
    assert change.known[0].reasons[0] == "one like it, similarity 1.00, is 10.0 m away"
    assert change.moved_from.tolist() == [0, -1]
    assert change.matched.tolist() == [-1, 1]
    assert change.new.tolist() == []
    assert change.reasons[0] == (
        "chair (memory 3) has moved: similarity 1.00, and its old place was seen empty"
    )


@pytest.mark.parametrize(
    ("known", "seen", "state", "reason"),
    [
        (chair(0, 5.0), chair(30, 15.0, OTHER), "gone", "new: nothing known of its kind and label"),
        (chair(0, 5.0), chair(30, 15.0, None), "gone", "new: nothing known"),
        (chair(0, 5.0, None), chair(30, 15.0), "gone", "new: nothing known"),
        (chair(0, 5.0), chair(-5, 15.0), "gone", "new: nothing known"),
        (
            chair(0, 5.0),
            Memory(time_ns=30 * SECOND, position=(15.0, 0, 0), label="table", embedding=CHAIR),
            "gone",
            "new: nothing known",
        ),
        (
            chair(0, 50.0),
            chair(30, 15.0),
            "unknown",
            "new: like chair (row 0), similarity 1.00, but whether that is still at its place is not known",
        ),
    ],
)
def test_what_does_not_make_a_move(known: Memory, seen: Memory, state: str, reason: str) -> None:
    change = look_again([known], [seen], views(10, 20, 30))
    assert change.known[0].state == state
    assert change.known[0].moved_to is None
    assert change.new.tolist() == [0]
    assert change.reasons[0].startswith(reason)


def test_a_second_one_like_it_is_new_while_the_first_is_there() -> None:
    change = look_again([chair(0, 5.0, id=3)], [chair(30, 5.0), chair(30, 15.0)], views(10, 20, 30))
    assert change.new.tolist() == [1]
    assert change.reasons[1] == (
        "new: like chair (memory 3), similarity 1.00, but that is still at its place"
    )


def test_what_was_elsewhere_before_it_was_last_at_its_place_has_not_moved() -> None:
    change = look_again([chair(0, 5.0)], [chair(5, 15.0), chair(10, 5.0)], views(10, 20, 30, 40))
    assert change.known[0].state == "gone"
    assert change.moved_from.tolist() == [-1, -1]
    assert "was at its place later" in change.reasons[0]


def test_each_moves_once_and_the_most_alike_first() -> None:
    near = np.array([1.0, 0.3, 0.0], np.float32)
    known = [chair(0, 5.0, near), chair(0, 8.0)]
    change = look_again(known, [chair(30, 15.0), chair(30, 12.0)], views(10, 20, 30))
    assert change.moved_from.tolist() == [1, 0]
    change = look_again(known, [chair(30, 15.0)], views(10, 20, 30))
    assert [presence.state for presence in change.known] == ["gone", "moved"]
    change = look_again(known[1:], [chair(30, 15.0), chair(31, 12.0)], views(10, 20, 30))
    assert change.moved_from.tolist() == [0, -1]
    assert change.reasons[1].endswith("or is taken for another one")


def test_two_of_one_frame_are_two_things() -> None:
    change = look_again([chair(0, 5.0)], [chair(10, 5.4), chair(10, 5.1)], views(10))
    assert change.matched.tolist() == [-1, 0]
    assert change.new.tolist() == [0]


def test_an_observation_that_is_known_already_matches_itself() -> None:
    seen = chair(10, 5.0, id=1)
    change = look_again([seen], [seen], views(10))
    assert change.matched.tolist() == [0]
    assert change.known[0].state == "present"


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(0, 8), st.integers(0, 6))
def test_the_answers_agree_with_each_other(seed: int, things: int, sights: int, looks: int) -> None:
    rng = np.random.default_rng(seed)
    directions = np.eye(3, dtype=np.float32)

    def some(count: int, low: int, high: int) -> list[Memory]:
        return [
            chair(float(rng.integers(low, high)), float(rng.integers(2, 9)), directions[rng.integers(3)])
            for _ in range(count)
        ]

    known, seen = some(things, -10, 1), some(sights, 1, 40)
    change = look_again(known, seen, views(*rng.integers(1, 40, looks).tolist()))
    assert len(change.known) == things
    assert len(change.reasons) == len(change.matched) == len(change.moved_from) == sights
    assert not ((change.matched >= 0) & (change.moved_from >= 0)).any()
    for row, presence in enumerate(change.known):
        assert presence.seen == (change.matched == row).sum()
        assert (presence.state == "moved") == (presence.moved_to is not None)
        if presence.moved_to is not None:
            assert change.moved_from[presence.moved_to] == row
        if presence.state in ("moved", "gone"):
            assert presence.probability < PresenceOptions().gone_below
        if presence.state == "present":
            assert presence.seen
            assert not presence.missed
    assert (change.moved_from >= 0).sum() == sum(p.state == "moved" for p in change.known)


def test_several_maps_are_refused() -> None:
    with pytest.raises(ValueError, match="one map, got default, yard"):
        look_again([chair(0, 5.0)], [chair(0, 5.0, map_id="yard")], views(1))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"detection_probability": 1.0}, "detection_probability must be between"),
        ({"prior": 0.0}, "prior must be between"),
        ({"moved_similarity": 1.1}, "moved_similarity must be"),
        ({"apart_s": math.nan}, "apart_s must be"),
    ],
)
def test_bad_options_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PresenceOptions(**values)
