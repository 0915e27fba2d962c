"""Stems of English words.

The rules follow steps 1 and 5 of Porter's stemmer (1980): plurals, ``-ed``, ``-ing``, ``y`` and a final
``e``, plus irregular verbs and plurals. Words with letters other than a to z are not changed.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from memory.terms import words

_PLAIN = re.compile(r"[a-z]{4,}")
_VOWEL = re.compile(r"[aeiouy]")
#: A syllable as counted by Porter, and a stem that lost its e before -ing: hiking.
_SYLLABLE = re.compile(r"[aeiouy]+[^aeiouy]+")
_SHORT = re.compile(r"[^aeiouy]+[aeiouy][^aeiouywx]")
#: Endings whose final e is not part of the stem: place and placing, houses and house.
_BEFORE_E = re.compile(r"(?:[cgsvxz]|ch|sh)e")
_IRREGULAR = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse", "feet": "foot",
    "teeth": "tooth", "geese": "goose", "knives": "knife", "shelves": "shelf", "leaves": "leaf",
    "loaves": "loaf", "wolves": "wolf", "halves": "half", "wives": "wife", "lives": "life",
}  # fmt: skip
#: Verbs and their irregular forms, without those that are also objects or sides: saw, left, rose, felt.
_VERBS = """
    become became, begin began begun, break broke broken, bring brought, build built, buy bought, catch
    caught, choose chose chosen, come came, deal dealt, draw drew drawn, drink drank drunk, drive drove
    driven, eat ate eaten, fight fought, find found, fly flew flown, forget forgot forgotten, forgive
    forgave forgiven, get got gotten, give gave given, go goes going gone went, grow grew grown, hear
    heard, hide hid hidden, hold held, keep kept, know knew known, lead led, learn learnt, lend lent,
    lose lost, make made, mean meant, meet met, pay paid, ride rode ridden, ring rang rung, run ran, say
    said, see seen, sell sold, send sent, shake shook shaken, shoot shot, show shown, sing sang sung,
    sit sat, sleep slept, speak spoke spoken, spend spent, stand stood, steal stole stolen, stick stuck,
    strike struck, sweep swept, swim swam swum, take took taken, teach taught, tell told, think thought,
    throw threw thrown, understand understood, wake woke woken, wear wore worn, win won, write wrote
    written
"""
_IRREGULAR |= {
    form: verb for verb, *others in (line.split() for line in _VERBS.split(",")) for form in others
}
#: Minimum letters of a stem.
_KEPT = 3


@lru_cache(maxsize=1 << 14)
def stem(word: str) -> str:
    """Return the stem of a folded word."""
    word = _IRREGULAR.get(word, word)
    if not _PLAIN.fullmatch(word):
        return word
    word = _without_participle(_singular(word))
    if len(word) > _KEPT and word.endswith("y") and not _VOWEL.fullmatch(word[-2]):
        return word[:-1] + "i"
    if len(word) > _KEPT and _BEFORE_E.fullmatch(word[-3:] if word[-2] == "h" else word[-2:]):
        return word[:-1]
    if word.endswith("e") and len(_SYLLABLE.findall(word[:-1])) > 1:
        return word[:-1]
    return word


def forms(word: str) -> tuple[str, ...]:
    """Return the forms of a folded word with another beginning than its stem: people for person."""
    return _FORMS.get(stem(word), ())


def stems(text: str) -> tuple[str, ...]:
    """Return the stems of the words of a text, ignoring case and accents; signs count as words."""
    return tuple(stem(word) for word in words(text, signs=True))


def says_something(text: str) -> bool:
    """True if a text has a letter, digit or sign such as an emoji."""
    return any(unicodedata.category(letter)[0] in "LNS" for letter in text)


def is_cased(text: str) -> bool:
    """True if every word is in a script with upper case, where misspellings can be corrected."""
    return all(letter.lower() != letter.upper() for letter in text if not (letter.isdigit() or letter == " "))


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("ses", "xes", "zes", "ches", "shes", "sses")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_participle(word: str) -> str:
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest == word or len(rest) < _KEPT or word.endswith("eed") or not _VOWEL.search(rest):
            continue
        if rest[-1] == rest[-2]:
            # Running and run, but not falling and fal, seeing and se.
            return rest if rest[-1] in "lszeo" else rest[:-1]
        return rest + "e" if _SHORT.fullmatch(rest) else rest
    return word


#: By their stem.
_FORMS: dict[str, tuple[str, ...]] = {}
for _form, _base in _IRREGULAR.items():
    _FORMS[stem(_base)] = tuple(dict.fromkeys((*_FORMS.get(stem(_base), ()), _form, _base)))
