"""Patterns that expressions share."""

from __future__ import annotations

import re
from collections.abc import Callable

from memory.questions.reading.comparing import COMPARED_MEASURES
from memory.questions.reading.lexicon import PERSONS

#: A pattern, and what stands in its place.
Idiom = tuple[str, str | Callable[[re.Match[str]], str]]
_RELATIVE = rf"(?:(?:the|my|our|his|her|their|your) )?(?:\w+ )?(?:{'|'.join(sorted(PERSONS))})"
PERSON = rf"(?:(?:i|we|you|he|she|they)|{_RELATIVE})"
THING = r"(?:objects?|things?|items?|entries|entry|memories|memory|entity|entities|one|ones)"
WHOLE_PLACE = r"(?:(?:the|your) )?(?:memory|store|database|map|flat|house|home|office|building)"
#: An object with its article.
OBJECT = r"(?:the|my|our|your|his|her|their|a|an) [\w' ]+?"
COMPARATIVE = rf"(?:{'|'.join(word for word in COMPARED_MEASURES if word not in ('more', 'less'))})"
#: Comparatives after *which of the two*, and the superlatives that they mean.
SUPERLATIVES = {
    "closer": "nearest", "nearer": "nearest", "farther": "farthest", "further": "farthest",
    "bigger": "biggest",
    "larger": "biggest", "smaller": "smallest", "taller": "tallest", "longer": "longest", "wider": "widest",
    "narrower": "narrowest", "higher": "highest", "lower": "lowest", "older": "oldest", "newer": "newest",
}  # fmt: skip
