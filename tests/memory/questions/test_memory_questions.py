"""Questions to a small store whose answers are known, and to a random one against plain Python."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from memory.errors import DimensionError, UnknownMemoryError
from memory.observe.views import Views
from memory.query import Filter
from memory.questions import Questions
from memory.questions.replying import reply
from memory.questions.visits import visits_of
from memory.search.attention import SHARPNESS
from memory.store import MemoryStore
from memory.types import Memory

DIM = 8
S = 1_000_000_000
DAY = 86_400 * S
START = 20_000 * DAY


def axis(number: int) -> np.ndarray:
    return np.eye(DIM, dtype=np.float32)[number]


@pytest.fixture
def store(tmp_path: Path):
    with MemoryStore.open(tmp_path / "store", dim=DIM) as opened:
        yield opened


@pytest.fixture
def ask(store: MemoryStore) -> Questions:
    return Questions(store)


def seen(label: str, at_s: float, x: float = 0.0, y: float = 0.0, **values) -> Memory:
    return Memory(time_ns=START + round(at_s * S), position=(x, y, 0.0), label=label, **values)


def says(answer: object, *words: str) -> None:
    """The sentence has the words, and the JSON is JSON."""
    sentence = str(answer)
    assert sentence.endswith(".")
    for word in words:
        assert word in sentence
    assert json.loads(json.dumps(answer.to_json()))["question"]  # type: ignore[attr-defined]


def test_last_and_first_seen_by_label_text_id_and_vector(store: MemoryStore, ask: Questions) -> None:
    a, b, c, _ = store.add(
        [
            seen("Cup", 10, 1, caption="a red cup", embedding=axis(0)),
            seen("Cup", 30, 2, caption="a blue cup", embedding=axis(0) + 0.1 * axis(1)),
            seen("Cup", 20, 3, map_id="attic", embedding=axis(2)),
            seen("Chair", 40, 4, caption="red too", embedding=axis(3)),
        ]
    )
    last = ask.last_seen("Cup")
    assert last.memory is not None
    assert (last.memory.id, last.time_ns, last.how) == (b, START + 30 * S, "label")
    says(last, "Cup was last seen on 2024-10-04 00:00:30 UTC at (2.0, 0.0) in map default")
    assert ask.first_seen("Cup").memory.id == a  # type: ignore[union-attr]
    assert ask.last_seen("Cup", map_id="attic").memory.id == c  # type: ignore[union-attr]
    # No label is written like this: the words decide.
    words = ask.last_seen("RED cup")
    assert (words.memory.id, words.how) == (a, "text")  # type: ignore[union-attr]
    similar = ask.last_seen(axis(0))
    assert (similar.memory.id, similar.how) == (b, "similar")  # type: ignore[union-attr]
    assert similar.similarity == pytest.approx(1 / math.sqrt(1.01), abs=2e-3)
    assert ask.first_seen(axis(0)).memory.id == a  # type: ignore[union-attr]
    assert ask.last_seen(a).memory.id == a  # type: ignore[union-attr]
    assert ask.last_seen(np.int64(a)).how == "id"


def test_what_is_not_there(store: MemoryStore, ask: Questions) -> None:
    store.add([seen("Cup", 10, embedding=axis(0))])
    for answer in (
        ask.last_seen("unicorn"),
        ask.first_seen("unicorn"),
        ask.last_seen("!?"),
        ask.last_seen(-axis(0)),
        ask.how_often("unicorn"),
        ask.still_there("unicorn"),
        ask.pose_to("unicorn"),
    ):
        says(answer, "No memor")
    with pytest.raises(UnknownMemoryError):
        ask.last_seen(99)
    with pytest.raises(DimensionError):
        ask.last_seen(np.ones(DIM + 1))
    with pytest.raises(ValueError, match="zero character"):
        ask.last_seen("a\0b")
    says(ask.near((50.0, 0.0), 1.0), "No memories within 1 m of (50.0, 0.0)")
    says(ask.between(0, 5), "No memories between")
    says(ask.summarise(map_id="nowhere"), "No memories in map nowhere")
    says(ask.similar_situations(axis(0), kinds=["event"]), "No memories similar to this")
    with pytest.raises(ValueError, match="least_similarity"):
        Questions(store, least_similarity=2.0)


def test_a_merged_memory_was_first_seen_when_the_first_of_its_sources_was(
    store: MemoryStore, ask: Questions
) -> None:
    store.add(
        [
            seen("Cup", 100, 1),
            seen("Cup", 300, 5, count=4, first_seen_ns=START + 50 * S, last_seen_ns=START + 310 * S),
        ]
    )
    first = ask.first_seen("Cup")
    assert (first.memory.id, first.time_ns) == (2, START + 50 * S)  # type: ignore[union-attr]
    assert ask.last_seen("Cup").time_ns == START + 310 * S
    assert ask.first_seen("cup").time_ns == START + 50 * S, "by its words"


def test_last_and_first_seen_agree_with_a_loop(store: MemoryStore, ask: Questions) -> None:
    random = np.random.default_rng(3)
    rows = [
        seen(
            str(random.choice(["a", "b", "c"])),
            float(random.integers(50)),
            map_id=str(random.choice(["m", "n"])),
        )
        for _ in range(300)
    ]
    rows = [dataclasses.replace(row, id=id) for row, id in zip(rows, store.add(rows), strict=True)]
    for label in "abc":
        for map_id in (None, "m", "n"):
            some = [row for row in rows if row.label == label and map_id in (None, row.map_id)]
            last = ask.last_seen(label, map_id=map_id).memory
            assert last == max(some, key=lambda row: (row.time_ns, row.id))
            first = ask.first_seen(label, map_id=map_id).memory
            assert first == min(some, key=lambda row: (row.time_ns, row.id))


def test_last_seen_by_label_is_answered_by_the_index_of_map_label_and_time(
    store: MemoryStore, ask: Questions
) -> None:
    store.add([seen("Cup", at) for at in range(20)])
    statements: list[str] = []
    with store._database._readers.borrow() as connection:
        connection.set_trace_callback(statements.append)
    assert ask.last_seen("Cup", map_id="default").memory.id == 20  # type: ignore[union-attr]
    wanted = [sql for sql in statements if "ORDER BY m.time_ns" in sql]
    assert wanted
    assert all("INDEXED BY memory_label" in sql and "LIMIT 1" in sql for sql in wanted)
    # And nothing went over all memories, as loading the columns would.
    assert not [sql for sql in statements if "WHERE m.id >" in sql]


def test_near_gives_the_closest_first_and_counts_all(store: MemoryStore, ask: Questions) -> None:
    store.add([seen("Cup", 0, x) for x in (5, 1, 3, 2, 9)] + [seen("Car", 0, 1.5, map_id="b")])
    found = ask.near((0.0, 0.0), 6.0, map_id="default", k=2)
    assert [hit.memory.position[0] for hit in found.hits] == [1, 2]
    assert found.total == 4
    says(found, "4 memories within 6 m", "Cup (memory 2) at 1.0 m", "and 2 more")
    assert [hit.memory.label for hit in ask.near((0.0, 0.0, 0.0), 1.5).hits] == ["Cup", "Car"]
    assert ask.near((0.0, 0.0), 6.0, labels=["Car"]).total == 1
    store.mark([2, 3], "gone")
    assert [hit.memory.id for hit in ask.near((0.0, 0.0), 6.0, states=["gone"]).hits] == [2, 3]
    assert ask.near((0.0, 0.0), 6.0, map_id="default", states=["present"], k=1).total == 2
    assert ask.between(0, 2**62, states=["gone"]).total == 2
    with pytest.raises(ValueError, match="radius_m"):
        ask.near((0.0, 0.0), -1.0)


def test_between_is_in_order_with_both_ends(store: MemoryStore, ask: Questions) -> None:
    store.add([seen("Cup", at, at, caption="x" if at % 2 else "y") for at in (5, 3, 1, 4, 2)])
    found = ask.between(START + 2 * S, START + 4 * S)
    assert [memory.position[0] for memory in found.memories] == [2, 3, 4]
    assert found.total == 3
    cut = ask.between(START, START + 9 * S, limit=2)
    assert ([memory.position[0] for memory in cut.memories], cut.total) == ([1, 2], 5)
    says(cut, "5 memories between", "and 3 more")
    assert ask.between(START, START + 9 * S, text="y").total == 2
    assert ask.between(START, START + 9 * S, near=(5.0, 0.0), radius_m=1.0).total == 2
    with pytest.raises(ValueError, match="first <= last"):
        ask.between(5, 4)
    with pytest.raises(ValueError, match="belong together"):
        ask.between(0, 1, near=(0.0, 0.0))


def update(store: MemoryStore, id: int, **values) -> None:
    store._database.update([dataclasses.replace(store.get([id])[0], **values)])


def test_changed_since_tells_new_gone_and_moved_apart(store: MemoryStore, ask: Questions) -> None:
    store.add([seen("Cup", 1, 1), seen("Chair", 2, 2), seen("Box", 3, 3), seen("Lamp", 4, 40)])
    update(store, 3, state="gone")
    before = store.generation
    update(store, 1, state="gone")
    update(store, 2, state="moved")
    update(store, 3, confidence=0.5)  # Gone already.
    update(store, 4, state="gone")
    update(store, 4, state="present")  # Found again.
    store.add([seen("Plant", 60, 5), seen("Old", 61, 6, count=3, first_seen_ns=START)])
    store.forget([5 + 1], reason="of no interest")
    store.undo(store.generation)
    found = ask.changed_since(START + 50 * S, after=before)
    assert [memory.label for memory in found.new] == ["Plant"]
    assert [memory.label for memory in found.gone] == ["Cup"]
    assert [memory.label for memory in found.moved] == ["Chair"]
    says(found, "1 new (Plant (memory 5)), 1 gone (Cup (memory 1)), 1 moved (Chair (memory 2))")
    around = ask.changed_since(START + 50 * S, near=(1.0, 0.0), radius_m=0.5, after=before)
    assert (len(around.new), len(around.gone), len(around.moved)) == (0, 1, 0)
    nothing = ask.changed_since(START + 100 * S, after=store.generation)
    says(nothing, "nothing changed")


def test_changed_since_finds_the_operation_by_the_clock_of_the_log(
    store: MemoryStore, ask: Questions
) -> None:
    store.add([Memory(time_ns=1, label="Cup"), Memory(time_ns=2, label="Box")])
    update(store, 1, state="gone")
    update(store, 2, state="gone")
    times = [entry.time_ns for entry in store.log()]
    assert [memory.id for memory in ask.changed_since(times[2]).gone] == [2]
    assert [memory.id for memory in ask.changed_since(times[1]).gone] == [1, 2]
    assert ask.changed_since(times[2] + 1).gone == ()


def test_how_often_and_how_long(store: MemoryStore, ask: Questions) -> None:
    store.add(
        [
            # Two visits on one day: 30 s with a pause of 20 s, and a single sight.
            seen("Cup", 0),
            seen("Cup", 10),
            seen("Cup", 30),
            seen("Cup", 1000),
            # In view from first to last: 101 sights in 200 s, the day after.
            Memory(
                time_ns=START + DAY + 200 * S,
                label="Cup",
                count=101,
                first_seen_ns=START + DAY,
                last_seen_ns=START + DAY + 200 * S,
            ),
        ]
    )
    found = ask.how_often("Cup")
    assert (found.memories, found.sightings, found.days, found.visits) == (5, 105, 2, 3)
    assert (found.total_s, found.longest_s) == (230.0, 200.0)
    assert (found.first_ns, found.last_ns) == (START, START + DAY + 200 * S)
    says(found, "seen 105 times on 2 days", "3 visits", "3.3 minutes at a time")
    assert ask.how_often("Cup", between_ns=(START, START + 20 * S)).sightings == 2
    assert ask.how_often("Cup", gap_s=15).visits == 4
    with pytest.raises(ValueError, match="gap_s"):
        ask.how_often("Cup", gap_s=-1)


def test_few_sights_over_many_days_are_not_days_in_view() -> None:
    sparse = Memory(time_ns=5 * DAY, count=3, first_seen_ns=0, last_seen_ns=9 * DAY)
    found = visits_of([sparse], 60.0)
    assert found.spans == [(0, 0), (5 * DAY, 5 * DAY), (9 * DAY, 9 * DAY)]
    assert (found.days, found.total_s, found.longest_s) == ((0, 5 * DAY, 9 * DAY), 0.0, 0.0)
    assert visits_of([], 60.0).longest_s == 0.0


def looks(count: int, *, after_s: float, x: float = -5.0) -> Views:
    times = START + np.round((after_s + 10.0 * np.arange(count)) * S).astype(np.int64)
    return Views(np.tile([x, 0.0, 0.0], (count, 1)), np.zeros(count), times, range_m=20.0)


def test_still_there_by_looks_later_sights_and_the_stored_state(store: MemoryStore, ask: Questions) -> None:
    store.add([seen("Cup", 0, 1, embedding=axis(0)), seen("Box", 0, 2, state="gone")])
    stored = ask.still_there("Cup")
    assert (stored.state, stored.probability) == ("unknown", None)
    says(stored, "Cup (memory 1) may still be there", "has not been in view")
    assert ask.still_there("Box").state == "gone"
    assert ask.still_there("Box", views=looks(1, after_s=100)).state == "gone"
    missed = ask.still_there("Cup", views=looks(4, after_s=100))
    assert missed.state == "gone"
    assert missed.probability is not None
    assert missed.probability < 0.05
    says(missed, "Cup (memory 1) is gone", "4 independent looks")
    assert ask.still_there("Cup", views=looks(1, after_s=100)).state == "unknown"
    again = ask.still_there(
        "Cup", views=looks(4, after_s=100), observations=[seen("Cup", 130, 1.05, embedding=axis(0))]
    )
    assert again.state == "present"
    # A memory asked for by its id, of which there are later sights.
    (there,) = store.add([seen("Cup", 140, 1.02, embedding=axis(0))])
    assert ask.still_there(1).reasons[0] == "seen again at its place"
    assert ask.still_there("Cup").memory.id == there  # type: ignore[union-attr]
    # Sights in another map say nothing.
    other = ask.still_there("Cup", observations=[seen("Cup", 150, 1.0, map_id="attic")])
    assert other.probability is None


def test_departures_name_the_last_observation_and_when_it_was_found_gone(
    store: MemoryStore, ask: Questions
) -> None:
    store.add([
        seen("Cup", 0, 1), seen("Box", 10, 2, state="gone"), seen("Pen", 20, 3),
        seen("Pen", 5, 6, state="moved"),
    ])  # fmt: skip
    says(ask.departure("Cup"), "I don't know that Cup (memory 1) left. It was last seen on")
    says(ask.departure("Box"), "Box (memory 2) is gone.", "when it left is not known")
    says(ask.departure("Pen"), "Pen (memory 4) has moved away.")
    assert "unicorn" in str(ask.departure("unicorn"))
    store.mark([3], "gone", at_ns=START + 50 * S)
    pen = ask.departure("Pen")
    assert (pen.memory.id, pen.found_gone_ns, pen.others) == (3, START + 50 * S, 1)  # type: ignore[union-attr]
    says(pen, "Pen (memory 3) left before", "when it was found gone", "1 other left earlier")
    assert ask.departure("Pen", near=(6.0, 0.0), radius_m=1.0).memory.id == 4  # type: ignore[union-attr]


def test_things_are_no_places_of_the_robot(store: MemoryStore, ask: Questions) -> None:
    store.add([seen("Cup", 0, 1), seen("", 1, 2, kind="place"), seen("Box", 2, 3)])

    def told(question: str) -> str:
        return reply(ask, ask.understand(question, START + 60 * S)).sentence

    assert told("how many objects are there?").startswith("2 memories")
    assert told("list all things").startswith("2 memories")
    assert told("how many memories are there?").startswith("3 memories")
    changed = told("what changed since 2000-01-01?")
    assert "2 new (Cup (memory 1) and Box (memory 3)), 1 new place (place (memory 2))" in changed


def test_a_thing_that_has_moved_is_found_elsewhere(store: MemoryStore, ask: Questions) -> None:
    store.add([seen("Cup", 0, 1, embedding=axis(0)), seen("Cup", 200, 8, 3, embedding=axis(0))])
    found = ask.still_there(1, views=looks(4, after_s=100))
    assert found.state == "moved"
    assert found.moved_to is not None
    assert found.moved_to.id == 2
    says(found, "has moved to (8.0, 3.0)")


def test_summarise_counts_and_ranks(store: MemoryStore, ask: Questions) -> None:
    random = np.random.default_rng(5)
    rows = [
        seen(
            str(random.choice(["Cup", "Car", ""])),
            float(random.integers(1000)),
            float(random.uniform(-5, 5)),
            float(random.uniform(-5, 5)),
            kind=str(random.choice(["object", "event"])),
            importance=float(random.uniform()) if random.uniform() < 0.8 else None,
            marked=bool(random.uniform() < 0.05),
            count=int(random.integers(1, 4)),
        )
        for _ in range(120)
    ]
    store.add(rows)
    found = ask.summarise(near=(0.0, 0.0), radius_m=3.0, most=4)
    here = [row for row in rows if math.hypot(*row.position[:2]) <= 3.0]
    assert found.memories == len(here)
    assert found.sightings == sum(row.count for row in here)
    assert found.by_label == Counter(row.label for row in here)
    assert found.by_kind == Counter(row.kind for row in here)
    assert (found.first_ns, found.last_ns) == (min(r.time_ns for r in here), max(r.time_ns for r in here))
    ranks = sorted(here, key=lambda r: (not r.marked, -(r.importance or 0.0), -r.count, -r.time_ns))
    assert [memory.position for memory in found.important] == [row.position for row in ranks[:4]]
    assert found.changed is None
    says(found, "In a radius of 3 m around (0.0, 0.0) in all maps", "Most important")
    square = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]
    inside = ask.summarise(polygon=square, since_ns=START + 500 * S)
    expected = {r.position for r in rows if abs(r.position[0]) <= 1 and abs(r.position[1]) <= 1}
    assert inside.memories == len(expected)
    assert inside.changed is not None
    recent = {r.position for r in rows if r.position in expected and r.time_ns >= START + 500 * S}
    assert {memory.position for memory in inside.changed.new} == recent
    says(inside, "Since 2024-10-04 00:08:20 UTC")


def test_similar_situations_weight_their_rewards_by_attention(store: MemoryStore, ask: Questions) -> None:
    random = np.random.default_rng(7)
    vectors = random.standard_normal((40, DIM)).astype(np.float32)
    rewards = random.normal(size=40)
    store.add(
        [
            Memory(time_ns=at, kind="event", embedding=vector, reward=float(reward))
            for at, (vector, reward) in enumerate(zip(vectors, rewards, strict=True))
        ]
    )
    question = random.standard_normal(DIM)
    found = ask.similar_situations(question, k=7)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = units @ (question / np.linalg.norm(question))
    best = np.argsort(-scores)[:7]
    weights = np.exp(SHARPNESS * scores[best])
    weights /= weights.sum()
    assert [hit.memory.id for hit in found.hits] == (best + 1).tolist()
    mean = float(weights @ rewards[best])
    assert found.expected_reward == pytest.approx(mean, abs=5e-3)
    assert found.deviation == pytest.approx(math.sqrt(weights @ (rewards[best] - mean) ** 2), abs=5e-3)
    says(found, "7 situations similar to this, expected reward")
    like = ask.similar_situations(3, k=5)
    assert 3 not in [hit.memory.id for hit in like.hits]
    with pytest.raises(UnknownMemoryError):
        ask.similar_situations(99)


def test_pose_to_stands_off_and_faces_the_thing(store: MemoryStore, ask: Questions) -> None:
    covariance = np.diag([0.04, 0.01, 0.09])
    store.add([seen("Cup", 0, 3, 4, covariance=covariance, yaw=math.pi / 2)])
    found = ask.pose_to("Cup", distance_m=2.5, coming_from=(0.0, 0.0, 0.7))
    # Half of the way of 5 m.
    assert found.position == pytest.approx((1.5, 2.0, 0.7))
    assert found.yaw == pytest.approx(math.atan2(4, 3))
    np.testing.assert_array_equal(found.covariance, covariance)
    says(found, "drive to (1.50, 2.00), yaw 0.93 rad, 2.5 m from it")
    headed = ask.pose_to("Cup")
    assert headed.position == pytest.approx((3.0, 5.0, 0.0))
    assert headed.yaw == pytest.approx(-math.pi / 2)
    # From where it is itself, no side is nearer.
    assert ask.pose_to("Cup", coming_from=(3.0, 4.0)).position == headed.position
    assert ask.pose_to("Cup", distance_m=0.0).position == pytest.approx((3.0, 4.0, 0.0))
    for wrong in ({"distance_m": -1.0}, {"half_life_s": 0.0}, {"coming_from": (1.0,)}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ask.pose_to("Cup", **wrong)


def test_pose_to_takes_the_most_certain_and_recent_that_is_there(store: MemoryStore, ask: Questions) -> None:
    wide, narrow = np.eye(3) * 4.0, np.eye(3) * 1e-4
    day = 86_400.0
    store.add(
        [
            seen("Cup", 0, 1, confidence=1.0, covariance=narrow),
            seen("Cup", 3 * day, 2, confidence=0.6, covariance=narrow),
            seen("Cup", 3 * day, 3, confidence=0.9, covariance=wide),
            seen("Cup", 4 * day, 4, confidence=1.0, covariance=narrow, state="gone"),
        ]
    )
    found = ask.pose_to("Cup")
    assert found.memory is not None
    assert found.memory.id == 2
    assert ask.pose_to("Cup", half_life_s=1e9).memory.id == 1  # type: ignore[union-attr]
    store.forget([1, 2, 3])
    says(ask.pose_to("Cup"), "Cannot drive", "Cup (memory 4) is gone")


def test_a_place_is_driven_to_itself(store: MemoryStore, ask: Questions) -> None:
    store.add([Memory(time_ns=1, kind="place", label="kitchen", position=(1.0, 2.0, 0.0), yaw=0.5)])
    found = ask.pose_to("kitchen", coming_from=(9.0, 9.0))
    assert (found.position, found.yaw, found.distance_m) == ((1.0, 2.0, 0.0), 0.5, 0.0)


def test_questions_can_be_asked_of_a_reader_beside_the_writer(store: MemoryStore) -> None:
    with MemoryStore.open(store.folder, readonly=True) as reader:
        ask = Questions(reader)
        assert ask.last_seen("Cup").memory is None
        store.add([seen("Cup", 1, embedding=axis(0))])
        assert ask.last_seen("Cup").memory is not None
        assert ask.first_seen(axis(0)).memory is not None
        assert ask.changed_since(START).new[0].label == "Cup"
        assert reader.count(Filter(labels=["Cup"])) == 1


def test_times_before_the_calendar_are_still_said(store: MemoryStore, ask: Questions) -> None:
    store.add([Memory(time_ns=-(2**63), label="Cup"), Memory(time_ns=2**63 - 1, label="Cup")])
    says(ask.first_seen("Cup"), "first seen")
    says(ask.how_often("Cup"), "seen 2 times on 2 days (")
    assert ask.still_there("Cup").state == "unknown"


def test_how_many_counts_as_reading_all_of_it_does(tmp_path: Path) -> None:
    from memory.questions.counting import tally, tally_of

    with MemoryStore.open(tmp_path, dim=DIM) as store:
        store.add(
            [
                Memory(
                    time_ns=row * 10**9, position=(0.01 * row, 0.0, 0.0), label=("Car", "Mug")[row % 2],
                    caption="a red thing" if row % 3 else "", embedding=np.eye(DIM)[row % 2],
                )
                for row in range(12)
            ]
            + [Memory(time_ns=99 * 10**9, position=(50.0, 0.0, 0.0), label="Car")]
        )  # fmt: skip
        store.consolidate(now_ns=10**12)
        store.mark([13])
        asked = Questions(store)
        for filter in (Filter(), Filter(labels=("Car",)), Filter(text="red"), Filter(circle=(0.0, 0.0, 5.0))):
            assert tally(store, filter) == tally_of(store.find(filter, newest_first=False))
        cars = asked.how_many("cars")
        assert (cars.memories, cars.sightings, dict(cars.by_state)) == (2, 7, {"present": 1, "gone": 1})
        said = "1 present and 1 gone, of 2 memories of Car; seen 7 times, from 1970-01-01 00:00:00 UTC"
        assert str(cars).startswith(said)
        assert asked.how_many("Car", between_ns=(3 * 10**9, 5 * 10**9)).memories == 1
        assert asked.how_many("Car", near=(50.0, 0.0), radius_m=1.0).memories == 1
        assert asked.how_many().memories == 3
        assert asked.how_many(13).memories == asked.how_many(np.eye(DIM)[0]).memories == 1
        assert str(asked.how_many("Mug", near=(50.0, 0.0), radius_m=1.0)).startswith("No memories of 'Mug'")
        assert asked.still_there("Car", near=(49.0, 0.0), radius_m=5.0).state == "gone"
        last = asked.last_seen("Car", near=(0.0, 0.0), radius_m=5.0)
        assert last.memory is not None
        assert last.time_ns == 10 * 10**9
