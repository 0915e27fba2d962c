"""Words of a text as both engines of a store index them: folded, and cut where its script cuts.

A word is a run of letters, digits and their marks. Chinese, Japanese, Korean, Thai and others write words
without spaces between them, or endings at the word: there each letter is a term of its own, and a word of a
query is a phrase of such terms. So 赤い自転車 is found by 車 and by 自転車, without a dictionary.
"""

from __future__ import annotations

import re
import unicodedata

_PLAIN = re.compile(r"[^\W_]+")
#: First and last letter of blocks whose scripts do not put spaces between words, or put endings at them.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1100, 0x11FF),  # Korean letters
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x3005, 0x3007),  # Marks of repetition, and zero
    (0x3021, 0x318F),  # Kana, Bopomofo, Korean letters
    (0x31A0, 0x31FF),  # Bopomofo and kana of dialects
    (0x3400, 0x4DBF),  # Chinese
    (0x4E00, 0x9FFF),
    (0xA960, 0xA9FF),  # Korean letters, Javanese, Burmese
    (0xAA60, 0xAADF),  # Burmese, Tai Viet
    (0xAC00, 0xD7FF),  # Korean
    (0xF900, 0xFAFF),  # Chinese
    (0x1AFF0, 0x1B16F),  # Kana
    (0x20000, 0x3FFFF),  # Chinese
)
#: Letters with a stroke or hook, and joined ones, which no normal form of Unicode takes apart.
_STROKES = str.maketrans(
    {"đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l", "ø": "o", "ŧ": "t", "æ": "ae", "œ": "oe", "þ": "th"}
)
#: Letters that are none of their base letter with an accent; Russian writes ё as е as well.
_OWN_LETTERS = frozenset("йўїґѓќ")
#: What letters are parts of, by the first letter of their category.
_KINDS = {"L": "word", "N": "word", "M": "word", "S": "sign"}
#: Signs that part words though they have no width.
_PARTING = "\u200b"


def fold(text: str) -> str:
    """Small letters without accents, as the store's text index holds words.

    Letters that differ in case or form only are the same, also where one becomes two: ß and ss. Marks that
    make another letter stay, such as the vowels of Thai and Hindi and the voicing of kana.
    """
    if text.isascii():
        return text.lower()
    kept = ""
    for part in unicodedata.normalize("NFKD", text):
        if _is_accent(part):
            if unicodedata.normalize("NFC", kept[-1:].lower() + part) in _OWN_LETTERS:
                kept += part
        elif not _is_invisible(part):
            kept += part
    # Once more, because small letters may be written in another way.
    small = unicodedata.normalize("NFKC", kept).casefold().translate(_STROKES)
    return unicodedata.normalize("NFKC", small)


def words(text: str, *, signs: bool = False) -> list[str]:
    """The folded words of a text in its order, as people part them.

    Args:
        text: any.
        signs: runs of signs such as emoji are words too, as in labels.
    """
    folded = fold(text)
    if folded.isascii() and not signs:
        return _PLAIN.findall(folded)
    found, before = [""], ""
    for letter in folded:
        kind = _KINDS.get(unicodedata.category(letter)[0], "")
        if kind != before:
            found.append("")
        if kind == "word" or (kind == "sign" and signs):
            found[-1] += letter
        before = kind
    # A mark alone is no word.
    return [word for word in found if word and (signs or any(map(str.isalnum, word)))]


def terms(text: str) -> list[str]:
    """The terms of a text in its order, which an index holds: its words, or the letters of some scripts."""
    found: list[str] = []
    for word in words(text):
        if word.isascii():
            found.append(word)
            continue
        run = ""
        for letter in word:
            mark = bool(run) and unicodedata.category(letter)[0] == "M"
            if run and not mark and (_is_unspaced(letter) or _is_unspaced(run[0])):
                found.append(run)
                run = ""
            run += letter
        found.append(run)
    return found


def indexed(text: str) -> str:
    """A text of which a plain tokenizer makes the terms; itself where it does so anyway."""
    return text if text.isascii() else " ".join(terms(text))


def _is_accent(sign: str) -> bool:
    """True for marks at a letter that stays the same: accents, and points that are seldom written.

    These have the classes of Unicode for marks around a letter (from 200), overlays (1), and the points of
    Hebrew and Arabic (from 10 to 36); or they enclose it.
    """
    place = unicodedata.combining(sign)
    return place >= 200 or place == 1 or 10 <= place <= 36 or unicodedata.category(sign) == "Me"


def _is_invisible(sign: str) -> bool:
    """True for signs that only say how letters are shown: soft hyphens, joiners, choices of a form."""
    code = ord(sign)
    if 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
        return True
    return unicodedata.category(sign) == "Cf" and sign not in _PARTING


def _is_unspaced(letter: str) -> bool:
    code = ord(letter)
    return code >= _UNSPACED[0][0] and any(first <= code <= last for first, last in _UNSPACED)
