"""Refusals of questions: the reason, and a question that works.

A part of a question that is not understood is never dropped, because the rest would be another question.
"""

from __future__ import annotations

from memory.questions.reading.arguments import pattern
from memory.questions.reading.grammar import Parse

#: *Help* and *what can I ask*.
ASKS_FOR_HELP = pattern(
    r"^(?:help(?: me)?|usage|how (?:does|do i use) (?:this|it)(?: work)?"
    r"|(?:what|which questions) (?:can|could|may|do) (?:i|you) (?:ask|answer|do|understand)(?: you)?)$"
)
#: Questions that work, with an object of the store.
EXAMPLES = ("where is the {thing}?", "what is near the {thing}?", "what changed since yesterday?")
HELP = (
    "I answer questions about past observations. Ask for example: 'where is the {thing}?', 'how many {thing}s"
    " are there?' or 'what changed since yesterday?'"
)
_EXAMPLE = "Ask for example: 'where is the {thing}?'"
#: Reasons by the class of a word; ``{word}`` is the word itself, ``{Word}`` with a capital.
_REASONS: dict[str, str] = {
    "FUTURE": f"The store holds only past observations. {_EXAMPLE}",
    "WHY": f"Reasons are not stored. I can answer where, when and how many. {_EXAMPLE}",
    "WHO": "The store does not know who did something. Ask for example: 'has the {thing} moved?'",
    "ADVICE": f"I give no advice, I only know past observations. {_EXAMPLE}",
    "FAR": (
        "A distance needs two objects, or an object and a point. Ask for example: 'how far is the {thing}"
        " from (3, 1)?'"
    ),
    "ATTRIBUTE": f"{{Word}} is not stored; I can answer where, when and how many. {_EXAMPLE}",
    "QUALITY": (
        f"Whether something is '{{word}}' is not stored; I can answer where, when and how many. {_EXAMPLE}"
    ),
    "ACT": (
        "'{word}' is an action. I carry out no actions and store none; I can answer where, when and how many."
        f" {_EXAMPLE}"
    ),
    "CLAUSE": (
        "'{word}' needs a time, not an event. Ask for example: 'what changed since 9:00?' or 'when did you"
        " last see the {thing}?'"
    ),
    "FOREIGN": f"I only understand questions in English. {_EXAMPLE}",
    "SIDE": (
        "'{word}' is no relation that I compute; I know on, in, next to, between, under, above, left of,"
        " right of, in front of and behind. Ask for example: 'what is next to the {thing}?'"
    ),
    **dict.fromkeys(
        ("COMPARE", "MORE", "CLOSER", "QUANTITY", "RECENT", "THAN"),
        "'{word}' compares two named objects or the counts of two places or times, or limits a list. Ask"
        " for example: 'are there more {thing}s today than yesterday?' or 'which {thing}s are taller than 1"
        " m?'",
    ),
    "SUPERLATIVE": (
        "'{word}' needs one kind of object or one place, and nothing else. Ask for example: 'which {thing} is"
        " the largest?' or 'what did you see most often?'"
    ),
    "NOT": (
        "I understand negations and exceptions such as '{word}' only as a condition on a list. Ask for"
        " example: 'which {thing}s are not near (3, 1)?'"
    ),
    **dict.fromkeys(
        ("AND", "STOP"),
        f"I can't ask this about each of several objects. Ask about each object separately. {_EXAMPLE}",
    ),
}
#: Reasons with ``{noun}`` for words that the store does not know, and without such words.
_UNPARSED = f"I don't understand '{{noun}}' in '{{words}}'. {_EXAMPLE}"
TOO_MANY = f"I can relate one object to one place, not all of: {{nouns}}. {_EXAMPLE}"
_PRONOUNS = ("it", "them", "these", "those", "this one", "that one", "they", "one")
_KINDS = ("type of", "kind of", "sort of", "types of", "kinds of")
ONE_AT_A_TIME = f"I answer one question at a time. {_EXAMPLE}"
NO_ROBOT = (
    "I know which places the robot saw in a time, not where it is now; 'recall locate' estimates that from a"
    " scan. Ask for example: 'where were you yesterday?'"
)
#: ``{word}`` is the pronoun.
UNNAMED = f"I read each question on its own, so I don't know what '{{word}}' is. Name it. {_EXAMPLE}"
#: ``{point}`` is as typed.
UNUSED_POINT = f"I don't know what {{point}} has to do with the question. Ask it in one sentence. {_EXAMPLE}"
HABITS = f"I know where objects were seen, not what usually happens. {_EXAMPLE}"
WHICH_IS_MEANT = f"I don't know which of several objects is meant. Name it in the question. {_EXAMPLE}"
WHO_IS = f"I don't know who '{{word}}' is. {_EXAMPLE}"
LEFT_IN_A_TIME = (
    "I count what was seen in a time, not what left in it. Ask for example: 'what changed since yesterday?'"
)


def _is_habit(parsed: Parse) -> bool:
    """Return True for *where do visitors sit*; with a determiner, an object of the store is meant."""
    kinds = [chunk.kind for chunk in parsed.functions]
    does = any(chunk.text.lower() in ("do", "does") for chunk in parsed.functions)
    return (
        does
        and kinds[:2] == ["WHERE", "DO"]
        and "STAY" in kinds
        and not {"DET", "PERSON", "THIS"} & set(kinds)
    )


def reason_of(parsed: Parse, words: str) -> str | None:
    """Return why a question has no answer, with ``{thing}`` for an object of the store; None if it has one.

    Args:
        parsed: the question.
        words: as typed.
    """
    for chunk in parsed.functions:
        if chunk.kind in _REASONS:
            reason = _REASONS[chunk.kind].replace("{word}", chunk.text)
            return reason.replace("{Word}", chunk.text[:1].upper() + chunk.text[1:])
    if _is_habit(parsed):
        return HABITS
    kinds = any(each.text.lower() in _KINDS for each in parsed.functions)
    if kinds and (parsed.has("COUNT") or (parsed.target is not None and parsed.has("WHAT", "WHICH"))):
        about = parsed.target or "objects"
        return f"Kinds of {about} are not stored; I can answer where, when and how many. {_EXAMPLE}"
    if parsed.functions and parsed.functions[0].kind in ("BE", "DO", "HAVE") and parsed.has("ALL"):
        return (
            "I check 'all' only for one kind of object and one condition. Ask for example: 'are all {thing}s"
            " near (3, 1)?' or 'show me all {thing}s'"
        )
    if parsed.target is None and parsed.has("ANYONE"):
        return f"The kind of object is missing, such as a person. {_EXAMPLE}"
    if parsed.question is None and parsed.has("NEAREST"):
        return (
            "'nearest' needs a point or an object, and no other relation. Ask for example: 'where is the"
            " nearest {thing} to (3, 1)?'"
        )
    pronouns = (*_PRONOUNS, "me", "us") if parsed.dangling else _PRONOUNS
    pronoun = next((each.text for each in parsed.functions if each.text.lower() in pronouns), None)
    named = (parsed.target is not None or parsed.has("ANYTHING", "HERE")) and not parsed.dangling
    if pronoun is not None and not named and parsed.question not in ("seen_before", "been_here"):
        return UNNAMED.replace("{word}", pronoun)
    if parsed.unparsed:
        return _UNPARSED.replace("{words}", words)
    if parsed.question is None:
        return f"I don't understand '{words}'. {_EXAMPLE}"
    return None
