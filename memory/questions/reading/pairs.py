"""Comparisons of two named objects by a time or by a superlative.

*Which showed up first, the package or the backpack* and *did the package arrive before the backpack* compare
the same two times.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.questions.boxes import Order
from memory.questions.reading.comparing import Comparing
from memory.questions.reading.grammar import Chunk
from memory.questions.reading.superlatives import measure_of

#: Classes of words that do not change a comparison.
_AROUND = frozenset({
    "AND", "BE", "BETWEEN", "DET", "DO", "FILLER", "HAVE", "NOUN", "OF", "PERSON", "STOP", "WHAT", "WHICH",
    "WHO",
})  # fmt: skip
_SILENT = ("DET", "FILLER", "STOP")
_SUPERLATIVES = ("FIRST", "LAST", "MOST", "RECENT", "SUPERLATIVE")
#: Deeds that a time is of. At most one of them may be said.
_DEEDS = ("APPEAR", "LEFT", "MOVE", "SEE")
#: Words for the later of two times, and for the earlier one.
_LATER = ("last", "latest", "most recent", "most recently", "more recently", "later", "the last", "after")
_EARLIER = ("first", "earliest", "for the first time", "the first time", "sooner", "before")


def pair_of(chunks: Sequence[Chunk], *, timed: bool = False) -> Comparing | None:
    """Return a comparison of two named objects by time or superlative; None for another question.

    Args:
        chunks: of the question without its time.
        timed: True if the question has a time. Only observations have one, not arrivals and departures.
    """
    found = _pair_of(chunks)
    deeds = {chunk.kind for chunk in chunks} & set(_DEEDS)
    by_time = found is not None and found.measure in ("first_seen", "last_seen")
    return None if timed and by_time and deeds != {"SEE"} else found


def _pair_of(chunks: Sequence[Chunk]) -> Comparing | None:
    # "Earlier" alone means any time before; with two objects it is the opposite of "later".
    chunks = [Chunk("RECENT", "sooner") if each.text.lower() == "earlier" else each for each in chunks]
    places = [place for place, chunk in enumerate(chunks) if chunk.kind == "NOUN"]
    if len(places) != 2:
        return None
    first, second = places
    nouns = (chunks[first].text, chunks[second].text)
    link = [chunk for chunk in chunks[first + 1 : second] if chunk.kind not in _SILENT]
    if chunks[0].kind in ("BE", "DO", "HAVE") and link and link[-1].kind in ("CLAUSE", "THAN"):
        # Did the package arrive before the backpack?
        said = [*chunks[:first], *link[:-1]]
        if second != len(chunks) - 1:
            return None
        if link[-1].kind == "CLAUSE":
            return _by_time(said, link[-1].text, nouns, yes_no=True)
        word = next((chunk for chunk in said if chunk.kind == "RECENT"), None)
        rest = [chunk for chunk in said if chunk is not word]
        return None if word is None else _by_time(rest, word.text, nouns, yes_no=True)
    if [chunk.kind for chunk in link] != ["AND"]:
        return None
    outside = [*chunks[: first + 1], *chunks[second:]]
    marks = [chunk for chunk in outside if chunk.kind in _SUPERLATIVES]
    if len(marks) != 1:
        return None
    (mark,) = marks
    rest = [chunk for chunk in outside if chunk is not mark]
    if mark.kind == "SUPERLATIVE" or (mark.kind == "MOST" and any(chunk.kind == "SEE" for chunk in rest)):
        return _by_superlative(rest, mark.text, nouns)
    return _by_time(rest, mark.text, nouns, yes_no=False)


def _by_time(
    chunks: Sequence[Chunk], words: str, nouns: tuple[str, str], *, yes_no: bool
) -> Comparing | None:
    """Return a comparison of the first or last observations, or of when two objects left."""
    deeds = {chunk.kind for chunk in chunks} & set(_DEEDS)
    here = any(chunk.kind in ("HERE", "THERE") for chunk in chunks)
    said = words.lower()
    if _strange(chunks, *_DEEDS, "HERE", "THERE") or len(deeds) > 1:
        return None
    if said not in (*_LATER, *_EARLIER, "less recently"):
        return None
    later = said in _LATER
    order: Order = "more" if later else "less"
    if deeds & {"LEFT", "MOVE"}:
        if not all(_leaves(chunk.text) for chunk in chunks if chunk.kind in ("LEFT", "MOVE")):
            return None
        return Comparing("last_seen", order, nouns, None, yes_no, among="left")
    if "SEE" in deeds:
        if yes_no and "recently" not in said:
            return None  # "Did you see A before B" may mean the first or the last time.
        if later or said == "less recently":
            return (
                None
                if said in ("later", "after")
                else Comparing("last_seen", order, nouns, None, yes_no, among="all")
            )
        return None if said == "sooner" else Comparing("first_seen", order, nouns, None, yes_no, among="all")
    if "recently" in said and not deeds:
        return None
    if deeds or here or said in ("first", "earliest"):
        return Comparing("first_seen", order, nouns, None, yes_no, among="all")
    return None


def _by_superlative(chunks: Sequence[Chunk], words: str, nouns: tuple[str, str]) -> Comparing | None:
    """Return a comparison such as *which is the tallest, the fridge or the ladder*."""
    if words.lower().startswith("how ") or _strange(chunks, "HERE", "SEE", "STAY", "THERE"):
        return None
    measure, order = measure_of(words)
    staying = words.lower().split()[-1] == "longest" and any(
        chunk.kind in ("HERE", "STAY", "THERE") for chunk in chunks
    )
    if staying:
        measure, order = "first_seen", "less"
    timed = not staying and measure in ("first_seen", "last_seen", "observations", "duration")
    return Comparing(measure, order, nouns, among="all" if timed else "there")


def _leaves(words: str) -> bool:
    """Return True for *left* and *went missing*; *moved* may mean another place."""
    return not words.lower().startswith(("move", "pick", "collect", "took", "take"))


def _strange(chunks: Sequence[Chunk], *kinds: str) -> bool:
    """Return True if a chunk has no place in the comparison."""
    return any(chunk.kind not in _AROUND | set(kinds) for chunk in chunks)
