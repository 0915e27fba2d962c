"""Questions about several objects, and several questions in one, as one question each.

The grammar reads *where are the keys and the phone* as *where are the keys* and *where are the phone*. The
parts are answered one after the other, so each of them must be understood alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from memory.questions.reading.grammar import PREPOSITIONS, Chunk, chunks_of
from memory.questions.reading.parsed import ParsedQuestion

#: Reads a question in words.
Understand = Callable[[str], ParsedQuestion]
#: Questions that can be answered for one object after the other.
_SEPARABLE = (
    "between", "changed_since", "distance", "first_seen", "how_many", "how_often", "last_seen", "left",
    "near", "related", "search", "select", "still_there",
)  # fmt: skip
#: Classes of words that relate the objects to each other. Such objects have no questions of their own.
_JOINT = frozenset({
    "BETWEEN", "CLOSER", "COMPARE", "MORE", "MOST", "NEAREST", "QUANTITY", "SIMILAR", "SUPERLATIVE", "THAN",
})  # fmt: skip
#: First classes of a question.
_STARTS = frozenset({
    "BE", "COUNT", "DESCRIBE", "DO", "FAR", "FIND", "HAVE", "LONG", "OFTEN", "SHOW", "SINCE", "WHAT", "WHEN",
    "WHERE", "WHICH",
})  # fmt: skip
#: Classes of a second question that a place and a time don't answer.
_MORE = frozenset({
    "APPEAR", "CHANGE", "COUNT", "FAR", "HAPPEN", "LEFT", "LONG", "MOVE", "OFTEN", "SHOW", "STILL", "WHAT",
    "WHICH",
})  # fmt: skip
_BETWEEN = ("AND", "STOP")
_AROUND = ("ALL", "DET", "FILLER", *_BETWEEN)
_JOINERS = ("and", "or", "as well as", "plus", ",")
#: Words before a list of objects that stress it.
_STRESSES = ("both", "either", "neither")
_TOGETHER = ("together", "in total", "altogether", "total", "overall")


def joined_chunks_of(words: str, names: Collection[str]) -> list[Chunk]:
    """Return the chunks of a question, with *or* in place of *nor*."""
    return [Chunk("AND", "or") if each.text.lower() == "nor" else each for each in chunks_of(words, names)]


def several_of(words: str, names: Collection[str], understand: Understand) -> ParsedQuestion | None:
    """Return the parts of several questions in one; ``None`` for one question.

    Args:
        words: the questions.
        names: labels of the store, which are names even if they hold function words.
        understand: reads the parts.
    """
    chunks = chunks_of(words, names)
    texts = [part for part in words.split("? ") if part]
    if len(texts) < 2:
        texts = _questions_in(chunks)
    parts = [chunks_of(text, names) for text in texts]
    alone = all(_asks(part) and _stands_alone(part) for part in parts)
    return _parts(texts, understand) if alone else None


def objects_of(words: str, names: Collection[str], understand: Understand) -> ParsedQuestion | None:
    """Return a question about several objects as one for each; ``None`` for others.

    Args:
        words: the question, which the grammar refuses as a whole.
        names, understand: see :func:`several_of`.
    """
    chunks = joined_chunks_of(words, names)
    if _JOINT & {chunk.kind for chunk in chunks}:
        return None
    found = _parts(one_by_one(chunks), understand)
    separable = found is not None and all(part.question in _SEPARABLE for part in found.parts)
    return found if separable else None


def _parts(texts: Sequence[str], understand: Understand) -> ParsedQuestion | None:
    """Return questions that are answered one after the other; ``None`` if one is not understood."""
    if len(texts) < 2:
        return None
    parts = [understand(text) for text in texts]
    flat = tuple(one for part in parts for one in (part.parts or (part,)))
    if any(
        part.problem is not None or (part.question == "search" and part.typed is not None) for part in flat
    ):
        return None
    return ParsedQuestion("several", parts=flat)


def drops_a_question(words: str, names: Collection[str]) -> bool:
    """Return True if a second question asks more than where and when, as in *and when did it leave*."""
    _, *others = _questions_in(chunks_of(words, names)) or [""]
    return any(chunk.kind in _MORE for text in others for chunk in chunks_of(text, names))


def _questions_in(chunks: Sequence[Chunk]) -> list[str]:
    """Return the texts of several whole questions that *and* or a comma joins."""
    cuts: list[tuple[int, int]] = []
    for at, chunk in enumerate(chunks):
        before = cuts[-1][1] if cuts else 0
        if chunk.kind not in _BETWEEN or at - before < 2:
            continue
        after = at + 1
        while after < len(chunks) and chunks[after].kind in (*_BETWEEN, "FILLER"):
            after += 1
        if after < len(chunks) - 1 and chunks[after].kind in _STARTS:
            cuts.append((at, after))
    starts, ends = [0, *(after for _, after in cuts)], [*(at for at, _ in cuts), len(chunks)]
    parts = [chunks[start:end] for start, end in zip(starts, ends, strict=True)]
    return [_text(part) for part in parts] if cuts and all(map(_asks, parts)) else []


def _asks(chunks: Sequence[Chunk]) -> bool:
    """Return True if words begin like a question."""
    first = next((chunk.kind for chunk in chunks if chunk.kind not in ("FILLER", "MODAL", "PERSON")), "")
    return first in _STARTS


def _stands_alone(chunks: Sequence[Chunk]) -> bool:
    """Return True unless words of another question are missing, as in *and how many came*."""
    kinds = {chunk.kind for chunk in chunks}
    words = [chunk.kind for chunk in chunks if chunk.kind not in ("ALL", "DET", "FILLER", "OF")]
    if "COUNT" in words and words[words.index("COUNT") + 1 :][:1] not in (["NOUN"], ["ANYTHING"]):
        return False
    if any(chunk.text.lower() in ("one", "ones") for chunk in chunks):
        return False  # "Where is the red one" needs the noun of the other question.
    return "NOUN" in kinds or (bool(kinds & {"ANYTHING", "WHAT"}) and not kinds & {"HERE", "THERE", "THIS"})


def one_by_one(chunks: Sequence[Chunk]) -> list[str]:
    """Return a question that lists objects or places as one question each; empty if it lists none."""
    places = [place for place, chunk in enumerate(chunks) if chunk.kind == "NOUN"]
    runs: list[list[int]] = []
    for place in places:
        if runs and _continues(chunks, runs[-1], place):
            runs[-1].append(place)
        else:
            runs.append([place])
    listed = [run for run in runs if len(run) > 1]
    if len(listed) != 1 or any(chunk.text.lower() in _TOGETHER for chunk in chunks):
        return []
    (run,) = listed
    joins = [chunk.text.lower() for chunk in chunks[run[0] : run[-1]] if chunk.kind in _BETWEEN]
    if "or" in joins and chunks[0].kind in ("WHAT", "WHICH", "WHO") and any(c.kind == "STOP" for c in chunks):
        return []  # "Which is heavier, A or B" asks for one of them.
    before = next((c.kind for c in reversed(chunks[: run[0]]) if c.kind not in _AROUND), "")
    both = before in PREPOSITIONS and before not in ("IN", "ON")
    if set(joins) <= {","} or not set(joins) <= set(_JOINERS) or (both and "or" not in joins):
        return []  # What is near both of two objects is not what is near each.
    start = [chunk for chunk in chunks[: run[0]] if chunk.text.lower() not in _STRESSES]
    bare = [place for place in run if not _article(chunks, place)]
    if before in PREPOSITIONS and bare and run[0] not in bare:
        return []  # "Near the bakery or red" has one place.
    if _shares_a_noun(chunks, run) or any(chunk.kind == "NOT" for chunk in start):
        return []
    while start and start[-1].kind == "DET":
        start.pop()
    end = chunks[run[-1] + 1 :]
    return [_text([*start, *_article(chunks, place), chunks[place], *end]) for place in run]


def _article(chunks: Sequence[Chunk], place: int) -> Sequence[Chunk]:
    """Return the determiner before a noun, if there is one."""
    return chunks[place - 1 : place] if place > 0 and chunks[place - 1].kind == "DET" else ()


def _continues(chunks: Sequence[Chunk], run: Sequence[int], place: int) -> bool:
    """Return True if a noun continues a list: *and*, or the same preposition, stands between."""
    between = [chunk for chunk in chunks[run[-1] + 1 : place] if chunk.kind not in ("ALL", "DET", "FILLER")]
    if not between or between[0].kind not in _BETWEEN:
        return False
    kinds = {chunk.kind for chunk in between} - set(_BETWEEN)
    first = next((c.kind for c in reversed(chunks[: run[0]]) if c.kind not in _AROUND), "")
    return not kinds or (kinds == {first} and first in PREPOSITIONS)


def _shares_a_noun(chunks: Sequence[Chunk], run: Sequence[int]) -> bool:
    """Return True for *the red and blue mugs*: the first adjective alone is no object."""
    last = run[-1]
    if chunks[last - 1].kind == "DET" or " " not in chunks[last].text:
        return False
    return any(
        " " not in chunks[place].text and not chunks[place].text.lower().endswith("s") for place in run
    )


def _text(chunks: Sequence[Chunk]) -> str:
    return " ".join(chunk.text for chunk in chunks)
