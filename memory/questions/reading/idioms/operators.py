"""Words of operators of robots, and coordinates."""

from __future__ import annotations

from memory.questions.reading.idioms.parts import THING, Idiom

PAIRS: tuple[Idiom, ...] = (
    (r"\s*(?:->|-->|=>|→)\s*", " to "),
    (r" [-–—] ", ", "),
    (r"^(?:\w+ ){1,3}query[,:] (?=\w)", ""),
    (r"^(?:enumerate|itemi[sz]e) ", "list "),
    (r"\b(?P<what>\w+[a-rt-z]) instances\b", r"\g<what>s"),
    (r"\b(?:marked|flagged|recorded|listed) as (?=(?:gone|moved|present|missing)\b)", ""),
    (r"\bsupported by (?=\w)", "on "),
    (rf"\b(?P<thing>{THING}) (?:mapped|recorded|stored|remembered) (?=(?:in|on|at) )", r"\g<thing> "),
    (r"\bhas the (?:unit|system|device) (?=(?:observed|seen|detected|recorded)\b)", "have you "),
    (r"\b(?:picked up|detected|captured|seen) by your (?:sensors?|cameras?|lidar)\b", "seen"),
    (
        r"\b(?P<what>which|what) (?P<things>\w+) (?:have|did) you (?:mark|flag|record|list)(?:e?d)? as "
        r"(?=(?:gone|moved|present|missing)\b)",
        r"\g<what> \g<things> are ",
    ),
    (
        r"\b(?:(?:last|latest|most recent|current|exact|precise|final)(?: known| seen| recorded)? )?"
        r"(?:pose|x ?/ ?y(?: ?/ ?z)?|xyz?)(?: position| coordinates| location)?s? (?:of|for) ",
        "position of ",
    ),
    (
        r"(?P<start>\b(?:where|position|coordinates|location)\b.*) in (?:the )?map (?:frame|coordinates)$",
        r"\g<start>",
    ),
    (
        r",? (?:so|such)(?: that)? (?:i|we) can (?:use|send|pass|set) (?:it|them|that) (?:as|to|for) [\w "
        r"\d]+$",
        "",
    ),
    (r"^distance (?!between|from|of|to|in)(?P<ends>.+? (?:to|and) )", r"distance from \g<ends>"),
    (r"^name (?=every|all |each |the )", "list "),
    (
        r"\b(?P<all>everything|anything|all (?:the )?\w+|every \w+) (?:that )?(?:you|the robot) (?:know"
        r"|knows)"
        r"(?: about| of)?(?= (?:in|on|at|near)\b|$)",
        r"\g<all>",
    ),
    (
        r"\b(?:number|count|total) of (?:observations|sightings|detections) (?:of|on|for|about) (?=\w)",
        "how often did you see ",
    ),
    (
        r"^how many (?:observations|sightings|detections|times) (?:do|did|have) you (?:have|made?|got"
        r"|record(?:ed)?)"
        r" (?:of|on|for|about) ",
        "how often did you see ",
    ),
    (
        r"^(?P<what>(?!the\b)[a-z]+) count(?: for| of)?(?: the)?(?: (?:whole|entire))?(?: (?:flat|house"
        r"|home|building))?$",
        r"how many \g<what>",
    ),
    (r"\bthe origin\b", "(0, 0)"),
    (r"\bthe (?:point|position|coordinates?|location|spot) (?=\()", ""),
)
