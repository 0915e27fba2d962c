"""Words without a meaning for the question."""

from __future__ import annotations

from memory.questions.reading.idioms.parts import Idiom

PAIRS: tuple[Idiom, ...] = (
    (r"^as far as (?:you|we|i) (?:know|remember|can tell),? ", ""),
    (r",? while you (?:were )?(?:watched|watching|looking)(?: (?:at )?(?:it|them))?$", ""),
    (r" when you (?:last )?(?:looked|checked|passed)(?: by| there)?$", ""),
    (r",? according to (?:what you (?:saw|know|remember)|(?:your|the) (?:memory|map|store))$", ""),
    (r",? as far as (?:you|i|we) (?:know|remember|can tell|are aware)$", ""),
    (
        r",? \b(?:on earth|the (?:bloody )?(?:hell|heck|devil)|in the world|for (?:god|goodness|heaven"
        r"|pete)'?s"
        r" sake|lol|haha|btw|by the way|asap|tho|this time(?= |$)(?! of)|for the record|if at all)\b",
        "",
    ),
    (r"^(?:for the record|by the way|just curious|quickly|honestly|guess what),? (?=\w)", ""),
    (r"\b(?P<word>what|where|who|how|when|which)'?s\b(?!')(?= )", r"\g<word> is"),
    (
        r"\b(?P<what>(?:the|my|our|his|her|their) (?:\w+ )?\w+)'s (?=(?:gone|still|missing|been|moved|not"
        r"|there|here|in|on|at)\b)",
        r"\g<what> is ",
    ),
    (r"(?<=\b(?:is|me) )(?:over|down|up|out|back|outside) (?=(?:in|on|at|by) )", ""),
    (r"(?<=have )(?:over|down|up|out|back) (?=(?:in|on|at|by) )", ""),
    (
        r",? (?:and|with|including) (?:their|its|the) (?:locations?|positions?|places?|coordinates"
        r"|whereabouts)$",
        "",
    ),
    (r"^(?P<have>(?:do|have) (?:we|you|i) .+) available$", r"\g<have>"),
    (r" (?:on|across|over) (?:all|both) (?:the )?(?:levels|floors|storeys|maps)\b", ""),
    (
        r"^how far (?:would|do|does|must|should|will) (?:i|we|you|one|she|he|they) (?:have to |need to )?"
        r"(?:walk|go|drive|travel|move)? ?(?=from|to)",
        "how far is it ",
    ),
    (
        r"^when did (?:we|i|you|they) (?:get|receive|acquire) (?P<what>(?:the|my|our|that|this) .+)$",
        r"when did \g<what> appear",
    ),
    (r",? (?:or (?:nah|no|not|what)|like everything|i mean everything|you know|innit)$", ""),
    (r"^(?:roughly|approximately|about|around) (?=how )", ""),
    (r"^(?:please )?(?:tell|show) me[,:] (?=\w)", ""),
    (r"(?:, |^)[^,]*,? i mean,? (?=(?:is|are|was|were|where|when|has|have|did|what|how) )", ", "),
    (r":(?= |$)", ","),
)
