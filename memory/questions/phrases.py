"""Patterns of questions in English; the first match decides."""

from __future__ import annotations

import re

_SEE = (
    r"(?:see|seen|saw|notice|noticed|observe|observed|detect|detected|find|found|meet|met|spot|spotted|leave"
    r"|left|put|park|parked|encounter|encountered|remember|sight|sighted|visible|in view)"
)
_WHO = r"(?:you|we|i|it|the robot|anyone|anybody|someone|somebody)"
_ARE = r"(?:is|are|was|were|have been|has been)"
_WHERE = r"(?:where|when)(?: and (?:where|when))?"
_THERE = r"(?:there|here|around|present|in place|known|remembered|stored|in (?:your |the )?memory|left)"
_ALL = r"(?:everything|all|memories|all memories|it all)"
_EVERYWHERE = r"(?:everything|all|(?:the|this|your) (?:place|map|area|memory|store|world|scene|surroundings))"
_MOVED = r"(?:moved?|taken?|took|removed?|gone|left|disappeared?|vanished?)"
_NEAR = r"(?:near|nearby|around|close to|next to|by|beside|in|inside|at|on)"


_THIS = r"(?:this|that|it|these|them)"
_THIS_PLACE = r"(?:this|that) (?:place|spot|location|area|street|room|corner)"
_NUMBER = r"(?:memory |#|id |memory #)?\d{1,18}"
_BEFORE = r"(?: (?:before|already|earlier|ever))"


def pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern that ignores case."""
    return re.compile(text, re.IGNORECASE)


#: Name of the question and its pattern. The group ``what`` is the object.
PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (question, pattern(f"^(?:{text})$"))
    for question, text in (
        ("similar_situations", r"(?:(?:show|find|list)(?: me)? )?"
                               r"(?:(?:what|which|anything|situations?|memories|things)"
                               r"(?: (?:is|are|looks?|was|were|situations? (?:are|were)))? )?"
                               r"(?:(?:the )?(?:most )?(?:similar|alike)(?: (?:situations?|memories))?"
                               r"(?: to)?|like) (?P<what>(?:memory |#|id )?\d{1,18})"),
        ("seen_before", rf"(?:have|has|had|did) {_WHO} (?:ever |already )?{_SEE} {_THIS}"
                        rf"(?: (?:one|thing|object))?{_BEFORE}*"),
        ("seen_before", rf"(?:have|has|had|did) {_WHO} (?:ever |already )?{_SEE} (?P<what>{_NUMBER})"
                        rf"{_BEFORE}"),
        ("seen_before", rf"(?:is|was|were) (?:{_THIS}|(?P<what>{_NUMBER}))"
                        rf" (?:(?:already )?{_SEE}|known|new|familiar)(?: to you)?{_BEFORE}*"),
        ("seen_before", rf"do you (?:know|recogni[sz]e|remember) (?:{_THIS}|(?P<what>{_NUMBER}))"
                        r"(?: (?:one|thing|object))?"),
        ("seen_before", rf"seen[ _-]before(?: (?P<what>{_NUMBER}))?"),
        ("been_here", rf"(?:have|has|had) {_WHO} (?:ever |already )?(?:been|stood|come|passed|driven)"
                      rf" (?:at |to |in |through |by )?(?:here|{_THIS_PLACE}){_BEFORE}*"),
        ("been_here", rf"(?:was|were) {_WHO} (?:ever |already )?(?:here|{_THIS_PLACE}){_BEFORE}*"),
        ("been_here", rf"(?:do you (?:know|recogni[sz]e|remember)|have {_WHO} (?:ever )?{_SEE}|is)"
                      rf" {_THIS_PLACE}(?: (?:known|new|familiar))?{_BEFORE}*"),
        ("been_here", rf"been[ _-]here(?: (?P<what>{_NUMBER}))?"),
        ("similar_situations", r"similar|what is similar|what is this like|what does this look like"),
        ("first_seen", rf"when did {_WHO} first (?:time )?{_SEE} (?P<what>.+)"),
        ("first_seen", rf"{_WHERE} did {_WHO} {_SEE} (?P<what>.+?) (?:first|for the first time)"),
        ("first_seen", rf"(?:when|where) (?:was|were) (?P<what>.+?) (?:first {_SEE}|{_SEE} first"
                       rf"|{_SEE} for the first time)"),
        ("first_seen", rf"when was the first time (?:that )?{_WHO} {_SEE} (?P<what>.+)"),
        ("first_seen", r"when did (?P<what>.+?) (?:first )?(?:appear|arrive|come|show up|turn up)(?: here)?"),
        ("first_seen", rf"(?:since when|how long) (?:is|are|has|have) (?P<what>.+?)(?: been)? {_THERE}"),
        ("first_seen", r"first[ _-]seen (?P<what>.+)|(?:the )?first (?:sight|sighting) of (?P<what2>.+)"),
        ("still_there", rf"(?:is|are|was|were) (?P<what>.+?) still(?: {_THERE})?"),
        ("still_there", rf"(?:is|are) there still (?P<what>.+)|(?:is|are) still (?P<what2>.+?) {_THERE}"),
        ("still_there", r"(?:does|do) (?P<what>.+?) still (?:exist|stand|lie|stay|sit)(?: there| here)?"),
        ("still_there", rf"(?:has|have|had|did) (?:anyone|anybody|someone|somebody) {_MOVED} (?P<what>.+)"),
        ("still_there", rf"(?:has|have|did) (?P<what>(?!anything|something|you ).+?)(?: been)? {_MOVED}"
                        r"(?: away)?"),
        ("still_there", r"(?:what|has anything) (?:became|become|happened) (?:of|to|with) (?P<what>.+)"),
        ("still_there", r"still[ _-]there (?P<what>.+)"),
        ("how_often", rf"how (?:often|many times|frequently) (?:did|do|does|have|has) {_WHO} {_SEE}"
                      r" (?P<what>.+)"),
        ("how_often", rf"how (?:often|many times|frequently) {_ARE} (?P<what>.+?)(?: been)?"
                      rf" (?:{_SEE}|{_THERE})"),
        ("how_often", rf"how (?:long|much time) (?:did|do|have|has) {_WHO} {_SEE} (?P<what>.+)"),
        ("how_often", rf"how long (?:was|were) (?P<what>.+?) (?:{_SEE}|{_THERE})"),
        ("how_often", r"how[ _-]often (?P<what>.+)|(?:the )?(?:frequency|visits) of (?P<what2>.+)"),
        ("changed_since", r"(?:what(?:'s| is| are| has| have| was| were)?(?: been)?"
                          r"|(?:is|was|has|have|did)? ?(?:anything|something|things?)(?: has| is| been)?"
                          r"|(?:are|were) there any)"
                          r" (?:changed?|changes|new|different|moved?|gone|missing|lost|appeared?"
                          r"|disappeared?|(?:gone|went) missing|went away|came|vanished|new things?)"
                          r"(?: here| there)?"),
        ("changed_since", r"(?:(?:show|list|tell|what|which)(?: me)? )?(?:the |any |all )?"
                          r"(?:changed?(?:[ _-]since)?|changes(?: (?:are|were) there)?)"
                          r"|what(?:'s| is) the difference|what do i need to know"),
        ("search", rf"what did {_WHO} {_SEE} last|what was the last thing (?:that )?{_WHO} {_SEE}"
                   r"|(?:what(?:'s| is| are) |show (?:me )?|list )?(?:the )?"
                   r"(?:newest|latest|last|most recent)"
                   r" (?:memory|memories|things?|sightings?|observations?)"),
        ("search", r"what do you (?:know|remember) (?:about|of) (?P<what>.+)"),
        ("summarise", r"(?:describe|tell|say)(?: me)? what (?:you|do you) (?:see|know|remember|have)"),
        ("summarise", r"what do you (?:know|remember|have)(?: about)?(?: here)?|what have you got"
                      r"|what(?:'s| is) in (?:your|the) (?:memory|store)"),
        ("between", rf"what (?:happened|happens|was (?:there|seen|visible|going on|happening|up)|went on"
                    rf"|(?:did|do|could|can) {_WHO} {_SEE}|have {_WHO} {_SEE}|has been seen)"
                    r"(?: here| there)?"),
        ("between", rf"(?:which|what) (?:things|objects|stuff|memories|events) (?:did|do|have) {_WHO} {_SEE}"
                    r"|(?:did|has) (?:anything|something) (?:happen|happened)(?: here)?"
                    rf"|did {_WHO} {_SEE} anything|(?:events|sightings|observations|memories|between)"
                    rf"|{_ALL} (?:that )?{_WHO} (?:have )?{_SEE}"
                    r"|what do you remember (?:of|from)"),
        ("summarise", rf"summari[sz]e(?: {_EVERYWHERE})?|(?:give (?:me )?)?(?:a |an |the )?(?:short )?"
                      rf"(?:summary|overview)(?: of(?: {_EVERYWHERE})?)?|describe {_EVERYWHERE}"
                      r"|(?:which|what) (?:labels|classes|things|kinds of things|objects)"
                      r" (?:do you (?:know|have|remember)|are there)"
                      rf"|(?:(?:list|show|tell)(?: me)?(?: about)? )?{_ALL}|where have you been"),
        ("summarise", r"(?:summari[sz]e|describe|(?:a |the )?(?:summary|overview) of) (?P<what>.+)"),
        ("how_many", rf"how (?:many|much) (?P<what>.+?) (?:{_ARE}|do) (?:{_THERE}|{_SEE}|we have)"),
        ("how_many", rf"how (?:many|much) (?P<what>.+?) (?:did|do|have|has|can|could) {_WHO}"
                     rf" (?:{_SEE}|know|have|count|recall)(?: about| of)?"),
        ("how_many", rf"how (?:many|much) (?P<what>.+?) {_ARE} (?:still )?(?:there |here )?"
                     r"(?:gone|missing|away|moving|parked|present|there|here)"),
        ("how_many", r"how (?:many|much) (?P<what>.+?) (?:exist|are|were|is)"),
        ("how_many", r"(?:what(?:'s| is) )?(?:the )?(?:total )?(?:number|count|amount) of (?P<what>.+)"),
        ("how_many", r"(?:count|how[ _-]many) (?P<what>.+)"),
        ("how_many", rf"(?:is|are|was|were) there (?P<what>.+?)(?: {_THERE})?|any (?P<what2>.+)"),
        ("pose_to", r"(?:go|drive|navigate|move|take me|bring me|guide me|lead me|get)[ _-]to (?P<what>.+)"),
        ("pose_to", r"how (?:do|can|could|would) (?:i|we|you) (?:get|go|drive|come) to (?P<what>.+)"
                    r"|how to get to (?P<what2>.+)"),
        ("pose_to", r"(?:show |tell )?(?:me )?(?:the |a )?(?:way|path|route|directions?|pose) to"
                    r" (?P<what>.+)"),
        ("last_seen", rf"{_WHERE} did {_WHO} (?:last )?{_SEE} (?P<what>.+?)(?: last| the last time)?"),
        ("last_seen", rf"{_WHERE} have {_WHO} (?:last )?{_SEE} (?P<what>.+?)(?: last)?"),
        ("last_seen", rf"when was the last time (?:that )?{_WHO} {_SEE} (?P<what>.+)"),
        ("last_seen", rf"{_WHERE} (?:was|were) (?P<what>.+?) (?:last )?(?:{_SEE}|there)(?: last)?"),
        ("last_seen", r"where(?:'s| is| are| was| were| have you put| did you put) (?P<what>.+?)"
                      r"(?: now| right now| last| located| at)?"),
        ("last_seen", r"where (?:can|could|do|should|might|would|will) (?:i|we|you) (?:find|get|see)"
                      r" (?P<what>.+)"),
        ("last_seen", r"(?:(?:what(?:'s| is) )?(?:the |its )?)?(?:last |current |latest |known )*"
                      r"(?:place|position|location|pose|whereabouts|sighting|sight) of (?P<what>.+)"),
        ("last_seen", rf"(?:have|has|did|do|can) {_WHO} (?:ever )?(?:{_SEE}|know) (?P<what>.+?){_BEFORE}?"),
        ("last_seen", r"where (?P<what>.+?) (?:is|was|are|were|went|could be)(?: now| last)?"),
        ("last_seen", r"where (?:did|has|have) (?P<what>.+?) (?:go|gone)"),
        ("search", r"(?:show|list|find|search(?: for)?|give|display|get|tell)(?: me)?(?: about)?"
                   r" (?P<what>(?:all|every|each|any)(?: of)? .+)"),
        ("last_seen", r"(?:last[ _-]seen|find|locate|look for|where) (?P<what>.+)"),
        ("near", rf"(?:what|what's|who|anything|something|things|objects|everything|all)(?: else)?"
                 rf"(?: is| are| was| were| lies| stands)?(?: there)? {_NEAR} (?P<what>.+)"),
        ("near", r"near(?:by)?(?: (?P<what>.+))?|what(?:'s| is| are| was| were| lies| stands| sits)?"
                 r"(?: there| here| around)?"
                 r"|anything|everything"),
        ("search", rf"(?:which|what) (?P<what>.+?) (?:did|do|have) {_WHO} (?:{_SEE}|know|have)"),
        ("search", rf"(?:which|what) (?P<what>.+?) (?:{_ARE}|do) (?:{_THERE}|{_SEE}|we have)"),
        ("search", r"(?:show|list|search(?: for)?|give|display|tell)(?: me)?(?: about)? (?P<what>.+)"),
    )
)  # fmt: skip
#: Patterns for questions with a place, such as ``is the car at (34, 9)``.
WITH_PLACE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("still_there", pattern(r"^(?:is|are) (?P<what>.+?)(?: there| here)?$")),
)
#: Patterns for questions without a place.
WITHOUT_PLACE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("still_there", pattern(r"^(?:is|are) (?P<what>.+?) (?:there|here|gone|missing|away|lost)(?: now)?$")),
)
EXAMPLES = ("where is the {thing}?", "what is near the {thing}?", "what changed since yesterday?")
