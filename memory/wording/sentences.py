"""Content words and dates of a sentence, also in scripts without spaces."""

from __future__ import annotations

import re
from itertools import groupby, pairwise
from typing import NamedTuple

from memory.terms import fold, is_unspaced, terms, words
from memory.wording.dates import Date, dates_of
from memory.wording.stems import stem

#: Minimum letters of a text with function words; shorter texts are names.
_LEAST = 5
_CHINESE = """
    什么时候 什麼時候 什么 什麼 怎么 怎麼 哪里 哪裡 哪儿 哪 谁 誰 多少
    的 了 吗 嗎 呢 吧 是 在 有 我 你 他 她 它 们 們 这 這 那 把 被
"""
_JAPANESE = """
    でしたか ましたか ですか ますか ました です ます あります ありました いました
    から まで どこ いつ だれ なに なぜ どの 何 は が を に で の と も へ か
"""
_KOREAN_WORDS = """
    어디에서 어디에 어디 언제 누가 누구 무엇을 무엇 뭐 왜 몇 있어요
    있었어요 있나요 있습니까 있다 인가요 입니까 했나요 했어요
"""
_KOREAN_ENDINGS = "에서 에게 으로 까지 부터 은 는 이 가 을 를 에 의 로 와 과 도"
_NUMBERED = "年 月 日 년 월 일"


def _any_of(*lists: str) -> str:
    return "|".join(sorted(" ".join(lists).split(), key=len, reverse=True))


_CUTS = re.compile(_any_of(_CHINESE, _JAPANESE))
_KOREAN = re.compile(r"[\uac00-\ud7a3]+")
_KOREAN_WORD = re.compile(_any_of(_KOREAN_WORDS))
_KOREAN_ENDING = re.compile(f"(?<=.)(?:{_any_of(_KOREAN_ENDINGS)})$")
_UNITS = re.compile(rf"(?<=\d)(?:{_any_of(_NUMBERED)})")


def has_function_words(said: list[str]) -> bool:
    """True if folded words are a text in a script without spaces that has function words."""
    letters = sum(is_unspaced(letter) for word in said for letter in word)
    return letters >= _LEAST and any(_cut(word) != [word] for word in said)


def content_parts(word: str) -> list[str]:
    """Return the content of a folded word: itself, or pairs of letters of scripts without spaces."""
    if not any(map(is_unspaced, word)):
        return [word]
    found = []
    for piece in _cut(word):
        for unspaced, group in groupby(terms(piece), key=lambda term: is_unspaced(term[0])):
            run = list(group)
            if unspaced and len(run) > 1:
                found += ["".join(pair) for pair in pairwise(run)]
            else:
                found += run
    return found


def _cut(word: str) -> list[str]:
    """Return the parts of a word between function words."""
    if _KOREAN.fullmatch(word):
        rest = _KOREAN_ENDING.sub("", _KOREAN_WORD.sub("", word))
        return [rest] if rest else []
    return [piece for piece in _CUTS.split(_UNITS.sub(" ", word)) for piece in piece.split()]


#: Minimum words of a question that is recognized by its question mark only.
_QUESTION = 3
#: Most words of a sentence that are looked up.
_MOST = 64

#: Conjunctions and endings such as the s of Mary's, which do not make a sentence.
_JOINING = frozenset(["and", "or", "but", "nor", "s", "t", "d", "ll", "m", "re", "ve"])
_HOLDING = """
    a an the of to in on at by for with from into onto about as than then if so because while
    is are was were be been being am do does did done has have had having would could should shall must
    what when where who whom whose which how why whether that this these those there here
    i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
"""
#: Function words. Words that may also be objects or names are missing: can, will, may.
FUNCTION_WORDS = _JOINING.union(_HOLDING.split())


class Sentence(NamedTuple):
    """Content of a sentence.

    Attributes:
        words: folded content words with distinct stems.
        dates: dates in the sentence.
    """

    words: tuple[str, ...]
    dates: tuple[Date, ...]


def read_sentence(text: str) -> Sentence | None:
    """Return the content of a sentence; ``None`` if the text is only words.

    A sentence has a function word, such as *in* or *the*, a date with a month, or a question mark after three
    words or more. It also has other words.
    """
    plain = " ".join(fold(text).split())
    said, dates = words(text), dates_of(plain)
    holding = bool(FUNCTION_WORDS.intersection(said) - _JOINING) or has_function_words(said)
    asking = plain.endswith("?") and len(said) >= _QUESTION
    if not (holding or asking or any(date.month for date in dates)):
        return None
    asked: dict[str, str] = {}
    for word in said:
        if word not in FUNCTION_WORDS:
            for part in content_parts(word):
                asked.setdefault(stem(part), part)
    return Sentence(tuple(asked.values())[:_MOST], dates) if asked else None


def content_words(text: str) -> str:
    """Return a text without function words; the whole text if nothing else is left."""
    kept = [word for word in text.split() if fold(word) not in FUNCTION_WORDS]
    return " ".join(kept) or text
