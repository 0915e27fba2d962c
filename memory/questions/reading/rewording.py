"""Rewordings of a question before the grammar reads it: polite words, indirect questions, elapsed times.

Only whole phrases of these lists are taken off, and only at the ends of a question. Other words stay, so an
unknown object is still refused.
"""

from __future__ import annotations

import re

from memory.questions.reading.arguments import ENDS, pattern
from memory.questions.reading.idioms.plain import plainer
from memory.questions.reading.lexicon import PHRASES
from memory.wording import fold

_ADDRESS = (
    r"(?:(?:my )?(?:dear|love|friend|darling|sweetheart|boy|girl)|honey|buddy|mate|pal|dude|boss|sir|madam"
    r"|ma'am|robot|assistant)"
)
_FRIEND = rf"(?:{_ADDRESS}|there|again)"
_THANKS = r"(?:many thanks|thanks|thank you|thx|cheers|ta)(?: (?:very|so) much| a lot| in advance| again)?"
#: Words that a question begins with.
_ASKING = r"(?:wh\w+|how|is|are|was|were|do|does|did|has|have|can|could|show|tell|any|in which)\b"
_LEAD = pattern(
    r"^(?:(?:(?:hi|hey|hello|howdy|dear|greetings|good (?:morning|afternoon|evening|day)|excuse me"
    r"|pardon(?: me)?|(?:i am |i'm )?(?:so |very )?sorry"
    r"(?: (?:to|for) (?:bother|disturb|interrupt|trouble)(?:ing)?(?: you)?)?"
    r"|(?:just )?(?:(?:a|one|another) )?(?:quick|short|small|simple|last) question(?: for you)?"
    r"|i have (?:a|one) (?:quick |short |small )?question(?: for you)?"
    r"|(?:just )?out of (?:curiosity|interest)|just curious|be (?:so )?kind(?: enough)?"
    rf"|do me a favou?r)(?: {_FRIEND})*(?:\s*[,.:;!?-]+\s+|\s+(?=\w)|$)(?:(?:and|but) )?)"
    rf"|(?:{_THANKS}|{_FRIEND})\s*[,.:;!]+\s+(?={_ASKING})"
    r"|(?:yo|hey|ok|okay|so|well|alright|right|listen|now|and|but|also|oh|ah|hm+|u[mh]+|erm|look|quick|then"
    r"|please note(?: that)?|note that)(?: robot)?[\s,.:;!-]+"
    rf"(?={_ASKING}|(?:i|we|my|our|it|he|she|they|there)\b))"
)
_TAIL = pattern(
    rf"(?:\s*[,;.!?-]*\s+(?:{_THANKS}|please|if you (?:can|could|don't mind|know|would|please)|do you know"
    rf"|can you (?:tell me|help me)|by any chance)|(?:\s*[,;.!?-]+\s+(?:{_FRIEND}|ok|okay))"
    r"|(?<!the)(?<!my)(?<!a)(?<!your)(?<!of) (?P<dear>dear(?: robot)?|my dear|my friend))\s*$"
)
_INSIDE = pattern(rf"(?:,\s*)?\b(?:by any chance|kindly)\b(?:\s*,)?|,\s*{_ADDRESS}(?=\s*,)")
#: Requests for an answer, before an indirect question.
_REQUEST = pattern(
    r"^(?:(?:please )?(?:(?:would|do) you mind (?:telling|reminding) me|i was wondering|i wonder"
    r"|i(?:'d| would) (?:like|love|want) to know|i(?: just)? (?:want|need|wanted|needed) to know"
    r"|let me know(?! when)"
    r"|any chance(?: that)?(?= you)|do you (?:happen to )?(?:know|remember)"
    r"|(?:can|could|would|will) you (?:please )?(?:tell|remind|inform) me|(?:tell|remind) me"
    r"|(?:(?:my|our|the|his|her) )?\w+ (?:asks|is asking|asked|wonders|wants to know|would like to know)"
    r"|are you able to (?:tell|remind) me|any idea(?: as to)?|do you have any idea))"
    r"\s+(?=(?:where|when|how|which|who|if|whether|since when|you)\b)"
    r"|^(?:please )?(?:check|see|verify|confirm|find out)(?: for (?:me|us))? (?=(?:if|whether) )"
    r"|^(?:would|could) you be so (?:kind|good)(?:,? and| as to)? (?:tell|show|remind) (?:me|us) (?=\w)"
    r"|^(?:if|whether) you (?:can|could|would|might)(?: please)? (?:tell|remind) me\s+(?=\w)"
)
#: *Whether the cat is on the sofa*: the words before the first verb are its subject.
_WHETHER = pattern(
    r"^(?:if|whether) (?P<subject>[^,;?]+?) (?P<verb>is|are|was|were|has|have|had) (?P<rest>[^,;?]+)$"
)
#: *Is it true that the umbrella is gone*.
_IS_TRUE = pattern(
    r"^(?:is it (?:true|correct|right)|am i right|are you sure|can you confirm|please confirm|confirm)(?: "
    r"in thinking)?"
    r"(?: that)? (?=\w)"
)
#: *The keys are on the shelf, aren't they*, and the same without the tag.
_TAG = pattern(
    r",? (?:(?:is|are|was|were|do|does|did|has|have|can|could|wo|would)(?:n't| not)? (?:i|it|they|he|she"
    r"|we|you|there)"
    r"|right|correct|yes|yeah|true)$"
)
_STATED = pattern(
    r"^(?P<subject>(?:the|my|our|his|her|their|there|your) ?[^,;?]*?) ?\b(?P<verb>is|are|was|were|has"
    r"|have) (?P<rest>[^,;?]+)$"
)
_PUT = pattern(
    r"^(?:i|we|you) (?:left|put|placed|laid) (?P<what>(?:the|my|our) [^,;?]+?) (?P<place>(?:on|in|under"
    r"|next to|inside) [^,;?]+)$"
)
_ASKS = pattern(r"\b(?:what|where|when|why|which|who|how)\b")
_HOW_LONG = r"(?P<how>how long|how much time|how many (?:second|minute|hour|day|week)s|what is the time)"
#: *How long between its first and its last sighting*.
_ELAPSED = pattern(
    rf"^{_HOW_LONG}(?: (?:(?:was|is) (?:it|there)|(?:were|are) there|passed|elapsed|went by|lay|lie))?"
    r"(?: in)? between (?:the |your |its )?first(?: (?:time|sighting|observation|appearance))?"
    r"(?: of it)? and (?:the |your |its )?(?:last|latest|most recent)"
    r"(?: (?:time|sighting|observation|appearance)s?)?(?: (?:of|that you saw|when you saw|you saw))?"
    r"(?: (?P<what>.+))?$"
)

#: *How many days has it been since you last saw the cat*.
_SINCE = pattern(
    r"^how (?P<unit>many (?:seconds|minutes|hours|days|weeks)|long) "
    r"(?:(?:is it|has it been|have passed|passed|went by) )?since "
    r"(?=(?:you|we|i|it|the (?:first|last|latest))\b)"
)
#: *How many centimetres wide is the table*.
_SIZED = pattern(
    r"^how many (?P<unit>(?:milli|centi|kilo)?met(?:re|er)s|inches|feet|yards|[cm]?m) "
    r"(?P<side>long|wide|tall|high) (?P<what>(?:is|are|was|were) .+)$"
)
#: *What is left in the garage* and *what is still in the garage*: what is there. *What has left* is another.
_REMAINING = pattern(
    r"^(?P<what>(?:what|who) (?:is|are)) (?:still )?(?:left|still)(?= (?:in|on|at|inside|near|next to) )"
)
#: *Which mugs are left in the kitchen* and *are there any mugs left*: those that are still there.
_LEFT_OVER = pattern(
    r"^(?P<what>(?:which|how many) (?:\w+ )+(?:is|are|do (?:we|you|i) have)) (?:still )?left(?= (?:in|on"
    r"|at|inside|near|next to) |$)"
)
_ANY_LEFT = pattern(
    r"^(?P<what>(?:(?:is|are) there|do (?:we|you|i) have|have (?:we|you) got)? ?(?:still )?(?:any|some|a"
    r"|an|enough|no)\b[\w ]*?)"
    r" (?:still )?left(?= (?:in|on|at|inside|near|next to) |$)"
)
_THING_LEFT = pattern(
    r"^(?:is )?(?:there )?anything (?:is )?(?:still )?left (?=(?:in|on|at|inside|near|next to) )"
)
#: *Do you think the cat is here*, and *where do you think the cat is*.
_THINK = r"do you (?:really )?(?:think|believe|reckon|suppose|guess)"
_THINKS = pattern(rf"^{_THINK} (?:that )?(?=\w)")
_THINKS_INSIDE = pattern(rf"(?:(?<=\w),? {_THINK}(?=,? (?!of\b|about\b)\w)|,? {_THINK}$)")
#: *Where did I drop X* is *where did I put X*.
_LOST = pattern(
    r"^(?P<where>where (?:did|have|had) (?:i|we|you|he|she|they) (?:(?:last|just) )?)"
    r"(?:drop|dropped|dump|dumped|lose|misplace|misplaced|chuck|chucked|stick|stuck|set down|lay|laid)"
    r"(?: off| down)? (?=\w)"
)
_DIMENSIONS = pattern(
    r"^(?:please )?(?:what|give me|tell me|list) ?(?P<be>(?:is|are|was|were)?) ?the "
    r"(?:(?:exact|physical|outer) )?(?:dimensions?|measurements) of (?=\w)"
)
#: *Any mugs outside the kitchen*.
_OUTSIDE = pattern(r"(?<=\w )outside (?:of )?(?=(?:the|my|our) )")
#: *Which object has the highest number of observations*.
_OBSERVATIONS = pattern(
    r"\b(?:(?P<has>has|have|had)|with) the (?:(?P<most>highest|largest|biggest|greatest)"
    r"|lowest|smallest|fewest) (?:(?:number|count|amount) of (?:observations|sightings|detections)"
    r"|(?:observation|detection) count)\b"
)


def reworded(words: str) -> str:
    """Return a question without polite words, as a direct question.

    Words of politeness alone stay as they are. The words after *if* and *whether* become a question of their
    own: *can you tell me if the cat is on the sofa* is *is the cat on the sofa*.
    """
    rest = words
    for _ in range(8):  # "Hi, sorry to bother you, quick question: ..."
        before = rest
        rest = _without_tail(_LEAD.sub("", rest, count=1).strip())
        rest = _REQUEST.sub("", rest, count=1)
        if rest == before:
            break
    rest = " ".join(_INSIDE.sub(" ", rest).split()).rstrip(ENDS)
    if not rest:
        return words
    rest = _direct(plainer(rest)).strip(", ")
    asked = _WHETHER.match(rest)
    if asked is not None and rest != words and not _ASKS.search(rest):
        subject = "there" if asked["subject"].lower() == "there" else asked["subject"]
        rest = f"{asked['verb']} {subject} {asked['rest']}"
    rest = _asked(rest)
    rest = _SIZED.sub(r"how \g<side> \g<what> in \g<unit>", rest)
    rest = _REMAINING.sub(r"\g<what>", rest)
    rest = _LEFT_OVER.sub(r"\g<what> still", rest)
    rest = _THING_LEFT.sub("is anything ", rest)
    rest = _ANY_LEFT.sub(r"\g<what>", rest)
    rest = _SINCE.sub(r"how \g<unit> ago ", rest)
    elapsed = _ELAPSED.match(rest)
    if elapsed is not None:
        how = elapsed["how"] if "many" in elapsed["how"].lower() else "how long"
        rest = f"{how} was {elapsed['what'] or 'it'} there"
    return rest


def _asked(words: str) -> str:
    """Return a statement that asks for a yes as a question: *the keys are on the shelf, aren't they*."""
    stated = _IS_TRUE.sub("", words, count=1)
    tagged = _TAG.sub("", stated, count=1)
    if tagged == words or _ASKS.search(tagged):
        return words
    put = _PUT.match(tagged)
    if put is not None:
        return f"is {put['what']} {put['place']}"
    found = _STATED.match(tagged)
    return words if found is None else f"{found['verb']} {found['subject'].strip()} {found['rest']}"


def _direct(words: str) -> str:
    """Return words with one wording for opinions, lost objects, dimensions and numbers of observations."""
    believed = _THINKS.sub("whether ", words, count=1)
    rest = believed if _WHETHER.match(believed) else _THINKS.sub("", words, count=1)
    rest = _THINKS_INSIDE.sub("", rest)
    rest = _LOST.sub(r"\g<where>put ", rest)
    rest = _DIMENSIONS.sub(lambda found: f"how big {found['be'] or 'is'} ", rest)
    rest = _OUTSIDE.sub("not in ", rest)
    return _OBSERVATIONS.sub(
        lambda found: f"{'was ' if found['has'] else ''}seen {'most' if found['most'] else 'least'} often",
        rest,
    )


def _without_tail(words: str) -> str:
    """Return words without polite ones at their end, which name no object there."""
    found: re.Match[str] | None = _TAIL.search(words)
    if found is None:
        return words
    rest = words[: found.start()]
    before = fold(rest.split()[-1]) if rest.split() else ""
    # "Where is my dear friend" is no address.
    if found["dear"] and PHRASES.get((before,), "NOUN") not in ("NOUN", "THERE", "STAY", "SEE"):
        return words
    return rest.strip()
