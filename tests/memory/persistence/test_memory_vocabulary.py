"""Words that are found in another form than they were asked for."""

from __future__ import annotations

from pathlib import Path

from memory.query import Filter, Query
from memory.questions import Questions
from memory.store import MemoryStore
from memory.types import Memory

CAPTIONS = [
    ("Car", "parked beside the bakery"),
    ("Car", "two cities"),
    ("Cyclist", "riding past a Bäckerei"),
    ("care", "three carpets"),
]


def make_store(folder: Path) -> MemoryStore:
    store = MemoryStore.open(folder, dim=2)
    store.add([Memory(time_ns=row, label=label, caption=text) for row, (label, text) in enumerate(CAPTIONS)])
    return store


def test_stems_case_and_slips_are_found_and_told(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:

        def found(**parts: object) -> tuple[list[int | None], str]:
            hits = store.query(Query(order="recency", **parts))  # type: ignore[arg-type]
            return [hit.memory.id for hit in hits], hits[0].reason if hits else ""

        assert found(text="cars") == ([2, 1], "")
        assert found(text="CAR parking") == ([1], "")
        assert found(text="city") == ([2], "")
        assert found(text="backerei") == ([3], "")
        assert found(text="bakry") == ([1], "'bakry' read as 'bakery'")
        assert found(text="the bakry parks") == ([1], "'bakry' read as 'bakery'")
        assert found(text="zzzzz") == ([], "")
        assert found(labels=["car"]) == ([2, 1], "label 'car' read as 'Car'")
        assert found(labels=["Cyclists", "Car"]) == ([3, 2, 1], "label 'Cyclists' read as 'Cyclist'")
        assert found(labels=["ciclist"]) == ([3], "label 'ciclist' read as 'Cyclist'")
        assert found(text='"car" OR x* NOT (') == ([], "")


def test_a_word_that_most_memories_have_gives_no_score_of_nothing(tmp_path: Path) -> None:
    """FTS5 gives such words a weight of a millionth, and scores read as 0.000."""
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add([Memory(time_ns=row, label="Car") for row in range(9)])
        store.add([Memory(time_ns=9, label="Tree", embedding=[1.0, 0.0])])
        hits = store.query(Query(text="car", k=20))
        assert {hit.memory.label for hit in hits} == {"Car"}
        assert all(hit.score > 0.1 for hit in hits)
        # With a vector, those without the words of a sentence count by their likeness.
        both = store.query(Query(text="where is the car", embedding=[1.0, 0.0], k=20))
        assert {hit.memory.label for hit in both} == {"Car", "Tree"}


def test_a_filter_knows_endings_but_corrects_nothing(tmp_path: Path) -> None:
    """What is forgotten or exported by a filter is what was said."""
    with make_store(tmp_path) as store:
        assert [memory.id for memory in store.find(Filter(text="cars"))] == [2, 1]
        assert store.count(Filter(text="cars")) == 2
        assert store.count(Filter(text="bakry")) == store.count(Filter(labels=["car"])) == 0


def test_questions_understand_them_too(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        questions = Questions(store)
        assert str(questions.last_seen("cars")).startswith("Car was last seen")
        assert str(questions.last_seen("carpts")).startswith("carpets (read for 'carpts') was last seen")
        # The car beside the bakery is no bakery.
        assert questions.last_seen("bakry").memory is None
        assert str(questions.last_seen("cyclsit")).startswith("Cyclist (read for 'cyclsit') was last seen")
        assert questions.how_often("cities").memories == 1
        assert questions.last_seen("unicorns").memory is None


def test_verbs_are_found_in_forms_that_begin_otherwise(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=2) as store:
        said = ("went home", "to go", "is going", "a goal", "bought a van", "hiked")
        store.add([Memory(time_ns=at, caption=caption) for at, caption in enumerate(said)])
        for word in ("go", "went", "gone"):
            assert store.database.ids(Filter(text=word)).tolist() == [1, 2, 3]
        assert store.database.ids(Filter(text="buy")).tolist() == [5]
        assert store.database.ids(Filter(text="hiking")).tolist() == [6]
        assert store.corrections("go to it") == {}


def test_readers_of_a_store_that_another_process_writes(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    with MemoryStore.open(tmp_path, readonly=True) as store:
        assert [hit.memory.id for hit in store.query(Query(text="bakries"))] == [1]
