"""Fixed expressions and the plainer words that mean the same, as pairs of patterns and replacements.

*What do I have to take off the sofa* is *what is on the sofa*, and *whatever became of my umbrella* is *what
happened to my umbrella*. An expression is here only if the replacement means the same for every object.
"""

from __future__ import annotations

import re

from memory.questions.reading.arguments import LENGTH_UNIT, pattern
from memory.questions.reading.comparing import COMPARED_MEASURES
from memory.questions.reading.lexicon import PERSONS, WHOLE_PLACES

_RELATIVE = rf"(?:(?:the|my|our|his|her|their|your) )?(?:\w+ )?(?:{'|'.join(sorted(PERSONS))})"
_PERSON = rf"(?:(?:i|we|you|he|she|they)|{_RELATIVE})"
_YES_NO = r"^(?P<asked>(?:is|are|was|were|has|have|do|does|did|isn't|aren't|can you see|are you sure)\b.+?)"
#: Verbs of an alternative to a place, as in *or did somebody move it*.
_GONE = (
    r"(?:mov|tak|took|nick|stol|steal|gone|go\b|going|left|leav|driv|drov|borrow|remov|away|lost|lose|disappear"
    r"|vanish|pinch|swip|grab|put|missing|misplac|imagin|wander|walk|elsewhere|somewhere else)"
)
_THING = r"(?:objects?|things?|items?|entries|entry|memories|memory|entity|entities|one|ones)"
_WHOLE_PLACE = r"(?:(?:the|your) )?(?:memory|store|database|map|flat|house|home|office|building)"
#: Medicine that people swallow, which the store does not know.
_DOSE = (
    r"(?:(?:my|the|his|her|their|any|all|some|enough) )*(?:\w+ "
    r")?(?:pills?|tablets?|medicines?|medications?|meds"
    r"|vitamins?|drops|insulin|antibiotics|painkillers?|dose|dosage)"
)
_WHOLE = rf"(?:the|this|our|my) (?:whole |entire )?(?:{'|'.join(WHOLE_PLACES)})\b(?! where)"
#: Comparatives after *which of the two*, and the superlatives that they mean.
_SUPERLATIVES = {
    "closer": "nearest", "nearer": "nearest", "farther": "farthest", "further": "farthest",
    "bigger": "biggest",
    "larger": "biggest", "smaller": "smallest", "taller": "tallest", "longer": "longest", "wider": "widest",
    "narrower": "narrowest", "higher": "highest", "lower": "lowest", "older": "oldest", "newer": "newest",
}  # fmt: skip
_MEASURES = {"height": "tall", "width": "wide", "breadth": "wide", "length": "long", "size": "big"}
_HALVES = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10,
}  # fmt: skip
_HALF = pattern(
    rf"\b(?P<number>\d+|{'|'.join(_HALVES)}) (?:and a half (?P<unit>{LENGTH_UNIT}|hours?|days?|weeks?)"
    rf"|(?P<unit2>met(?:re|er)|hour|day|week|foot|kilomet(?:re|er)) and a half)\b"
)
_WHICH_OF = pattern(
    rf"\bwhich (?:one )?of (?:the|my|our|these|those) (?:two|2|three|3|four|4) (?P<what>[\w ]+?) "
    rf"(?P<verb>is|are|was|were|stands|lies|sits) (?:the )?(?P<word>{'|'.join(_SUPERLATIVES)})\b"
)
_OF_SO_MANY = pattern(r"\bwhich (?:one )?of the (?:two|three|four|five|six|\d+) (?=\w)")
_SIZE_OF = pattern(
    rf"^(?:(?:what|whats|what's) ?(?:is |was )?|(?:state|give|report|tell|list|specify)(?: me)? )"
    rf"(?:the |its )?(?:exact |overall |total |approximate |maximum )?(?P<side>{'|'.join(_MEASURES)}) of "
    rf"(?=\w)"
)
#: An object with its article.
_OBJECT = r"(?:the|my|our|your|his|her|their|a|an) [\w' ]+?"
_COMPARATIVE = rf"(?:{'|'.join(word for word in COMPARED_MEASURES if word not in ('more', 'less'))})"
#: What happened to an object: *the parcel turning up*.
_HAPPENED = r"(?: \w+ing(?: up| in)?)?"
_PAIRS: tuple[tuple[str, str], ...] = (
    # Words of operators of robots.
    (r"^(?:\w+ ){1,3}query[,:] (?=\w)", ""),
    (r"^(?:enumerate|itemi[sz]e) ", "list "),
    (r"\b(?P<what>\w+[a-rt-z]) instances\b", r"\g<what>s"),
    (r"\b(?:marked|flagged|recorded|listed) as (?=(?:gone|moved|present|missing)\b)", ""),
    (r"\bsupported by (?=\w)", "on "),
    (rf"\b(?P<thing>{_THING}) (?:mapped|recorded|stored|remembered) (?=(?:in|on|at) )", r"\g<thing> "),
    (r"\bhas the (?:unit|system|device) (?=(?:observed|seen|detected|recorded)\b)", "have you "),
    (r"\b(?:picked up|detected|captured|seen) by your (?:sensors?|cameras?|lidar)\b", "seen"),
    # Comparisons of two objects in other orders of words.
    (r",? (?:yes or no|true or false)$", ""),
    (r"\bmore (?P<word>tall|long|high|old)\b(?= than\b)", r"\g<word>er"),
    (r"\bmore (?P<word>wide|large)\b(?= than\b)", r"\g<word>r"),
    (r"\bmore big\b(?= than\b)", "bigger"),
    (
        rf"^(?P<first>{_OBJECT}) (?P<be>is|are) (?:a bit |much |even )?(?P<word>{_COMPARATIVE}) than "
        rf"(?P<second>{_OBJECT})$",
        r"\g<be> \g<first> \g<word> than \g<second>",
    ),
    (
        rf"^(?:does|do|did|can) (?P<first>{_OBJECT}) (?:hang|stand|sit|lie|reach|measure|go|come|look) "
        rf"(?P<word>{_COMPARATIVE}) than (?P<second>{_OBJECT})$",
        r"is \g<first> \g<word> than \g<second>",
    ),
    (
        rf"^which one(?:'s| is| was) (?:the )?(?P<word>{_COMPARATIVE}),? (?P<rest>{_OBJECT} or {_OBJECT})$",
        r"which is \g<word>, \g<rest>",
    ),
    (
        rf"^which (?:one )?(?:did|have) you (?:see|seen) (?P<when>more recently|last|first),? "
        rf"(?P<rest>{_OBJECT} or {_OBJECT})$",
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
    (rf"^(?:what|which {_THING}) (?:has |have )?left (?=(?:the|my|our|your) )", "what has gone from "),
    (
        rf"^(?:what|which {_THING}) (?:was|were) (?:once |formerly |previously )?in "
        r"(?P<room>(?:the|my|our) [\w ]+?),? (?:and|but) (?:is|are) (?:no longer|not)(?: there)?"
        r"(?: any ?more)?$",
        r"what has gone from \g<room>",
    ),
    (r"\b(?:gone|moved) missing or (?:been )?(?:taken|stolen|removed)(?: away)?\b", "gone"),
    (rf"^did (?P<what>{_OBJECT}) (?:stay|remain) (?=in |on |at )", r"is \g<what> still "),
    (
        rf"^of the {_THING}(?: (?:kept|stored|left|lying))? (?P<place>in [\w ]+?),? which (?:ones |of them )?"
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
        rf"^(?P<start>(?:is|are) {_OBJECT}) from (?:yesterday|today|this morning|last \w+|\w+day) "
        r"(?=still\b)",
        r"\g<start> ",
    ),
    (r"^did you (?:register|notice|record|log) (?=any|a |some|the )", "did you see "),
    (r"\bobjects (?:with|of) (?:the )?label (?=\w)", ""),
    (r"^count (?:the |all )*(?=\w)", "how many "),
    (r"^how much (?P<what>\w+s) (?:there are|are there)\b", r"how many \g<what> are there"),
    (r"\bin all the (?P<whole>house|flat|home|building)\b", r"in the \g<whole>"),
    (
        rf"\b(?P<did>did {_OBJECT}) (?:pull|drive|roll|get|come|turn) (?:in|up|here|there)\b",
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
        rf"^what(?: all| else)? (?:do|should|must|would|will) {_PERSON} (?:have to |need to |want to )?"
        r"(?:take|clear|move|get|lift|remove|tidy)(?: away)? (?:off of|off|from) (?=\w)",
        "what is on ",
    ),
    (
        rf"^what (?:have|has|had|did) {_PERSON} (?:all )?(?:left|leave|put|placed|place|got|set|dumped)"
        r"(?: lying| standing| mounted| hanging| down| out| behind)? "
        r"(?=(?:on|in|inside|under|next to|near|by|beside|at)\b)",
        "what is ",
    ),
    (
        rf"^(?:on |in )?(?P<what>what|which) (?P<thing>[\w ]+?) (?:did|have|has) {_PERSON} (?:put|place"
        rf"|placed|leave|left"
        rf"|set|lay|laid) (?P<object>(?:my|the|our|his|her|their) [\w ]+?)(?: down)?(?: on| in)?$",
        r"\g<what> \g<thing> is \g<object> on",
    ),
    (
        r"^on (?P<what>what|which) (?P<rest>[\w ]+? (?:is|are) (?:the|my|our) [\w ]+)$",
        r"\g<what> \g<rest> on",
    ),
    (
        rf"^(?:did|has|have) (?:some(?:one|body)|any(?:one|body)|{_PERSON}) (?:leave|left|forget"
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
        r"\b(?P<gone>moved|gone|taken|missing)(?: away)? (?:from|off) (?:its|their|his|her) (?:usual |old "
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
        rf"\bdid (?:you|anyone) hear (?:me|us|him|her|them|{_PERSON}|the bell|the doorbell) ring\b",
        "did the doorbell ring",
    ),
    # One of several objects.
    (
        rf"^(?:of|among|amongst|out of|from) (?:all )?(?:the |your |known )*{_THING}(?: (?:in|of) "
        rf"{_WHOLE_PLACE}| you know"
        r"| known)?,? (?P<which>which|what)(?: one)?\b",
        r"\g<which> object",
    ),
    (
        r"(?:(?:was|were) )?(?:first (?:detected|seen|observed|noticed|recorded|spotted)"
        rf"|entered {_WHOLE_PLACE}|(?:was |were )?added(?: to {_WHOLE_PLACE})?) (?:the )?most recently",
        "is the newest",
    ),
    # Exceptions.
    (
        r"^(?:leaving out|apart from|except(?: for)?|besides|not counting) (?:the )?(?:rooms|places"
        r"|areas),? ",
        "",
    ),
    (
        r",? (?:not counting|leaving out|without counting|disregarding|ignoring|leaving aside|not "
        r"including|minus)"
        r" (?=\w)",
        " except ",
    ),
    (r",? (?:the |my )?(?P<what>[\w ]+?) (?:excluded|not included)$", r" except the \g<what>"),
    # Distances.
    (
        r"\b(?:planar|euclidean|horizontal|2d|ground|exact|approximate|rough|direct|straight[- ]line|linear) "
        r"(?=distance)",
        "",
    ),
    (
        r"(?<=distance )(?P<by>between|from) (?:the )?(?:centroids?|cent(?:re"
        r"|er)s?|midpoints?|middles?)(?: points?)?"
        r" of ",
        r"\g<by> ",
    ),
    (r"(?P<start>\bdistance .*) (?:centroids?|cent(?:re|er)s?|midpoints?)$", r"\g<start>"),
    (
        r"\bhow (?:many|much) (?P<unit>met(?:re|er)s|feet|cm|m) (?:is it|are there|is there|lie|lies"
        r"|separate) "
        r"(?=from|between)",
        r"how far is it in \g<unit> ",
    ),
    (r"\b(?:was |were )?last seen (?:the )?longest ago\b", "was seen least recently"),
    (
        r"^(?:is|are) (?P<what>(?:the|my|our|his|her|their) [\w ]+?) back(?: yet| again| now)?$",
        r"is \g<what> still there",
    ),
    (
        r"^(?:(?:is|was) there )?(?:any|some|a) (?:sign|trace)s? of (?P<what>(?:the|my|our|his|her|their) "
        r".+)$",
        r"is \g<what> still there",
    ),
    # Numbers.
    (
        r"^(?P<start>(?:is|are) there|do (?:we|you|i) have) (?:only|just) (?=one|two|three|four|five|six|\d)",
        r"\g<start> exactly ",
    ),
    (r"(?<!at )\b(?:only |just )?(?:a single time|one single time|the once|one time)\b", "only once"),
    (r"\bhalf (?:a|an) (?P<unit>met(?:re|er)|foot|yard|kilomet(?:re|er))\b", r"0.5 \g<unit>s"),
    (
        r"\b(?:(?:has|have|had) )?(?:accumulated|collected|racked up|got) the (?P<most>highest|largest"
        r"|biggest|greatest|most|lowest"
        r"|smallest|fewest)\b",
        r"has the \g<most>",
    ),
    (
        r"\bcan be (?:confirmed|verified|considered|regarded|counted)(?: as)?(?: currently| "
        r"still)? (?=present|there|gone)",
        "are ",
    ),
    (
        r"\b(?:whose (?:state|status) is|with (?:the )?(?:state|status)(?: of)?|in (?:the )?state)(?: "
        r"currently| now)? "
        r"(?=gone|moved|present|missing)",
        "that are marked ",
    ),
    (
        r"^since when (?:has|have|is|are|was) (?P<what>.+?) (?:not|no longer)(?: been)?(?: there| here| "
        r"(?:in|on|at) .*)$",
        r"since when is \g<what> gone",
    ),
    (
        rf"(?<=lying|aying|tting|nding|nging|cking|ating| left) (?:around|about) (?={_WHOLE})",
        " in ",
    ),
    (
        rf"\b(?P<gone>disappeared|gone|missing|vanished|removed|taken|stolen) from (?={_WHOLE})",
        r"\g<gone> in ",
    ),
    (
        r"\b(?P<gone>gone|missing|moved) from (?:the|their) (?:place|position|spot|location)s? where "
        r"(?:they|it) [\w ]+$",
        r"\g<gone>",
    ),
    (
        r"^when (?:did|were|have) (?P<who>you|we) last (?:go to|go into|go in|in|been to|been in|enter"
        r"|inside) (?=the|my|our)",
        r"when did \g<who> last see ",
    ),
    (
        r"^(?:which|what) (?P<room>room|area) (?:were|was) (?P<who>you|the robot) (?:in )?(?P<when>last"
        r"|first)(?: in)?$",
        r"which \g<room> did \g<who> visit \g<when>",
    ),
    (
        r"^who (?:came|arrived|appeared|showed up|turned up) (?P<when>last|first)$",
        r"which person did you see \g<when>",
    ),
    (
        rf"^where (?:is|are) the (?P<thing>{_THING}) (?:that |which )?(?:you|we|i) (?:have |had )?"
        r"(?:saw|seen|see|observed|noticed) (?=most|least|last|first)",
        r"which \g<thing> did you see ",
    ),
    (
        rf"\b(?P<start>(?:have|has|had|did) {_PERSON}(?: already| yet)?) (?:taken|take|had|have)(?: "
        rf"already)? "
        rf"(?P<dose>{_DOSE})",
        r"\g<start> swallow \g<dose>",
    ),
    # Rooms.
    (
        r"^(?:does|do) (?P<place>(?:the|our|my) (?!robot\b|household\b|store\b)[\w ]+?) (?:have|contain"
        r"|hold|include) "
        r"(?P<what>(?:a|an|any|some|more|at least|two|three|four|five|\d+) [\w ]+?)(?: in it| inside)?$",
        r"is there \g<what> in \g<place>",
    ),
    (r"^have (?P<who>we|you|i) got (?=a |an |any |some |the |more )", r"do \g<who> have "),
    (
        r"^(?:what|which) is the (?P<room>room|area) with the (?=most|fewest|least)",
        r"which \g<room> has the ",
    ),
    (r"^in how many (?P<rooms>rooms|areas) (?:is|are) there (?=\w)", r"how many \g<rooms> have "),
    (
        r"^where (?P<be>is|are) the (?P<what>[\w ]+?) (?:that|which) (?:is|are) not (?=\w)",
        r"which \g<what> \g<be> not ",
    ),
    (r"\bhow many (?:square met(?:re|er)s|m2|m²|sq\.? ?m) (?:is|are|does|has)\b", "how big is"),
    (r"\bwhich (?:room|area) is (?P<word>\w+er), (?=.* or )", r"which is \g<word>, "),
)
_COMPILED = tuple((pattern(words), by) for words, by in _PAIRS)


def plainer(words: str) -> str:
    """Return a question with plainer words in place of fixed expressions."""
    for expression, by in _COMPILED:
        words = expression.sub(by, words)
    words = _HALF.sub(_with_half, words)
    words = _WHICH_OF.sub(
        lambda found: f"which {found['what']} {found['verb']} {_SUPERLATIVES[found['word'].lower()]}", words
    )
    words = _OF_SO_MANY.sub("which of the ", words)
    words = _SIZE_OF.sub(lambda found: f"how {_MEASURES[found['side'].lower()]} is ", words)
    return " ".join(words.split())


def _with_half(found: re.Match[str]) -> str:
    number = found["number"].lower()
    whole = _HALVES.get(number) or int(number)
    return f"{whole}.5 {found['unit'] or found['unit2']}"
