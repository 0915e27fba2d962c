"""Objects that are there, came, moved or left, in other words."""

from __future__ import annotations

import re

from memory.questions.reading.idioms.parts import OBJECT, THING, WHOLE_PLACE, Idiom


def _absent(found: re.Match[str]) -> str:
    return f"{found['be'] or ''} no longer there".strip()


PAIRS: tuple[Idiom, ...] = (
    (
        rf"^(?:has|have) (?P<what>{OBJECT}) (?:left|gone out of|departed(?: from)?|driven (?:out of|off "
        rf"from)|moved out of) "
        rf"(?P<place>(?:the|our|my) [\w ]+)$",
        r"is \g<what> gone from \g<place>",
    ),
    (
        rf"^what (?:does|do) (?P<what>{OBJECT}) have (?P<by>on|in|under|next to|near|inside|on top of)(?: "
        rf"of)? "
        r"(?:it|them|itself|top)(?: now| right now| currently)?$",
        r"what is \g<by> \g<what>",
    ),
    (
        r"^(?:do you )?(?:still )?(?:remember|know|recall) (?P<what>(?:the|my|our) [\w ]+), "
        r"(?=(?:is|are|was|were|where|when|has|how|did)\b)",
        r"\g<what>, ",
    ),
    (
        r"^how many other (?P<what>\w+) (?P<rest>(?:are|is|were|stand|stood)\b.*?(?P<id>#\d+))$",
        r"how many \g<what> \g<rest> except \g<id>",
    ),
    (
        r"^(?P<which>which|what) (?P<what>\w+) did you see (?:walking|driving|moving|running|leaving)\b",
        r"\g<which> \g<what> are marked as moved",
    ),
    (
        r" before (?:it|they|he|she) (?:went missing|disappeared|vanished|left|was (?:moved|taken"
        r"|removed))$",
        "",
    ),
    (r"^do you know (?:of|about) (?=(?:a|an|any|some)\b)", "is there "),
    (
        r",? (?:also )?including (?:the |those |any )?(?:ones |those )?(?:that|which)? ?(?:are|is|were)? ?"
        r"(?:gone|no longer there|not there any ?more|that left|that moved|who left|(?:who )?(?:walked"
        r"|drove|went) (?:off|away))$",
        "",
    ),
    (r"\b(?:was|were) new (?=(?:on|in|at|yesterday|today|this)\b)", "appeared "),
    (
        rf"^how many (?P<what>\w+) (?:does|do) (?:{WHOLE_PLACE}|we|i) have(?: in total| altogether)?$",
        r"how many \g<what> are there",
    ),
    (rf"^what (?:does|do|did) (?P<what>{OBJECT}|#\d+) look like$", r"describe \g<what>"),
    (
        r"^is there another (?P<what>\w+) (?:like|besides|beside|apart from|other than|except) the "
        r"(?P<word>\w+) "
        r"(?:one|(?P=what))$",
        r"which \g<what>s are there except the \g<word> \g<what>",
    ),
    (
        r"(?:\b(?:no longer|not)|(?P<be>\bis|\bare)n't) in (?:its|their|his|her) places?(?: any "
        r"?more)?\b",
        _absent,
    ),
    (r"\bhow many parked (?P<what>\w+) (?:are|is)(?: there)?\b(?! within)", r"how many \g<what> are parked"),
    (r"\bhow many parked (?P<what>\w+) are within\b", r"how many \g<what> are within"),
    (r"\bused to be\b", "was"),
    (rf"^(?:what|which {THING}) (?:has |have )?left (?=(?:the|my|our|your) )", "what has gone from "),
    (
        rf"^(?:what|which {THING}) (?:was|were) (?:once |formerly |previously )?in "
        r"(?P<room>(?:the|my|our) [\w ]+?),? (?:and|but) (?:is|are)(?: no longer| not|n't)(?: there)?"
        r"(?: any ?more)?$",
        r"what has gone from \g<room>",
    ),
    (r"\b(?:gone|moved) missing or (?:been )?(?:taken|stolen|removed)(?: away)?\b", "gone"),
    (rf"^did (?P<what>{OBJECT}) (?:stay|remain) (?=in |on |at )", r"is \g<what> still "),
    (
        rf"^of the {THING}(?: (?:kept|stored|left|lying))? (?P<place>in [\w ]+?),? which (?:ones |of them )?"
        r"(?:are|is) still (?:there|around)$",
        r"what is still \g<place>",
    ),
    (r"^before (?:it|they|he|she) (?:went missing|disappeared|vanished|left|was moved),? (?=\w)", ""),
    (
        r"\b(?P<have>have|has) (?P<who>we|you|they|i|he|she)(?: actually| already| really)? got\b",
        r"\g<have> \g<who>",
    ),
    (r"^did (?:they|we|i|you|he|she) (?:get|receive) (?=(?:any|some|a) )", "was there "),
    (r"\b(?P<bell>doorbell|door bell|bell|alarm) (?:go|went)(?: off)?\b", r"\g<bell> ring"),
    (
        rf"^(?P<start>(?:is|are) {OBJECT}) from (?:yesterday|today|this morning|last \w+|\w+day) "
        r"(?=still\b)",
        r"\g<start> ",
    ),
    (r"^did you (?:register|notice|record|log) (?=any|a |some|the )", "did you see "),
    (r"\bobjects (?:with|of) (?:the )?label (?=\w)", ""),
    (r"^count (?:the |all )*(?=\w)", "how many "),
    (r"^how much (?P<what>\w+s) (?:there are|are there)\b", r"how many \g<what> are there"),
    (r"\bin all the (?P<whole>house|flat|home|building)\b", r"in the \g<whole>"),
    (
        rf"\b(?P<did>did {OBJECT}) (?:pull|drive|roll|get|come|turn) (?:in|up|here|there)\b",
        r"\g<did> arrive",
    ),
    (
        r"^some(?:one|body) (?:was |is )?(?:ringing|rang|rung)(?: at)?(?: the)? (?:door ?)?bell\b",
        "did the doorbell ring",
    ),
    (r"\bphysical (?=objects?\b)", ""),
    (r"\bonly (?=(?:arrived|appeared|came|turned up)\b)", ""),
    (r"^counting (?:both|all)(?: the| of the)? (?:buildings|floors|maps|places|rooms),? (?=\w)", ""),
    (
        r"^(?:please )?(?:give|show) me (?:a|an|the) (?:quick |short |brief )?"
        r"(?:run-?down|overview|inventory) of (?=the \w)(?!the (?:day|week|last|past|memory|store|changes))",
        "what is in ",
    ),
    (r",? where (?:(?:i|we|he|she|they) (?:like|want|need|keep)s? (?:it|them)|(?:it|they) belongs?)$", ""),
)
