"""Objects that are still there or lie at a place, and visitors at the door."""

from __future__ import annotations

from memory.questions.reading.idioms.parts import PERSON, Idiom

_YES_NO = r"^(?P<asked>(?:is|are|was|were|has|have|do|does|did|isn't|aren't|can you see|are you sure)\b.+?)"
#: Verbs of an alternative to a place, as in *or did somebody move it*.
_GONE = (
    r"(?:mov|tak|took|nick|stol|steal|gone|go\b|going|left|leav|driv|drov|borrow|remov|away|lost|lose"
    r"|disappear"
    r"|vanish|pinch|swip|grab|put|missing|misplac|imagin|wander|walk|elsewhere|somewhere else)"
)
PAIRS: tuple[Idiom, ...] = (
    (r"\b(?P<have>has|have) since (?=been\b|gone\b|moved\b|disappeared\b|vanished\b|left\b)", r"\g<have> "),
    # A second possibility after a question for yes or no: the answer tells it anyway.
    (
        rf"{_YES_NO},? or (?:else )?(?:did|has|have|had|was|is|were|are|am) "
        rf"(?=(?:\w+ )*?{_GONE}\w*)[^?,]*$",
        r"\g<asked>",
    ),
    (
        rf"{_YES_NO},? or (?:is it |has it |was it )?(?:(?:been )?(?:moved|taken|stolen|removed|nicked"
        rf"|borrowed)|gone"
        r"|missing|not|elsewhere|somewhere else|away|lost)(?: away| off)?$",
        r"\g<asked>",
    ),
    (rf"{_YES_NO},? and,? if (?:so|yes|it is|there is|there are),? [^?]*$", r"\g<asked>"),
    # The place of the last observation is "there".
    (
        r"\bstill (?:exactly |right )?(?:(?:at|in|on) (?:the (?:same |very )?)?(?:place|position|spot"
        r"|location) )?"
        r"(?:where|in which|that) (?:it|they|he|she|i|we|you|some(?:one|body)|the \w+|my \w+) "
        r"(?:\w+ )?(?:was|were|had|has|have|left|put|saw|is|are|used|parked|dropped|placed|stood"
        r"|did)\b[^?!,;]*",
        "still there",
    ),
    (
        r"\bstill (?:at|in|on) (?:(?:its|the|their|his|her) )?(?:same|usual|old|original|normal) "
        r"(?:place|position|spot|location)(?: as (?:before|yesterday|last time))?$",
        "still there",
    ),
    (r"\bwhat(?:ever)? (?:has |have )?(?:become|became) of\b", "what happened to"),
    (r"\bwhatever happened (?:to|with)\b", "what happened to"),
    # Objects at a place, by the person who left them or takes them away.
    (
        rf"^what(?: all| else)? (?:do|should|must|would|will) {PERSON} (?:have to |need to |want to )?"
        r"(?:take|clear|move|get|lift|remove|tidy)(?: away)? (?:off of|off|from) (?=\w)",
        "what is on ",
    ),
    (
        rf"^what (?:have|has|had|did) {PERSON} (?:all )?(?:left|leave|put|placed|place|got|set|dumped)"
        r"(?: lying| standing| mounted| hanging| down| out| behind)? "
        r"(?=(?:on|in|inside|under|next to|near|by|beside|at)\b)",
        "what is ",
    ),
    (
        rf"^(?:on |in )?(?P<what>what|which) (?P<thing>[\w ]+?) (?:did|have|has) {PERSON} (?:put|place"
        rf"|placed|leave|left"
        rf"|set|lay|laid) (?P<object>(?:my|the|our|his|her|their) [\w ]+?)(?: down)?(?: on| in)?$",
        r"\g<what> \g<thing> is \g<object> on",
    ),
    (
        r"^on (?P<what>what|which) (?P<rest>[\w ]+? (?:is|are) (?:the|my|our) [\w ]+)$",
        r"\g<what> \g<rest> on",
    ),
    (
        rf"^(?:did|has|have) (?:some(?:one|body)|any(?:one|body)|{PERSON}) (?:leave|left|forget"
        rf"|forgotten|put|placed?) "
        r"(?:some|any)thing (?=(?:on|in|inside|under|next to|near|by|beside|at)\b)",
        "is there anything ",
    ),
    (
        r"^which (?P<what>[\w ]+?) (?P<verb>has|have)(?: got)? (?P<no>no |not (?:a|an|any) "
        r")(?P<object>[\w ]+?) on "
        r"(?:it|them|top)(?: any ?more| any longer)?$",
        r"which \g<what> is not carrying a \g<object>",
    ),
    (
        r"^which (?P<what>[\w ]+?) (?P<verb>has|have)(?: got)? (?:a|an|some) (?P<object>[\w ]+?) on (?:it"
        r"|them|top)$",
        r"which \g<what> is carrying a \g<object>",
    ),
    (
        r"\b(?P<gone>moved|gone|taken|missing|disappeared|vanished|removed)(?: away)? (?:from|off) (?:its"
        r"|their|his|her) (?:usual |old "
        r"|original |normal )?"
        r"(?:place|position|spot|location)s?\b",
        r"\g<gone>",
    ),
    (
        r",? (?:on|during|in) (?:your|the) (?:last |latest "
        r")?(?:rounds?|tours?|patrols?|trips?|walks?|runs?)\b(?= |$)",
        "",
    ),
    (
        r"^(?P<list>(?:all|every|each) (?:the |of the )?[\w ]+? (?:except|but|besides|apart from|without)\b)",
        r"show \g<list>",
    ),
    (
        r"^(?:has|have|did) (?P<what>(?:the|my|our|his|her|their|your) .+?) (?:turned up|turn up|come "
        r"back|reappeared|reappear"
        r"|returned|been found|been returned|been brought back)(?: again| yet| now)*$",
        r"is \g<what> still there",
    ),
    (
        r"^(?P<which>which|what) (?P<thing>(?:(?!(?:is|are|was|were|did|does|do|has|have|can|on|in)\b)\w+ )+)"
        r"(?P<object>(?:the|my|our|his|her|their) [\w ]+?) (?:is |are )?(?:sits?|stands?|lies|lie"
        r"|rests?|hangs?|is|are"
        r"|sitting|standing|lying|placed) (?P<by>on|in|under|next to)$",
        r"\g<which> \g<thing>is \g<object> \g<by>",
    ),
    (
        r"^(?P<what>(?:what|which|who) .+?),? and (?:when|where|at what time)(?: was (?:it|that))?$",
        r"\g<what>",
    ),
    # Somebody at the door.
    (r"\bwho (?P<be>was|is) (?:that|it) (?=(?:at|by|in|on|near|outside) )", r"who \g<be> "),
    (
        r"\b(?:did|has|have) (?P<who>some(?:one|body)|any(?:one|body)) (?:come|been|called?|turned up"
        r"|turn up|stopped"
        r"|stop|knocked|knock)(?: round| over)? (?:to|at|by|on) (?:the|my|our) (?:front )?door",
        r"was \g<who> at the door",
    ),
    (
        r"\b(?:did|has|have) (?:some(?:one|body)|any(?:one|body)) (?:ring|rung|rang)(?: (?:at )?(?:the "
        r"|my |our )?"
        r"(?:door|bell|door bell))?(?= |$)(?! the)",
        "did the doorbell ring",
    ),
    (
        rf"\bdid (?:you|anyone) hear (?:me|us|him|her|them|{PERSON}|the bell|the doorbell) ring\b",
        "did the doorbell ring",
    ),
)
