"""Questions as people type them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.exchange.times import parse_time
from memory.questions.reading.understanding import understand

NOW = parse_time("2026-01-10T12:00:00Z")  # A Saturday.
HOUR = 3600 * 10**9
DAY = 24 * HOUR


def at(text: str) -> int:
    return parse_time(text)


def day(text: str) -> tuple[int, int]:
    return parse_time(text), parse_time(text, end=True)


def hours(date: str, first: int, last: int) -> tuple[int, int]:
    return at(date) + first * HOUR, at(date) + last * HOUR - 1


def about(question: str, what: str | int, **parts: Any) -> dict[str, Any]:
    return {"question": question, "what": what, **parts}


def during(span: tuple[int, int], **parts: Any) -> dict[str, Any]:
    return {"question": "between", "between": span, **parts}


def changed(since: int, **parts: Any) -> dict[str, Any]:
    return {"question": "changed_since", "since": since, **parts}


YESTERDAY = day("2026-01-09")
MORNING = hours("2026-01-10", 5, 12)
LAST = {"since": NOW - DAY}
ALL = {"question": "summarise"}
DOOR = {"beside": "door", "radius_m": 5.0}
KITCHEN = {"beside": "kitchen", "radius_m": 5.0}
HERE = {"near": (3.0, 1.0), "radius_m": 5.0}
AT = {"near": (34.0, 9.0), "radius_m": 5.0}
#: What is typed, and what is meant.
PHRASINGS: list[tuple[str, dict[str, Any]]] = [
    # Where and when it was last seen.
    ("where is the red mug?", about("last_seen", "red mug")),
    ("Where's my mug", about("last_seen", "mug")),
    ("where are the keys now?", about("last_seen", "keys")),
    ("WHERE IS THE CAR", about("last_seen", "CAR")),
    ("Hey robot, where did you last see my keys?", about("last_seen", "keys")),
    ("when did you last see a cyclist?", about("last_seen", "cyclist")),
    ("when and where did you see the dog last?", about("last_seen", "dog")),
    ("when was the last time you saw the postman?", about("last_seen", "postman")),
    ("when was the dog last seen?", about("last_seen", "dog")),
    ("where was the dog seen last", about("last_seen", "dog")),
    ("where can I find a chair?", about("last_seen", "chair")),
    ("where did I leave my bag?", about("last_seen", "bag")),
    ("where did I park the car", about("last_seen", "car")),
    ("where have you put the box?", about("last_seen", "box")),
    ("tell me where the mug is", about("last_seen", "mug")),
    ("do you know where my keys are?", about("last_seen", "keys")),
    ("can you tell me where the mug is please?", about("last_seen", "mug")),
    ("could you please find the charger?", about("last_seen", "charger")),
    ("have you seen the cat?", about("last_seen", "cat")),
    ("have you ever seen a horse", about("last_seen", "horse")),
    ("did you see a dog?", about("last_seen", "dog")),
    ("do you remember the green bottle?", about("last_seen", "green bottle")),
    ("find my phone", about("last_seen", "phone")),
    ("locate the fire extinguisher", about("last_seen", "fire extinguisher")),
    ("look for the ladder", about("last_seen", "ladder")),
    ("i'm looking for my glasses", about("last_seen", "glasses")),
    ("what is the position of the bin?", about("last_seen", "bin")),
    ("last known location of the truck", about("last_seen", "truck")),
    ("where is memory 7", about("last_seen", 7)),
    ("where is #7?", about("last_seen", 7)),
    ("last-seen Mug", about("last_seen", "Mug")),
    ("where did the dog go?", about("last_seen", "dog")),
    ("where is the mug near the door?", about("last_seen", "mug", **DOOR)),
    ("where is the car in map yard?", about("last_seen", "car", map_id="yard")),
    # When it was first seen.
    ("when was the door first seen", about("first_seen", "door")),
    ("when did you first see the van?", about("first_seen", "van")),
    ("when was the van seen for the first time?", about("first_seen", "van")),
    ("when was the first time you saw a cyclist?", about("first_seen", "cyclist")),
    ("when did the sofa appear?", about("first_seen", "sofa")),
    ("since when is the sofa there?", about("first_seen", "sofa")),
    ("how long has the van been there?", about("first_seen", "van")),
    ("where did you see the van for the first time", about("first_seen", "van")),
    ("first sighting of a cyclist", about("first_seen", "cyclist")),
    # When it left.
    ("when did the van leave?", about("left", "van")),
    ("when was the mug taken away?", about("left", "mug")),
    ("since when is the car at (34, 9) gone?", about("left", "car", **AT)),
    ("has the van moved since yesterday?", about("left", "van")),
    # Whether it is still there.
    ("is the Car still there?", about("still_there", "Car")),
    ("is the car at (34, 9) still there?", about("still_there", "car", **AT)),
    ("is the car still at (34, 9)?", about("still_there", "car", **AT)),
    ("is the car still there at 34, 9", about("still_there", "car", **AT)),
    ("is there still a car at (34, 9)?", about("still_there", "car", **AT)),
    ("is the car at (34, 9)?", about("still_there", "car", **AT)),
    ("are the chairs still here?", about("still_there", "chairs")),
    ("is my bike gone?", about("still_there", "bike")),
    ("has the van moved?", about("still_there", "van")),
    ("has the van been moved", about("still_there", "van")),
    ("has anyone moved the ladder?", about("still_there", "ladder")),
    ("did somebody take my mug?", about("still_there", "mug")),
    ("does the sofa still exist?", about("still_there", "sofa")),
    ("is memory 5 still there?", about("still_there", 5)),
    ("is the mug still near the door?", about("still_there", "mug", **DOOR)),
    ("is the mug missing?", about("still_there", "mug")),
    ("still-there mug", about("still_there", "mug")),
    ("what happened to the vase?", about("still_there", "vase")),
    # How many there are.
    ("how many cars are there?", about("how_many", "cars")),
    ("How many cars?", about("how_many", "cars")),
    ("how many cyclists did you see", about("how_many", "cyclists")),
    ("how many cyclists have you seen today?", about("how_many", "cyclists", between=day("2026-01-10"))),
    ("how many people were there yesterday?", about("how_many", "people", between=YESTERDAY)),
    ("how many dogs do you remember", about("how_many", "dogs")),
    ("how many dogs do you know of?", about("how_many", "dogs")),
    ("how many cars are near the door?", about("how_many", "cars", **DOOR)),
    ("how many cars are within 10 m of (3, 1)?", about("how_many", "cars", near=(3.0, 1.0), radius_m=10.0)),
    ("how many cars in the last hour", about("how_many", "cars", between=(NOW - HOUR, NOW))),
    ("number of pedestrians", about("how_many", "pedestrians")),
    ("what is the number of cars since 9:00?", about("how_many", "cars", since=at("2026-01-10T09:00"))),
    ("count the chairs", about("how_many", "chairs")),
    ("is there a mug?", about("how_many", "mug")),
    ("is there a mug in the kitchen?", about("how_many", "mug", relation="inside", **KITCHEN)),
    ("are there any dogs here?", about("how_many", "dogs")),
    ("are there any dogs near (3, 1)?", about("how_many", "dogs", **HERE)),
    ("was there a truck this morning?", about("how_many", "truck", between=MORNING)),
    ("how many memories are there?", {"question": "how_many"}),
    ("how many things do you remember?", {"question": "how_many"}),
    ("how-many Car", about("how_many", "Car")),
    # How often and how long it was seen.
    ("how often did you see the postman?", about("how_often", "postman")),
    ("how often was the dog seen today", about("how_often", "dog", between=day("2026-01-10"))),
    ("how many times have you seen a cat?", about("how_often", "cat")),
    ("how many times was the door seen this week?",
     about("how_often", "door", between=(at("2026-01-05"), NOW))),
    ("how frequently do you see cyclists?", about("how_often", "cyclists")),
    ("how long did you see the dog?", about("how_often", "dog")),
    ("how long was the dog visible?", about("how_often", "dog")),
    ("how long was the van there?", about("how_often", "van")),
    ("how often is the gate seen on Tuesday", about("how_often", "gate", between=day("2026-01-06"))),
    ("how-often Car", about("how_often", "Car")),
    # What changed.
    ("what changed since yesterday", changed(at("2026-01-09"))),
    ("what has changed since 9:00?", changed(at("2026-01-10T09:00"))),
    ("what changed since this morning?", changed(MORNING[0])),
    ("what's different since Monday?", changed(at("2026-01-05"))),
    ("what changed in the last two hours?", changed(NOW - 2 * HOUR)),
    ("what changed here?", {"question": "changed_since", **LAST}),
    ("what's new?", {"question": "changed_since", **LAST}),
    ("what's new today?", changed(at("2026-01-10"))),
    ("anything new?", {"question": "changed_since", **LAST}),
    ("is anything missing?", {"question": "changed_since", **LAST}),
    ("has anything changed since last night?", changed(at("2026-01-09T18:00"))),
    ("did something move?", {"question": "changed_since", **LAST}),
    ("what went missing since yesterday", changed(at("2026-01-09"))),
    ("what disappeared?", {"question": "changed_since", **LAST}),
    ("what is gone since 2026-01-08?", changed(at("2026-01-08"))),
    ("what changed near the door since yesterday?",
     changed(at("2026-01-09"), **DOOR)),
    ("show me the changes since yesterday", changed(at("2026-01-09"))),
    ("are there any changes since 8 am", changed(at("2026-01-10T08:00"))),
    ("since yesterday, what changed?", changed(at("2026-01-09"))),
    ("changed", {"question": "changed_since", **LAST}),
    # What was at a time.
    ("what did you see this morning?", during(MORNING)),
    ("what have you seen today", during(day("2026-01-10"))),
    ("what happened yesterday", during(YESTERDAY)),
    ("what happened in the last 2 hours", during((NOW - 2 * HOUR, NOW))),
    ("what did you see in the last two hours?", during((NOW - 2 * HOUR, NOW))),
    ("what did you see over the past half an hour", during((NOW - HOUR // 2, NOW))),
    ("what did you see within the last 15 minutes", during((NOW - HOUR // 4, NOW))),
    ("what was there on Tuesday?", during(day("2026-01-06"))),
    ("what happened last Saturday?", during(day("2026-01-03"))),
    ("what happened on Saturday?", during(day("2026-01-10"))),
    ("what did you see since 9:00?", during((at("2026-01-10T09:00"), 2**63 - 1))),
    ("what did you notice yesterday evening?", during(hours("2026-01-09", 18, 22))),
    ("what happened last night?", during(hours("2026-01-09", 18, 29))),
    ("what happened on the morning of 2026-01-08?", during(hours("2026-01-08", 5, 12))),
    ("what happened between 9:00 and 10:00?",
     during((at("2026-01-10T09:00"), at("2026-01-10T10:01") - 1))),
    ("what was seen between 9:00 and 10:00 yesterday?",
     during((at("2026-01-09T09:00"), at("2026-01-09T10:01") - 1))),
    ("what happened from Monday to Wednesday?",
     during((at("2026-01-05"), day("2026-01-07")[1]))),
    ("what did you see yesterday at 14:30",
     during((at("2026-01-09T14:30"), at("2026-01-09T14:31") - 1))),
    ("what did you see at 9 am?",
     during((at("2026-01-10T09:00"), at("2026-01-10T09:01") - 1))),
    ("what did you see before yesterday?", during((-(2**63), at("2026-01-09")))),
    ("yesterday, what did you see?", during(YESTERDAY)),
    ("what happened in the kitchen yesterday?", during(YESTERDAY, relation="inside", **KITCHEN)),
    ("what did you see near (3, 1) today?", during(day("2026-01-10"), **HERE)),
    ("did anything happen last night?", during(hours("2026-01-09", 18, 29))),
    ("did you see anything today?", during(day("2026-01-10"))),
    ("what objects did you see on 2026-01-02?", during(day("2026-01-02"))),
    ("everything you saw yesterday", during(YESTERDAY)),
    ("what do you remember of yesterday?", during(YESTERDAY)),
    ("what did you see recently?", during((NOW - DAY, NOW))),
    ("2026-01-02", during(day("2026-01-02"))),
    ("yesterday", during(YESTERDAY)),
    # Something at a time.
    ("where was the mug on 2026-01-02", about("search", "mug", between=day("2026-01-02"))),
    ("did you see a dog this morning?", about("search", "dog", between=MORNING)),
    ("yesterday, where was the car?", about("search", "car", between=YESTERDAY)),
    ("was the car still there yesterday?", about("search", "car", between=YESTERDAY)),
    ("which cars did you see yesterday?", about("search", "cars", between=YESTERDAY)),
    ("a mug near 1 2 yesterday", about("search", "mug", near=(1.0, 2.0), radius_m=5.0, between=YESTERDAY)),
    ("cars since yesterday", about("search", "cars", since=at("2026-01-09"))),
    # What is at a place.
    ("what is near 3, 1", {"question": "near", **HERE}),
    ("what is near (3, 1)?", {"question": "near", **HERE}),
    ("what's around 3 1", {"question": "near", **HERE}),
    ("what is at (3, 1)?", {"question": "near", **HERE}),
    ("what is there at (3, 1)?", {"question": "near", **HERE}),
    ("what is within 10 m of (3.5, -4, 1)?",
     {"question": "near", "near": (3.5, -4.0, 1.0), "radius_m": 10.0}),
    ("what is less than 2 metres from (3, 1)", {"question": "near", "near": (3.0, 1.0), "radius_m": 2.0}),
    ("what's near the door", about("near", "door", radius_m=5.0)),
    ("what is near the kitchen?", about("near", "kitchen", radius_m=5.0)),
    ("what is in the kitchen?", {"question": "near", "relation": "inside", **KITCHEN}),
    ("what is within 3 m of the door?", about("near", "door", radius_m=3.0)),
    ("what stands next to the sofa", KITCHEN | {"question": "near", "beside": "sofa", "relation": "next to"}),
    ("anything close to the charger?", about("near", "charger", radius_m=5.0)),
    ("what is near memory 5?", about("near", 5, radius_m=5.0)),
    ("near (3, 1)", {"question": "near", **HERE}),
    ("what happened near (3, 1)?", {"question": "near", **HERE}),
    # Lists and searches.
    ("show me all cyclists", about("search", "cyclists")),
    ("show all cars near (3, 1)", about("search", "cars", **HERE)),
    ("list the chairs", about("search", "chairs")),
    ("list every car in map yard", about("search", "car", map_id="yard")),
    ("give me all pedestrians", about("search", "pedestrians")),
    ("find all mugs", about("search", "mugs")),
    ("search for red mugs", about("search", "red mugs")),
    ("which dogs do you know?", about("search", "dogs")),
    ("what cars are there?", about("search", "cars")),
    ("cars within 5 m of the door", about("search", "cars", **DOOR)),
    ("red mug near the door", about("search", "red mug", **DOOR)),
    ("cyclists near (3, 1)", about("search", "cyclists", **HERE)),
    ("red mug", about("search", "red mug")),
    ("Car", about("search", "Car")),
    ("where is the nearest car to (3, 1)?", about("ranked", "car", near=(3.0, 1.0))),
    ("the closest chair to the door", about("ranked", "chair", beside="door")),
    ("which car is closest to 3, 1?", about("ranked", "car", near=(3.0, 1.0))),
    ("what did you see last?", {"question": "ranked"}),
    ("what is the newest memory?", {"question": "ranked"}),
    ("what do you know about cyclists?", about("search", "cyclists")),
    ("any dogs near (3, 1)?", about("how_many", "dogs", **HERE)),
    ("where was the last car seen?", about("last_seen", "car")),
    ("how many different cars are there?", about("how_many", "cars")),
    ("wher is the car?", about("last_seen", "car")),
    ("waht changed since yesterday?", changed(at("2026-01-09"))),
    ("what is around here?", ALL),
    ("what happened between 11:30 and 12:30?",
     during((at("2026-01-10T11:30"), at("2026-01-10T12:31") - 1))),
    ("what happened between 23:00 and 1:00?",
     during((at("2026-01-09T23:00"), at("2026-01-10T01:01") - 1))),
    ("describe what you see", ALL),
    # All of it.
    ("summarise everything in map yard", {**ALL, "map_id": "yard"}),
    ("summary", ALL),
    ("what do you know?", ALL),
    ("what do you remember?", ALL),
    ("what is in your memory?", ALL),
    ("give me an overview", ALL),
    ("describe the kitchen", {**ALL, "beside": "kitchen"}),
    ("summarise the yard", {**ALL, "beside": "yard"}),
    ("tell me everything", ALL),
    ("show me everything", ALL),
    ("which labels are there?", ALL),
    ("what is there?", ALL),
    # Where to go.
    ("go to the charger", about("pose_to", "charger")),
    ("drive to memory 12", about("pose_to", 12)),
    ("please take me to the door", about("pose_to", "door")),
    ("how do I get to the bakery?", about("pose_to", "bakery")),
    ("show me the way to the exit", about("pose_to", "exit")),
    # What is like it.
    ("similar to 12", about("similar_situations", 12)),
    ("what is like memory 12?", about("similar_situations", 12)),
    ("what looks like #12", about("similar_situations", 12)),
    ("show situations similar to memory 12", about("similar_situations", 12)),
    ("similar", {"question": "similar_situations"}),
    # Before.
    ("have I seen this before?", {"question": "seen_before"}),
    ("did you already see that one?", {"question": "seen_before"}),
    ("is this new?", {"question": "seen_before"}),
    ("do you know this?", {"question": "seen_before"}),
    ("have you seen memory 12 before?", about("seen_before", 12)),
    ("seen-before #12", about("seen_before", 12)),
    ("have I been here before?", {"question": "been_here"}),
    ("was I ever here", {"question": "been_here"}),
    ("do you recognise this place?", {"question": "been_here"}),
    ("been here 12", about("been_here", 12)),
    ("have you seen a red mug before?", about("last_seen", "red mug")),
    # The days of an object, words for numbers, places of the robot.
    ("on which days was the car seen?", about("how_often", "car")),
    ("which days did you see the cat", about("how_often", "cat")),
    # Neither.
    ("asdf qwer", about("search", "asdf qwer")),
    ("the", about("search", "the")),
    ("why is the sky blue?", about("search", "why is the sky blue")),
    ("42", about("search", 42)),
]  # fmt: skip


def test_there_are_two_hundred_phrasings() -> None:
    assert len({text for text, _ in PHRASINGS}) == len(PHRASINGS) >= 200


@pytest.mark.parametrize(("text", "parts"), PHRASINGS)
def test_what_is_meant(text: str, parts: dict[str, Any]) -> None:
    assert understand(text, NOW).given() == parts


def test_radii_in_words() -> None:
    for text, radius in (("two metres", 2.0), ("one meter", 1.0), ("a foot", 0.3048)):
        found = understand(f"what is within {text} of the sink?", NOW)
        assert (found.what, found.radius_m) == ("sink", radius), text


def test_where_the_robot_was() -> None:
    for text in (
        "where were you yesterday?",
        "where did the robot go yesterday",
        "where have you been today",
    ):
        found = understand(text, NOW)
        assert (found.question, found.kinds, found.what) == ("between", ("place",), None), text
    assert understand("where have you been?", NOW).kinds == ("place",)
    for text, reason in (
        ("where were you", "not where it is now"),
        ("where was he yesterday", "who 'he' is"),
        ("has the phone moved? where was it", "one question at a time"),
    ):
        assert reason in (understand(text, NOW).problem or ""), text


def test_what_cannot_be_asked() -> None:
    with pytest.raises(ValueError, match="question is empty"):
        understand("?!", NOW)
    with pytest.raises(ValueError, match="500 characters"):
        understand("where " * 100, NOW)
    with pytest.raises(ValueError, match="needs a point"):
        understand("where is the nearest car?", NOW)
    with pytest.raises(ValueError, match="is after"):
        understand("what happened between today and yesterday", NOW)


@given(st.text(max_size=80))
def test_any_text_is_a_question_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert understand(text, NOW).question
