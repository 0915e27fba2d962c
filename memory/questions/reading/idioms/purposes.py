"""Objects by what they are for: *something to read* is any book, letter or newspaper.

The words become a category of :mod:`memory.wording.meaning`, and the answer says so.
"""

from __future__ import annotations

from memory.questions.reading.idioms.parts import Idiom

#: Uses, and the categories of the objects that serve them.
_USES = {
    r"drink (?:\w+ ){0,2}(?:from|out of)|drink from": "drinking vessel",
    r"read(?! the (?:time|news))": "reading matter",
    r"(?:sit|rest)(?: down)?(?: on)?|take a seat": "seat",
    r"(?:lie down|sleep)(?: and (?:sleep|rest))?(?: on| in)?": "sleeping place",
    r"(?:write|draw)(?: \w+)? with|take notes with": "writing tool",
    r"(?:sweep|mop|vacuum|hoover|clean)(?: up)?(?: (?:the|this|my|our) (?:floor|rug|carpet|mess|room))?"
    r"(?: with)?": "cleaning tool",
    r"(?:climb|stand)(?: up)?(?: on)?|climb to \w+|reach (?:\w+ ){1,5}?(?:ceiling|shelf|lamp|roof|top"
    r"|high)": ("climbing aid"),
    r"(?:keep|cool|chill|store) (?:\w+ ){0,3}(?:cold|cool|fresh|frozen)": "cooler",
    r"(?:dry|wipe) (?:my |our |your )?(?:hands|hair|face|dishes|myself)(?: with)?": "towel",
    r"(?:carry|transport|pack|put) (?:my |our |some |the )?(?:things|stuff|belongings|shopping|books)"
    r"(?: in)?": "bag",
    r"(?:heat up|warm up|warm|heat|cook)(?: (?:my |our |some |the )?(?:food|soup|meal|dinner|lunch))?": (
        "cooking appliance"
    ),
    r"fix (?:things|something)(?: with)?": "tool",
}
_ANYTHING = (
    r"(?:something|anything|somewhere|anywhere|(?:a|the) place|a spot|a thing|an object|objects?|things)"
)
_WE_CAN = r"(?:(?:that |which |where )?(?:i|we|you|one) (?:can|could) (?:use )?|that can be used )?"


def _pairs_of(use: str, category: str) -> tuple[Idiom, ...]:
    end = r"(?=$|[,.;?!]| (?:in|on|at|near|here|around|nearby|upstairs|downstairs|please)\b)"
    return (
        (rf"\b{_ANYTHING} (?:\w+ )?{_WE_CAN}(?:to |for )?(?:{use}){end}", f"a {category}"),
        (
            rf"^(?:what|which object|which thing) (?:here )?(?:can|could|might|should|would) (?:i|we|you|one)"
            rf" (?:use |take |borrow )(?:to |for )?(?:{use})$",
            f"where is a {category}",
        ),
        (
            rf"^(?:what|which things?) (?:can|could|might) (?:i|we|you|one) (?:{use}) (?P<where>(?:in|on"
            rf"|at|near) .+)$",
            rf"which {category}s are \g<where>",
        ),
        (
            rf"^where (?:can|could|might) (?:i|we|you|one) (?:go to )?(?:{use}){end}",
            f"where is a {category}",
        ),
    )


PAIRS: tuple[Idiom, ...] = tuple(pair for use, category in _USES.items() for pair in _pairs_of(use, category))
