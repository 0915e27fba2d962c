"""What a typed question means: times, places and maps are taken off first, the grammar reads the rest.

``where is the red mug`` asks for ``last_seen``, ``what changed since yesterday`` for ``changed_since``. Words
that are no question are searched for. Times, places and maps may stand anywhere: ``yesterday``, ``between A
and B``, ``within 5 m of 3, 4``, ``in map yard``. The words of ``recall ask`` are understood too
(``last-seen mug``). The page, the service, the tools for language models and the command line all ask here.
"""

from __future__ import annotations

from collections.abc import Collection

from memory.questions.boxes import SIDES
from memory.questions.changes import Change
from memory.questions.errors import QuestionError
from memory.questions.reading.areas import count_bound, kinds_question, rooms_question
from memory.questions.reading.arguments import ENDS, LATEST, ONLY_POINT, arguments_of, pattern
from memory.questions.reading.comparing import (
    Comparing,
    comparing_of,
    distance_between,
    equal_of,
    halves_of,
    order_of,
)
from memory.questions.reading.firsts import first_sightings
from memory.questions.reading.grammar import (
    RELATION_OF,
    Chunk,
    Parse,
    chunks_of,
    is_past,
    parse,
    unit_of,
)
from memory.questions.reading.pairs import pair_of
from memory.questions.reading.parsed import NEARBY_M, RELATED, ParsedQuestion, by_distance
from memory.questions.reading.phrases import rephrased
from memory.questions.reading.refusals import (
    ASKS_FOR_HELP,
    HELP,
    LEFT_IN_A_TIME,
    NO_ROBOT,
    ONE_AT_A_TIME,
    WHO_IS,
    reason_of,
)
from memory.questions.reading.rewording import reworded
from memory.questions.reading.robot import own_place
from memory.questions.reading.rooms import in_room_of, room_phrase
from memory.questions.reading.selections.conditions import selection_of
from memory.questions.reading.selections.conjunctions import drops_a_question, objects_of, several_of
from memory.questions.reading.superlatives import (
    LISTS,
    Superlative,
    named_winner,
    superlative_of,
    who_as_what,
)
from memory.questions.reading.times import Span
from memory.types import AWAY, Kind, State
from memory.wording import fold, nearest
from memory.wording.stems import says_something

#: Characters of the longest question.
MOST_CHARACTERS = 500
_DAY = 86_400 * 10**9


_MEMORY = pattern(r"\b(?:memory|id) #?(\d{1,18})\b")
_ID = pattern(r"^#?(?P<id>\d{1,18})$")
#: Marks for the direction of text.
_DIRECTION = pattern("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")
#: Begin a question in Spanish.
_STARTS = "¿¡ "
#: First words of questions, for the correction of a slip.
_FIRST_WORDS = {"where": 2, "when": 1, "what": 1, "which": 1, "show": 1}
#: Words for a map, at the end of *in which city*.
_MAPS = ("map", "city", "town", "site", "drive", "recording")
#: Words for the robot, whose places are the stored ones.
_ROBOT = ("you", "u", "ya", "we", "the robot", "robot")
#: Words of ``recall ask``.
_COMMAND = pattern(
    r"^(?P<question>(?:last|first)[-_]seen|still[-_]there|how[-_](?:often|many)|seen[-_]before|been[-_]here"
    r"|pose[-_]to)(?: (?P<what>.+))?$"
)
#: Words after "near" that name nothing.
_NO_OBJECT = ("here", "there", "me", "you", "it", "past", "memory")


def understand(text: str, now_ns: int, names: Collection[str] = ()) -> ParsedQuestion:
    """Return what a question asks for.

    Args:
        text: as typed.
        now_ns: the moment that words such as yesterday count from.
        names: labels of the store, which are names even if they hold function words.

    Raises:
        QuestionError: the text is empty or too long, or depends on the robot's pose.
        ValueError: a time does not exist.
    """
    return understand_words(words_of(text), now_ns, names)


def words_of(text: str) -> str:
    """Return a typed question as a direct one, without polite words.

    Raises:
        QuestionError: the text is empty or too long.
    """
    if len(text) > MOST_CHARACTERS:
        raise QuestionError(
            "text", f"a question may have {MOST_CHARACTERS} characters, got {len(text)}. Shorten it"
        )
    words = " ".join(_DIRECTION.sub("", text).replace("’", "'").split()).lstrip(_STARTS).rstrip(ENDS)
    if not says_something(words):
        raise QuestionError("text", "the question is empty. Ask for example: 'where is the car?'")
    return reworded(words)


def understand_words(words: str, now_ns: int, names: Collection[str]) -> ParsedQuestion:
    """Return what the words of :func:`words_of` ask for; see :func:`understand`."""

    def read(part: str) -> ParsedQuestion:
        return understand(part, now_ns, names)

    if ASKS_FOR_HELP.match(words):
        return ParsedQuestion("search", what=words, typed=words, problem=HELP)
    plain = _MEMORY.sub(r"#\1", words)
    several = several_of(plain, names, read)
    if several is not None:
        return several
    if "? " in words or drops_a_question(plain, names):
        return ParsedQuestion("search", what=words, typed=words, problem=ONE_AT_A_TIME)
    found = rooms_question(words) or kinds_question(words, read)
    equal = equal_of(words)
    if found is not None or equal is not None:
        return found or ParsedQuestion("compare", comparing=equal)
    winner = named_winner(words)
    if winner is not None:
        ranking = read(winner[1])
        if ranking.question == "ranked" and ranking.comparing is not None and ranking.problem is None:
            ranking.comparing.choices = (winner[0],)
            return ranking
    found = selection_of(plain, now_ns, names, read) or _understand(words, now_ns, names)
    if found.question == "how_many":
        found.bound = count_bound(words)
    return found if found.problem is None else objects_of(plain, names, read) or found


def _understand(words: str, now_ns: int, names: Collection[str]) -> ParsedQuestion:
    """Return what a question without conditions asks for."""
    counts = _compared_counts(words, now_ns, names)
    if counts is not None:
        return counts
    room = room_phrase(words)
    found = _plain(words if room is None else room.text, now_ns, names)
    return found if room is None else in_room_of(found, room, words)


def _plain(words: str, now_ns: int, names: Collection[str]) -> ParsedQuestion:
    """Return what a question asks for, with the name of an object in place of *the room of* it."""
    found = ParsedQuestion("search")
    own = own_place(words)
    if own is not None:
        found.robot, found.relation, found.radius_m = own.words, own.relation, own.radius_m
    given = arguments_of(_MEMORY.sub(r"#\1", own.rest if own else words), now_ns)
    rest = given.rest
    for part in ("near", "radius_m", "between", "since", "map_id", "unit"):
        if getattr(given, part) is not None:
            setattr(found, part, getattr(given, part))
    command = _COMMAND.match(rest)
    if command is not None:
        found.question = command["question"].lower().replace("-", "_")
        found.what = _object(command["what"])
        return _completed(found, now_ns)
    if not rest:
        found.question = "between" if found.between is not None or found.since is not None else "near"
        return _completed(found, now_ns)
    if _compare(rest, found, names):
        return found
    chunks, found.described = rephrased(who_as_what(chunks_of(_spelt(rest), names)))
    firsts = None
    if found.between is not None or found.since is not None:
        over = found.between is not None and found.between.last < now_ns
        firsts = first_sightings(chunks, over=over)
    parsed, superlative = _parsed(chunks) if firsts is None else (firsts, None)
    found.problem = reason_of(parsed, words)
    if found.problem is not None or parsed.question is None:
        return ParsedQuestion("search", what=words, typed=words, problem=found.problem, nouns=parsed.nouns)
    found.question = parsed.question
    found.what = _object(parsed.target)
    found.past = is_past(parsed.functions)
    found.many = parsed.has("WHERE") and _text_of(parsed, "BE").lower() in ("are", "were")
    if _text_of(parsed, "HERE").lower() == "nearby" and parsed.question in RELATED:
        found.robot = "nearby"
    if _asks_age(parsed):
        found.now_ns = now_ns
    found.time_unit = unit_of(parsed.functions)
    found.stayed = parsed.has("LONG") and not parsed.has("SEE", "MOVE", "LEFT")
    if superlative is not None:
        found.comparing = Comparing(superlative.measure, superlative.order, (), nth=superlative.nth)
        found.kinds = ("place",) if superlative.rooms else None
        found.past = (found.past or parsed.has("EVER")) and not superlative.staying
        if parsed.question != "pose_to":
            found.question = "ranked"
    _place_of(parsed, found)
    if found.question == "ranked":
        return _completed(found, now_ns)
    if found.robot and found.relation is not None:
        if found.question not in RELATED:
            return ParsedQuestion("search", what=words, typed=words, problem=LEFT_IN_A_TIME)
        found.question = "related"
        return found
    if parsed.question == "most":
        order = order_of(_text_of(parsed, "MOST") or _text_of(parsed, "EMPTIEST"))
        if parsed.target is None:
            found.kinds = ("object",)
        maps = _text_of(parsed, "WHERE").lower().endswith(_MAPS)
        found.question, found.comparing = "compare", Comparing("count", order, (), maps=maps)
        return found
    if parsed.question == "search" and parsed.has("MOVE", "LEFT"):
        found.states = _marked(parsed) or AWAY
    if parsed.question == "search" and parsed.has("STILL"):
        found.states = ("present",)
    elif (
        parsed.question == "search"
        and _is_now(parsed)
        and found.states is None
        and not (found.between or found.since)
    ):
        found.states = ("present", "unknown")
    if parsed.question == "new_between" and found.between is None:
        found.between, found.since = Span(found.since or 0, LATEST), None
    if parsed.question == "changed_since":
        found.changes = _changes_of(parsed)
    if parsed.question == "first_seen" and parsed.has("LONG") and found.past and not parsed.has("HAVE"):
        found.question = "how_often"  # How long was it there?
    if found.what is None and _text_of(parsed, "ANYTHING").lower() in ("event", "events"):
        found.kinds = ("event",)
        found.question = "search" if found.question == "summarise" else found.question
    if found.what is None and parsed.means_objects():
        found.kinds = _kinds_of(_text_of(parsed, "ANYTHING").lower())
        found.question = "search" if found.question == "summarise" else found.question
    timed = found.between is not None or found.since is not None
    if parsed.question == "visited":
        person = _text_of(parsed, "PERSON").lower()
        ever = parsed.has("HAVE")  # Where have you been?
        if person not in _ROBOT or not (timed or ever):
            problem = NO_ROBOT if person in _ROBOT else WHO_IS.replace("{word}", person)
            return ParsedQuestion("search", what=words, typed=words, problem=problem)
        found.question, found.kinds = "between" if timed else "search", ("place",)
    if parsed.question == "appeared":
        found.question = "search" if timed else "first_seen"
    if parsed.question == "first_seen" and timed and parsed.has("APPEAR"):
        found.question = "new_between"  # When did the parcel arrive yesterday?
    if parsed.question == "pose_to" and parsed.has("NEAREST"):
        _check_origin(found)
        found.nearest, found.radius_m = True, None
    if parsed.question == "near" and not timed:
        found.states = ("present", "unknown")
    left = timed and parsed.has("MOVE", "LEFT")
    if left and parsed.question == "search" and found.what is None and found.since is not None:
        found.question, found.states, found.kinds = "changed_since", None, None
        found.changes = _changes_of(parsed)
    # What was seen since a time and is gone has left since then. An earlier time does not tell.
    ended = found.between is not None and found.between.last < now_ns
    if left and parsed.question == "how_many" and found.what is None and found.since is not None:
        found.question, found.changes, found.kinds = "changed_since", ("gone", "moved"), None
    elif left and (parsed.question == "how_many" or (found.question == "search" and ended)):
        return ParsedQuestion("search", what=words, typed=words, problem=LEFT_IN_A_TIME)
    if parsed.question == "search" and not parsed.functions:
        found.typed = rest
    if parsed.question == "still_there" and timed and parsed.has("MOVE", "LEFT"):
        # The answer has the last observation and the time of the change, so it covers any time asked for.
        found.question, found.between, found.since = "left", None, None
    _check_point(found)
    return _completed(found, now_ns)


def _parsed(chunks: list[Chunk]) -> tuple[Parse, Superlative | None]:
    """Return the parts of a question without its superlative, and the superlative if it is answered."""
    superlative = superlative_of(chunks)
    if superlative is not None and superlative.rooms:
        functions = [chunk for chunk in superlative.chunks if chunk.kind != "IN"]
        return Parse("search", None, functions=functions), superlative
    if superlative is not None:
        rest = parse(superlative.chunks)
        if rest.question in (*LISTS, "pose_to"):
            return rest, superlative
    parsed = parse(chunks)
    if parsed.question == "nearest":
        parsed.question = None
    return parsed, None


def _place_of(parsed: Parse, found: ParsedQuestion) -> None:
    """Set the landmarks and the relation to them."""
    marks = parsed.landmarks
    if not marks:
        return
    first = next((mark for mark in marks if mark.kind != "IN"), marks[0])
    if found.comparing is not None and found.comparing.measure == "distance" and first.kind == "IN":
        found.room = first.text
        return
    if found.near is not None or found.robot:
        if first.kind == "IN":
            found.room = first.text
            return
        if first.kind not in RELATION_OF:
            return  # The point is the place of the landmark.
        if found.robot or found.question not in (*RELATED, "ranked"):
            word = first.text
            raise QuestionError(
                "text", f"I don't understand '{word}' beside a point. Ask for the point or '{word}' alone"
            )
    others = [mark for mark in marks if mark is not first]
    found.beside = _object(first.text)
    found.relation = RELATION_OF.get(first.kind)
    found.inside = first.kind in ("IN", "ON")
    for other in others:
        if first.kind == other.kind == "BETWEEN":
            found.beside_too = _object(other.text)
        else:
            found.room = other.text
    if found.relation in ("between", *SIDES) or (found.relation and (found.room or found.near)):
        found.question = "related" if found.question in RELATED else found.question
    if found.radius_m is None and found.question not in ("nearest", "related"):
        found.radius_m = NEARBY_M


def _is_now(parsed: Parse) -> bool:
    """Return True for *which tools are in the workshop*, which those that left are not."""
    return (
        bool(parsed.landmarks)
        and parsed.has("WHAT", "WHICH")
        and _text_of(parsed, "BE").lower() in ("is", "are")
    )


def _kinds_of(words: str) -> tuple[Kind, ...]:
    """Return the kinds of memories that *objects* and *entries* mean; persons who moved are events."""
    return (
        ("object", "event", "note")
        if words in ("entry", "entries", "record", "records")
        else ("object", "event")
    )


def _marked(parsed: Parse) -> tuple[State, ...] | None:
    """Return the state of *marked as gone*, which is not *moved*; ``None`` for *gone* alone."""
    words = _text_of(parsed, "MOVE").lower()
    state = words.split()[-1] if words.startswith("marked") else ""
    return next(((each,) for each in AWAY if each == state), None)


def _asks_age(parsed: Parse) -> bool:
    """Return True for *how long ago*, *how long has it been there* and *how many days is it gone*."""
    return parsed.has("LONG") or any(
        chunk.kind == "WHEN" and chunk.text.lower().startswith("how") for chunk in parsed.functions
    )


def _text_of(parsed: Parse, kind: str) -> str:
    return next((chunk.text for chunk in parsed.functions if chunk.kind == kind), "")


def _compare(rest: str, found: ParsedQuestion, names: Collection[str]) -> bool:
    """Set the parts of a comparison of distances or sizes; return False for another question."""
    chunks = chunks_of(rest, names)
    ends = distance_between(chunks)
    if ends is not None and (len(ends) == 2 or found.near is not None):
        found.question, found.what = "distance", _object(ends[0])
        found.beside = _object(ends[1]) if len(ends) == 2 else None
        return len(ends) == 1 or found.near is None
    timed = found.between is not None or found.since is not None
    comparing = pair_of(chunks, timed=timed) or comparing_of(chunks)
    if comparing is None or found.near is not None:
        return False
    found.question, found.comparing, found.what = "compare", comparing, _object(comparing.anchor)
    return True


def _compared_counts(words: str, now_ns: int, names: Collection[str]) -> ParsedQuestion | None:
    """Return a question that compares two counts; None for another question."""
    halves = halves_of(chunks_of(words, names))
    if halves is None:
        return None
    lead = "how many did you see" if halves.past else "how many"
    first, second = (understand(f"{lead} {half}", now_ns, names) for half in halves[:2])
    if {first.question, second.question} != {"how_many"} or first.what is None:
        return None
    if second.what is None:
        second.what = first.what
    else:
        _inherit(first, second)
        _inherit(second, first)
    comparing = Comparing("count", halves.order, halves[:2], None, halves.yes_no)
    return ParsedQuestion("compare", what=first.what, comparing=comparing, sides=(first, second))


def _inherit(side: ParsedQuestion, other: ParsedQuestion) -> None:
    """Take the time and place of the other side of a comparison if this one has none."""
    if side.between is None and side.since is None:
        side.between, side.since = other.between, other.since
    if side.near is None and side.beside is None and side.map_id is None:
        for part in ("near", "beside", "radius_m", "relation", "inside", "map_id"):
            setattr(side, part, getattr(other, part))


def _changes_of(parsed: Parse) -> tuple[Change, ...] | None:
    """Return the changes that a question names; None for all."""
    words = {chunk.text.lower() for chunk in parsed.functions if chunk.kind in ("CHANGE", "MOVE", "LEFT")}
    if parsed.has("APPEAR", "FIRST") or words == {"new"}:
        return ("new",)
    if parsed.has("CHANGE") or not words:
        return None
    return ("moved",) if all(word.startswith("move") for word in words) else ("gone",)


def _spelt(words: str) -> str:
    """Return the words with a slip in the first mended."""
    first, _, rest = words.partition(" ")
    better = None if fold(first) in _FIRST_WORDS else nearest(fold(first), _FIRST_WORDS)
    return words if better is None else f"{better} {rest}"


def _check_point(found: ParsedQuestion) -> None:
    """Raise ``QuestionError`` for a point in place of an object."""
    if isinstance(found.what, str) and ONLY_POINT.match(found.what):
        raise QuestionError(
            "text", f"{found.what} is a point, not an object. Ask for example: 'what is near {found.what}?'"
        )


def _check_origin(found: ParsedQuestion) -> None:
    """Raise ``QuestionError`` unless distances have a point or an object that they are measured from."""
    known = found.beside is not None and str(found.beside).lower() not in _NO_OBJECT
    if (found.near is None and not found.robot and not known) or found.relation is not None:
        raise QuestionError(
            "text",
            "'nearest' needs a point or an object to measure from. Ask for example:"
            f" 'where is the nearest {found.what or 'car'} to (3, 1)?'",
        )


def _object(words: str | None) -> str | int | None:
    if words is None:
        return None
    words = words.strip().strip("\"'").strip()
    match = _ID.match(words)
    return int(match["id"]) if match else words or None


def _completed(found: ParsedQuestion, now_ns: int) -> ParsedQuestion:
    """Return a question with what follows from its parts."""
    timed = found.between is not None or found.since is not None
    placed = found.near is not None or found.beside is not None or found.robot is not None
    if by_distance(found):
        _check_origin(found)
        found.radius_m = None
        return found
    if found.near is not None and found.radius_m is None and not found.nearest:
        found.radius_m = NEARBY_M
    if found.question == "summarise":
        if found.what is not None and not placed:
            found.what, found.beside, found.radius_m = None, found.what, None
        if found.between is not None:
            found.question = "between"
    if found.question == "changed_since" and found.since is None:
        found.lately = found.between is None
        found.since = found.between.first if found.between else now_ns - _DAY
        found.between = None
    if found.question == "between" and not timed:
        found.question = "near" if placed else "summarise" if found.what is None else "search"
    if found.question == "between" and found.between is None:
        found.between, found.since = Span(found.since or 0, LATEST), None
    if found.question == "near" and timed:
        found.question = "between"
    if found.question == "near" and found.what is None and found.beside is not None and not found.relation:
        found.what, found.beside = found.beside, None
    if found.question in ("last_seen", "still_there") and timed:
        # Where an object was at a time is no question about the last time.
        found.question = "search"
    return found
