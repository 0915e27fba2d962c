"""Words of operators, comparisons in other orders, and words without a meaning."""

from __future__ import annotations

import re

from memory.questions.reading.idioms.parts import COMPARATIVE, OBJECT, SUPERLATIVES, THING, WHOLE_PLACE, Idiom

#: What happened to an object: *the parcel turning up*.
_HAPPENED = r"(?: \w+ing(?: up| in)?)?"
_ORDERS = {"more": "most", "most": "most", "less": "least", "least": "least"}
_DISTANT = "closer|nearer|farther|further"
_SPACE = {
    "more": "is bigger",
    "less": "is smaller",
    "the most": "is the biggest",
    "the least": "is the smallest",
}


def _absent(found: re.Match[str]) -> str:
    return f"{found['be'] or ''} no longer there".strip()


PAIRS: tuple[Idiom, ...] = (
    # Words of operators of robots.
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
    # Verbs of looking and going: a search for an object asks where it is, a visit is an observation.
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
    (
        r"^(?:do you )?(?:still )?(?:remember|know|recall) (?P<what>(?:the|my|our) [\w ]+), "
        r"(?=(?:is|are|was|were|where|when|has|how|did)\b)",
        r"\g<what>, ",
    ),
    (r"\bthe origin\b", "(0, 0)"),
    (
        r"^how many other (?P<what>\w+) (?P<rest>(?:are|is|were|stand|stood)\b.*?(?P<id>#\d+))$",
        r"how many \g<what> \g<rest> except \g<id>",
    ),
    (
        r"^(?:(?:guide|take|bring|lead|drive|navigate) me|how (?:do|can) (?:i|we) (?:get|go|drive)) from "
        r".+? to "
        r"(?P<to>(?:the |my |our )(?!nearest|closest)[\w ]+|#\d+|\([^()]*\))$",
        r"take me to \g<to>",
    ),
    (
        r"^(?P<which>which|what) (?P<what>\w+) did you see (?:walking|driving|moving|running|leaving)\b",
        r"\g<which> \g<what> are marked as moved",
    ),
    (r"^as far as (?:you|we|i) (?:know|remember|can tell),? ", ""),
    (
        r" before (?:it|they|he|she) (?:went missing|disappeared|vanished|left|was (?:moved|taken"
        r"|removed))$",
        "",
    ),
    (r"^do you know (?:of|about) (?=(?:a|an|any|some)\b)", "is there "),
    (r",? while you (?:were )?(?:watched|watching|looking)(?: (?:at )?(?:it|them))?$", ""),
    (r" when you (?:last )?(?:looked|checked|passed)(?: by| there)?$", ""),
    (r",? according to (?:what you (?:saw|know|remember)|(?:your|the) (?:memory|map|store))$", ""),
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
        r"^(?:guide|take|bring|lead|drive|navigate) me from (?P<from>\S.*?) to the (?P<near>nearest|closest) "
        r"(?P<what>[\w ]+)$",
        r"take me to the \g<what> \g<near> to \g<from>",
    ),
    (
        r"^which (?:one )?of the (?:two|three|four|\d) (?P<what>\w+?)s? (?:did|have) you (?:see|seen|watch"
        r"|watched"
        r"|observed?|noticed?) (?P<order>more|most|less|least) often$",
        lambda found: f"which {found['what']} did you see {_ORDERS[found['order'].lower()]} often",
    ),
    (
        r"^(?:have|did) you (?:ever )?(?:been|go|gone|entered?|visit(?:ed)?)(?: out| over| back)? "
        r"(?:in|to|into|inside|on) (?P<room>(?:the|my|our) [\w ]+?)(?: before| yet| already)?$",
        r"have you ever seen \g<room>",
    ),
    (
        r"(?:\b(?:no longer|not)|(?P<be>\bis|\bare)n't) in (?:its|their|his|her) places?(?: any "
        r"?more)?\b",
        _absent,
    ),
    (r",? as far as (?:you|i|we) (?:know|remember|can tell|are aware)$", ""),
    (r"\bhow many parked (?P<what>\w+) (?:are|is)(?: there)?\b(?! within)", r"how many \g<what> are parked"),
    (r"\bhow many parked (?P<what>\w+) are within\b", r"how many \g<what> are within"),
    (r"\bthe (?:point|position|coordinates?|location|spot) (?=\()", ""),
    (r"\b(?:drive|navigate|walk|move|send|direct) (?:me|us) to\b", "take me to"),
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
        r"^(?:find|show|give me|list) (?P<what>the (?:object|thing|item|\w+)) (?P<near>nearest|closest) to ",
        r"what is \g<near> to ",
    ),
    (r"^how far apart are (?P<first>\S.*?) and (?P<second>.+)$", r"how far is \g<first> from \g<second>"),
    (
        r"^of the (?:two|three|four|\d) (?P<what>\w+?)s?,? (?:which|what)(?: one)? (?P<did>did|have) you "
        r"(?:see|seen|watch|watched|observe|observed|noticed?) (?P<order>most recently|last|first)$",
        r"which \g<what> did you see \g<order>",
    ),
    (
        r"^of the (?:two|three|four|\d) (?P<what>\w+?)s?,? (?:which|what)(?: one)? (?P<did>did|have) you "
        r"(?P<see>see|seen|watch|watched|observe|observed|noticed?) (?P<order>more|most|less|least) often$",
        lambda found: f"which {found['what']} did you see {_ORDERS[found['order'].lower()]} often",
    ),
    # Comparisons of two objects in other orders of words.
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
    (r",? (?:yes or no|true or false)$", ""),
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
    # What was there and is not any more.
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
    # Other words for having, seeing, counting, coming and ringing.
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
    # Words without a meaning for the question.
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
    (r"\b(?:something|anything|somewhere|anywhere|a place) (?:\w+ )?to sit(?: on| down)?\b", "a seat"),
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
