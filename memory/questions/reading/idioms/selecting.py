"""One of several objects, exceptions, distances, numbers and rooms."""

from __future__ import annotations

from memory.questions.reading.idioms.parts import PERSON, THING, WHOLE_PLACE, Idiom
from memory.questions.reading.lexicon import WHOLE_PLACES

#: Medicine that people swallow, which the store does not know.
_DOSE = (
    r"(?:(?:my|the|his|her|their|any|all|some|enough) )*(?:\w+ "
    r")?(?:pills?|tablets?|medicines?|medications?|meds"
    r"|vitamins?|drops|insulin|antibiotics|painkillers?|dose|dosage)"
)
_WHOLE = rf"(?:the|this|our|my) (?:whole |entire )?(?:{'|'.join(WHOLE_PLACES)})\b(?! where)"
PAIRS: tuple[Idiom, ...] = (
    # One of several objects.
    (
        rf"^(?:of|among|amongst|out of|from) (?:all )?(?:the |your |known )*{THING}(?: (?:in|of) "
        rf"{WHOLE_PLACE}| you know"
        r"| known)?,? (?P<which>which|what)(?: one)?\b",
        r"\g<which> object",
    ),
    (
        r"(?:(?:was|were) )?(?:first (?:detected|seen|observed|noticed|recorded|spotted)"
        rf"|entered {WHOLE_PLACE}|(?:was |were )?added(?: to {WHOLE_PLACE})?) (?:the )?most recently",
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
        rf"^where (?:is|are) the (?P<thing>{THING}) (?:that |which )?(?:you|we|i) (?:have |had )?"
        r"(?:saw|seen|see|observed|noticed) (?=most|least|last|first)",
        r"which \g<thing> did you see ",
    ),
    (
        rf"\b(?P<start>(?:have|has|had|did) {PERSON}(?: already| yet)?) (?:taken|take|had|have)(?: "
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
