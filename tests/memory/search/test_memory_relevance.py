"""Sentences find memories by their words and dates, by what was remembered beside them, and by vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memory.index import Neighbours
from memory.query import Filter, Query
from memory.questions import Questions
from memory.search.relevance import BESIDE, IN_SESSION, PAUSE_NS, WORDS_SHARE, fuse
from memory.store import MemoryStore
from memory.types import Memory

SECOND, DAY = 10**9, 86_400 * 10**9
WORDS = ("red", "blue", "mug", "door", "kitchen", "lamp")
QUESTION = "Where is the red mug of the kitchen?"
ASKED = ("red", "mug", "kitchen")


def rows(count: int = 300) -> list[Memory]:
    """Captions of few words in three maps, their times in stretches and not in the order of the ids."""
    random = np.random.default_rng(0)
    return [
        Memory(
            time_ns=int(random.integers(0, 40)) * 20 * SECOND + (at % 3) * DAY,
            map_id="abc"[int(random.integers(3))],
            caption=" ".join(random.choice(WORDS, int(random.integers(0, 4)))),
            embedding=None if at % 7 == 0 else random.normal(size=4),
        )
        for at in range(count)
    ]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MemoryStore, dict[int, Memory]]]:
    """A store and what is left in it."""
    with MemoryStore.open(tmp_path_factory.mktemp("sentences"), dim=4) as store:
        made = dict(zip(store.add(rows()), rows(), strict=True))
        gone = list(made)[4::9]
        store.forget(gone)
        yield store, {id: row for id, row in made.items() if id not in gone}


def loop(made: dict[int, Memory], words: tuple[str, ...] = ASKED) -> dict[int, float]:
    """Scores as they are defined, one by one."""
    has = {id: set(row.caption.split()) for id, row in made.items()}
    moments = sorted({(row.map_id, row.time_ns) for row in made.values()})
    there = {
        moment: [id for id, row in made.items() if (row.map_id, row.time_ns) == moment] for moment in moments
    }

    def connected(one: int, other: int) -> bool:
        (name, time), (other_name, other_time) = moments[one], moments[other]
        stretch = [when for where, when in moments if where == name and time <= when <= other_time]
        pauses = np.diff(stretch)
        return name == other_name and bool((pauses <= PAUSE_NS).all())

    def mixed(size: int) -> float:
        places = [(i, j) for i in range(size) for j in range(size) if i != j]
        shares = [BESIDE[abs(i - j) - 1] if abs(i - j) <= len(BESIDE) else IN_SESSION for i, j in places]
        return sum(shares) / len(shares) if shares else 0.0

    scores = dict.fromkeys(made, 0.0)
    for word in words:
        having = {id for id in made if word in has[id]}
        weight = math.log(1 + (len(made) - len(having) + 0.5) / (len(having) + 0.5))
        places = [at for at, moment in enumerate(moments) if having.intersection(there[moment])]
        for at, moment in enumerate(moments):
            share = 0.0
            for other in places:
                if at == other:
                    share = max(share, mixed(len(there[moment])))
                elif connected(min(at, other), max(at, other)):
                    steps = abs(at - other)
                    share = max(share, BESIDE[steps - 1] if steps <= len(BESIDE) else IN_SESSION)
            for id in there[moment]:
                scores[id] += weight * (1.0 if id in having else share)
    return {id: score if has[id].intersection(words) else 0.0 for id, score in scores.items()}


def ordered(scores: dict[int, float], made: dict[int, Memory]) -> list[int]:
    def key(id: int) -> tuple[float, int, str, str, int]:
        return (-round(scores[id], 8), made[id].time_ns, made[id].map_id, made[id].caption, id)

    return [id for id in sorted(scores, key=key) if scores[id]]


def test_sentences_are_ranked_as_a_loop_ranks_them(filled: tuple[MemoryStore, dict[int, Memory]]) -> None:
    store, made = filled
    expected = loop(made)
    hits = store.query(Query(text=QUESTION, k=1000))
    assert [hit.memory.id for hit in hits] == ordered(expected, made)
    for hit in hits:
        assert hit.memory.id is not None
        assert hit.score == hit.parts["text"] == pytest.approx(expected[hit.memory.id])
    assert [hit.memory.id for hit in store.query(Query(text=QUESTION, k=7))] == ordered(expected, made)[:7]
    again = store.query(Query(text=QUESTION, k=1000))
    assert [hit.score for hit in again] == [hit.score for hit in hits]


def test_a_filter_leaves_out_and_changes_no_score(filled: tuple[MemoryStore, dict[int, Memory]]) -> None:
    store, made = filled
    expected = loop(made)
    for where in (
        Filter(map_id="b"),
        Filter(text="blue"),
        Filter(map_id="a", between_ns=(0, DAY)),
        Filter(labels=[]),
    ):
        passing = {memory.id for memory in store.find(where)}
        hits = store.query(Query(text=QUESTION, where=where, k=1000))
        assert [hit.memory.id for hit in hits] == [id for id in ordered(expected, made) if id in passing]


def test_in_another_order_the_best_are_ordered(filled: tuple[MemoryStore, dict[int, Memory]]) -> None:
    store, made = filled
    best = ordered(loop(made), made)[:9]
    hits = store.query(Query(text=QUESTION, order="recency", k=9))
    assert [hit.memory.id for hit in hits] == sorted(best, key=lambda id: (-made[id].time_ns, id))


def test_words_and_vectors_are_fused(filled: tuple[MemoryStore, dict[int, Memory]]) -> None:
    store, made = filled
    vector = np.array([1.0, -0.5, 0.25, 2.0], np.float32)
    text = loop(made)

    def cosine(row: Memory) -> float:
        if row.embedding is None:
            return 0.0
        return float(row.embedding @ vector / np.linalg.norm(row.embedding) / np.linalg.norm(vector))

    cosines = {id: cosine(row) for id, row in made.items()}
    most, nearest = max(text.values()), max(cosines.values())
    expected = {id: WORDS_SHARE * text[id] / most + (1 - WORDS_SHARE) * cosines[id] / nearest for id in made}
    for where in (Filter(), Filter(map_id="c")):
        hits = store.query(Query(text=QUESTION, embedding=vector, where=where, k=20))
        if where == Filter():
            assert [hit.score for hit in hits] == pytest.approx(sorted(expected.values())[:-21:-1], abs=1e-3)
        assert len(hits) == 20
        for hit in hits:
            assert hit.memory.id is not None
            assert hit.score == hit.parts["fused"]
            assert hit.parts["text"] == pytest.approx(text[hit.memory.id])
            assert hit.parts["similarity"] == pytest.approx(cosines[hit.memory.id], abs=2e-3)
            assert where.map_id in (None, hit.memory.map_id)
    like = next(id for id, row in made.items() if row.embedding is not None)
    assert like not in [hit.memory.id for hit in store.query(Query(text=QUESTION, like=like, k=1000))]
    found = store.context(Query(text=QUESTION, embedding=vector, k=5))
    assert len(found.hits) == 5


def test_fused_memories_come_best_first_and_equal_ones_by_id() -> None:
    similar = Neighbours(np.array([[1.0, 0.5]], np.float32), np.array([[7, 9]]))
    found = fuse(np.array([9, 7, 5, 4]), np.array([2.0, 0.0, 1.0, 1.0]), [similar])
    words, half = WORDS_SHARE, (1 - WORDS_SHARE) / 2
    scores = {9: words + half, 7: 2 * half, 5: words / 2, 4: words / 2}
    assert found.ids.tolist() == sorted(scores, key=lambda id: (-scores[id], id))
    assert found.scores.tolist() == pytest.approx([scores[id] for id in found.ids.tolist()])
    assert found.similarity[found.ids.tolist().index(7)] == 1.0


def test_a_date_counts_as_a_word_of_the_memories_of_that_day(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=2) as store:
        days = np.array(["2023-07-06", "2023-07-07", "2023-08-07", "2024-07-07"], "M8[ns]").view(np.int64)
        store.add([Memory(time_ns=int(day), caption="a flood in the yard") for day in days])
        store.add([Memory(time_ns=0, caption="something else")] * 8)

        def first(text: str) -> list[int | None]:
            hits = store.query(Query(text=text))
            return [hit.memory.id for hit in hits if hit.score == hits[0].score]

        assert first("What was flooded on 7 July, 2023?") == [2]
        assert first("What was flooded in July 2023?") == [1, 2]
        assert first("What was flooded on July 7?") == [2, 4]
        assert first("What was flooded?") == [1, 2, 3, 4]


def test_a_reply_is_found_by_what_it_answers(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=2) as store:
        said = [
            "Ann: hi",
            "Ann: which colour has the new door?",
            "Bob: it has a nice colour, green",
            "Bob: bye",
        ]
        store.add([Memory(time_ns=at * SECOND, kind="note", caption=line) for at, line in enumerate(said)])
        store.add([Memory(time_ns=DAY + at * DAY, caption="colour of a wall") for at in range(5)])
        hits = store.query(Query(text="What colour is the new door?", k=2))
        assert [hit.memory.id for hit in hits] == [2, 3]


def test_the_order_of_adding_changes_no_answer(tmp_path: Path) -> None:
    """Neither scores nor hits depend on ids, also if many memories share their time."""
    found = []
    for turn in range(3):
        made = rows()
        np.random.default_rng(turn).shuffle(made)
        with MemoryStore.open(tmp_path / str(turn), dim=4) as store:
            store.add(made)
            hits = store.query(Query(text=QUESTION, k=50))
            found.append(
                [(hit.memory.time_ns, hit.memory.map_id, hit.memory.caption, hit.score) for hit in hits]
            )
    assert found[0] == found[1] == found[2]


def test_a_session_supports_its_memories(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add([Memory(time_ns=at * SECOND, caption="a walk in the park") for at in range(8)])
        store.add([Memory(time_ns=8 * SECOND, caption="with a dog")])
        store.add([Memory(time_ns=DAY, caption="a walk in the park")])
        hits = store.query(Query(text="Who was in the park with the dog?", k=20))
        weights = {hit.memory.id: hit.score for hit in hits}
        assert weights[8] > weights[7] > weights[5] > weights[4] == weights[1] > weights[10]


def test_named_speakers_times_and_statements_come_first(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=2) as store:
        captions = [
            "Ann: did Bob paint the fence?",
            "Ann: Bob will paint the fence",
            "Bob: I paint the fence",
            "Bob: I paint the fence tomorrow",
        ]
        store.add([Memory(time_ns=at * DAY, caption=caption) for at, caption in enumerate(captions)])
        assert [hit.memory.id for hit in store.query(Query(text="When does Bob paint the fence?"))] == [
            4,
            3,
            2,
            1,
        ]
        assert [hit.memory.id for hit in store.query(Query(text="Does Ann paint the fence?"))] == [2, 1, 3, 4]


@pytest.mark.parametrize(
    ("captions", "question", "best"),
    [
        (["蓝色的杯子放在桌上", "门口有一辆红色的汽车", "红色的杯子在厨房里"], "厨房的红色杯子在哪里？", 3),
        (["青い自転車", "駅の前に赤い自転車がある", "赤い車"], "赤い自転車はどこですか", 2),
        (["빨간 컵은 부엌에 있다", "파란 컵", "빨간 자동차"], "빨간 컵이 어디에 있어요?", 1),
        (["田中：机を買う", "佐藤：机を買った", "田中：昨日机を買った"], "田中はいつ机を買いましたか？", 3),
        (
            ["die blaue Tasse", "die rote Tasse steht im Flur", "das rote Auto"],
            "Wo steht Annas rote Tasse?",
            2,
        ),
    ],
)
def test_questions_in_other_languages(tmp_path: Path, captions: list[str], question: str, best: int) -> None:
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add([Memory(time_ns=at * DAY, caption=caption) for at, caption in enumerate(captions)])
        store.add([Memory(time_ns=at * DAY, caption="etwas ganz anderes") for at in range(9)])
        hits = store.query(Query(text=question))
        assert hits[0].memory.id == best
        assert len(hits) == 1 or hits[0].score > hits[1].score


def test_words_are_found_in_other_forms_and_slips_are_told(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=2) as store:
        assert store.query(Query(text=QUESTION)) == []
        assert store.query(Query(text=QUESTION, embedding=np.ones(2))) == []
        store.add([Memory(time_ns=0, label="cup"), Memory(time_ns=1, caption="two mugs"), Memory(time_ns=2)])
        (hit,) = store.query(Query(text=QUESTION))
        assert (hit.memory.id, hit.reason) == (2, "")
        assert Questions(store).last_seen("mug").memory is not None
        store.add([Memory(time_ns=3, label="bakery")])
        (hit,) = store.query(Query(text="is that the bakry?"))
        assert (hit.memory.id, hit.reason) == (4, "'bakry?' read as 'bakery'")
        assert store.query(Query(text="is that the zzzzz?")) == []
        store.forget([2])
        assert store.query(Query(text=QUESTION)) == []
        store.add([Memory(time_ns=time, caption="mug") for time in (-(2**63), 2**63 - 1)])
        assert [hit.memory.id for hit in store.query(Query(text="where is a mug?"))] == [5, 6]
