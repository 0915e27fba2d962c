"""Searches, visits and routes: a visit is an observation of the place."""

from __future__ import annotations

from memory.questions.reading.idioms.parts import OBJECT, Idiom

PAIRS: tuple[Idiom, ...] = (
    (
        r"^(?:where|which (?:room|area|place)|in which (?:room|area|place)) (?:should|would|do|can|could"
        r"|must|might) "
        r"(?:i|we|you|one) (?:have to |need to |best |start to )*(?:look|search|check|go|start|begin)(?: "
        r"looking| searching)?"
        r"(?: in)?(?: first)? (?:for|to (?:find|get|see|look for|pick up|fetch|grab)) (?=(?:the|my|our|his"
        r"|her|their|a|an|some)\b)",
        "where is ",
    ),
    (r"\bwhen was the last time (?:that )?(?P<who>i|we|you|the robot) ", r"when did \g<who> last "),
    (
        r"\b(?P<who>you|we|the robot)(?P<when>(?: \w+)?) (?:go|went|gone|walked?|drove|driven|drive"
        r"|roll(?:ed)?|get|got"
        r"|come|came|step(?:ped)?|enter(?:ed)?) (?:in|into|inside|through) (?=(?:the|my|our)\b)",
        r"\g<who>\g<when> visited ",
    ),
    (
        rf"^(?:drive|go|move|navigate|take me|bring me|guide me|lead me|walk)(?: over)? to (?:the (?:thing"
        rf"|object|place|spot|one)|what|whatever)"
        rf" (?:that |which |where )?(?P<what>{OBJECT}) (?P<be>is|are) (?P<rest>[\w ]*\b(?:on|in|under))$",
        r"what \g<be> \g<what> \g<rest>",
    ),
    (
        r"^(?:i|we)(?:'m| am| are|'re) (?:now |currently |here |\w+ing )*(?:at|by|beside|next to|near|in "
        r"front of) "
        r"(?P<from>(?:the|my|our) [\w ]+?|\([^()]*\))(?: (?:and|now) [^.?!,]*)?[.,;!]+ "
        r"(?P<asks>(?:which|what|where)(?:(?! to )[^?])*\b(?:nearest|closest)\b(?:(?! to )[^?])*?)"
        r"(?: to (?:me|us|here))?$",
        r"\g<asks> to \g<from>",
    ),
    (
        r"^when (?:was|were) (?P<who>you|we|the robot) in (?P<room>(?:the|my|our) [\w ]+?) (?:the "
        r")?last(?: time)?$",
        r"when did \g<who> last visit \g<room>",
    ),
    (r"\b(?:drive|navigate|walk|move|send|direct|guide|bring|lead) (?:me|us) (?=(?:to|from)\b)", "take me "),
    (r"^how (?:do|can) (?:i|we) (?:get|go|drive) (?=from\b)", "take me "),
    (
        r"^take me from .+? to (?P<to>(?:the |my |our )(?!nearest|closest)[\w ]+|#\d+|\([^()]*\))$",
        r"take me to \g<to>",
    ),
    (
        r"^take me from (?P<from>\S.*?) to the (?P<near>nearest|closest) (?P<what>[\w ]+)$",
        r"take me to the \g<what> \g<near> to \g<from>",
    ),
    (
        r"^(?:have|did) you (?:ever )?(?:been|go|gone|entered?|visit(?:ed)?)(?: out| over| back)? "
        r"(?:in|to|into|inside|on) (?P<room>(?:the|my|our) [\w ]+?)(?: before| yet| already)?$",
        r"have you ever seen \g<room>",
    ),
    (
        r"^(?:have|did) you (?:ever |already )?(?:been|driven?|gone|go|pass(?:ed)?|walk(?:ed)?|come)(?: at"
        r"| near| around| to| "
        r"close to"
        r"| past| by| through)? (?P<point>\([^()]*\))(?: before| already| yet)?$",
        r"what did you see near \g<point>",
    ),
    (
        r"^if i (?:stand|am|was|were|stood) (?:at|near) (?P<point>\([^()]*\)), (?P<asks>.*\b(?:nearest"
        r"|closest)\b)"
        r"(?: to me)?$",
        r"\g<asks> to \g<point>",
    ),
    (
        r"^(?:find|show|give me|list) the (?P<what>\w+) (?P<near>nearest|closest) to ",
        r"which \g<what> is \g<near> to ",
    ),
)
