"""Endings, case and misspellings."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.query import Query
from memory.wording import distance, fold, forms, nearest, stem, stems
from memory.wording.meaning import Labels, read_query


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cars", "car"), ("cities", "city"), ("buses", "bus"), ("boxes", "box"), ("vases", "vase"),
        ("houses", "house"), ("people", "persons"), ("parked", "parking"), ("running", "run"),
        ("driving", "drive"), ("knives", "knife"), ("caches", "cache"), ("benches", "bench"),
        ("went", "go"), ("bought", "buying"), ("wrote", "writing"), ("hiked", "hike"), ("hiking", "hikes"),
        ("explored", "explore"), ("donating", "donate"), ("seeing", "see"), ("hopping", "hop"),
        ("babies", "baby"), ("keys", "key"), ("glasses", "glass"), ("bridges", "bridge"), ("women", "woman"),
    ],
)  # fmt: skip
def test_words_of_one_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("care", "car"),
        ("plane", "plan"),
        ("hoping", "hop"),
        ("saw", "see"),
        ("left", "leave"),
        ("red", "r"),
        ("need", "ne"),
        ("bus", "bu"),
        ("glass", "glas"),
    ],
)
def test_words_of_different_stems(one: str, other: str) -> None:
    assert stem(one) != stem(other)


def test_folding_and_forms() -> None:
    assert fold("Bäckerei É") == "backerei e"
    assert stems("Traffic_Lights, RED") == stems("traffic light red")
    assert set(forms("person")) == {"people", "person"}
    assert stem("straße") == "straße"


def slow_distance(one: str, other: str) -> int:
    """Optimal string alignment as it is defined."""
    if not one or not other:
        return len(one) + len(other)
    found = min(
        slow_distance(one[:-1], other) + 1,
        slow_distance(one, other[:-1]) + 1,
        slow_distance(one[:-1], other[:-1]) + (one[-1] != other[-1]),
    )
    if len(one) > 1 and len(other) > 1 and one[-1] == other[-2] and one[-2] == other[-1]:
        found = min(found, slow_distance(one[:-2], other[:-2]) + 1)
    return found


@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_distance_is_that_of_the_definition(one: str, other: str) -> None:
    for most in (0, 1, 2, 5):
        assert distance(one, other, most) == min(slow_distance(one, other), most + 1)


def test_the_nearest_word_is_the_most_frequent_of_the_closest() -> None:
    assert nearest("bakry", {"bakery": 1, "bake": 9}) == "bakery"
    assert nearest("chiar", {"chair": 1, "chain": 9}) == "chair"
    assert nearest("trean", {"train": 1, "tream": 3, "treat": 3}) == "tream"
    assert nearest("cat", {"car": 9}) is None  # Too short to be sure.
    assert nearest("2027", {"2026": 9}) is None
    for order in itertools.permutations([("grab", 1), ("crab", 1), ("drab", 1)]):
        assert nearest("trab", order) == "crab"


def test_queries_are_read_with_the_words_of_the_store() -> None:
    labels = {"Car": 3, "car": 1, "Pedestrian": 2, "City": 1}

    def corrections(text: str) -> dict[str, str]:
        return {word: "bakery" for word in text.split() if word == "bakry"}

    read = read_query(
        Query(labels=["cars", "Pedestrain", "City", "tree"], text="the bakry"), lambda: labels, corrections
    )
    assert read.query.where.labels == ["Car", "car", "Pedestrian", "City", "tree"]
    assert read.query.text == "the bakery"
    assert read.notes == (
        "label 'cars' read as 'Car' or 'car'",
        "label 'Pedestrain' read as 'Pedestrian'",
        "'bakry' read as 'bakery'",
    )
    assert read_query(Query(labels=["Car"]), lambda: labels, corrections).notes == ()
    assert Labels(labels).alike("car") == ["car"]
    assert Labels(labels).nearest("people") == "Pedestrian"
    assert Labels({"Tree": 1}).nearest("people") is None
