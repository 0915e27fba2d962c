"""Comparisons of two objects in other orders of words."""

from __future__ import annotations

import re

from memory.questions.reading.idioms.parts import COMPARATIVE, OBJECT, SUPERLATIVES, Idiom

#: An event of an object: *the parcel turning up*.
_HAPPENED = r"(?: \w+ing(?: up| in)?)?"
_ORDERS = {"more often": "most often", "less often": "least often"}
_DISTANT = "closer|nearer|farther|further"
_SPACE = {
    "more": "is bigger",
    "less": "is smaller",
    "the most": "is the biggest",
    "the least": "is the smallest",
}


def _in_order(found: re.Match[str]) -> str:
    order = found["order"].lower()
    return f"which {found['what']} did you see {_ORDERS.get(order, order)}"


PAIRS: tuple[Idiom, ...] = (
    (r",? (?:yes or no|true or false)$", ""),
    (
        r"^of the (?P<number>two|three|four|\d) (?P<what>\w+),? (?:which|what)(?: one)? (?=did |have )",
        r"which of the \g<number> \g<what> ",
    ),
    (
        r"^which (?:one )?of the (?:two|three|four|\d) (?P<what>\w+?)s? (?:did|have) you (?:see|seen|watch"
        r"|watched"
        r"|observed?|noticed?) (?P<order>(?:more|most|less|least) often|most recently|last|first)$",
        _in_order,
    ),
    (r"^how far apart are (?P<first>\S.*?) and (?P<second>.+)$", r"how far is \g<first> from \g<second>"),
    (
        r"^which (?P<what>(?:(?!one\b|of\b)\w+ ){1,2})is (?P<word>closer|nearer|farther|further)(?: "
        r"away)? "
        r"(?P<by>to|from) (?P<place>(?:the |my |our |#)?[\w ]+|\([^()]*\))$",
        lambda found: (
            f"which {found['what']}is {SUPERLATIVES[found['word'].lower()]} {found['by']} {found['place']}"
        ),
    ),
    (
        r"\btake(?:s)? up (?P<more>more|less|the most|the least) (?:space|room|floor space|floor)\b",
        lambda found: _SPACE[found["more"].lower()],
    ),
    (
        rf"^which (?:of the )?(?P<what>\w+?)s? (?P<be>is|are|was) (?P<rest>(?:{COMPARATIVE}"
        rf"|{_DISTANT})\b[^,]*?),? "
        rf"(?P<first>(?:the|my|our) \w+) (?:one )?or (?P<second>(?:the|my|our) \w+) one$",
        r"which \g<be> \g<rest>, \g<first> \g<what> or \g<second> \g<what>",
    ),
    (
        r"^(?:what|which|who)(?: one| of them)? (?:turned up|showed up|was seen|did you see) "
        r"(?P<order>first|last)(?P<when>(?: (?:this|yesterday|today|on|last)\b[\w ]*)?),? "
        r"(?P<rest>(?:the|my|our) [\w ]+? or (?:the|my|our) [\w ]+)$",
        r"which was seen \g<order>\g<when>, \g<rest>",
    ),
    (r"\bmore (?P<word>tall|long|high|old)\b(?= than\b)", r"\g<word>er"),
    (r"\bmore (?P<word>wide|large)\b(?= than\b)", r"\g<word>r"),
    (r"\bmore big\b(?= than\b)", "bigger"),
    (
        rf"^(?P<first>{OBJECT}) (?P<be>is|are) (?:a bit |much |even )?(?P<word>{COMPARATIVE}) than "
        rf"(?P<second>{OBJECT})$",
        r"\g<be> \g<first> \g<word> than \g<second>",
    ),
    (
        rf"^(?:does|do|did|can) (?P<first>{OBJECT}) (?:hang|stand|sit|lie|reach|measure|go|come|look) "
        rf"(?P<word>{COMPARATIVE}) than (?P<second>{OBJECT})$",
        r"is \g<first> \g<word> than \g<second>",
    ),
    (
        rf"^which one(?:'s| is| was) (?:the )?(?P<word>{COMPARATIVE}),? (?P<rest>{OBJECT} or {OBJECT})$",
        r"which is \g<word>, \g<rest>",
    ),
    (
        rf"^which (?:one )?(?:did|have) you (?:see|seen) (?P<when>more recently|last|first),? "
        rf"(?P<rest>{OBJECT} or {OBJECT})$",
        r"which was seen \g<when>, \g<rest>",
    ),
    (
        rf"^what (?:happened|came|was) (?P<when>first|last)[,:]? (?P<first>the \w+){_HAPPENED} "
        rf"or (?P<second>the \w+){_HAPPENED}$",
        r"which was seen \g<when>, \g<first> or \g<second>",
    ),
    (r"\b(?P<far>farther|further) away (?=from\b)", r"\g<far> "),
    (r"\b(?P<all>(?:farther|further|closer|nearer) (?:from|to) .+ than .+?) (?:is|are|does)$", r"\g<all>"),
)
