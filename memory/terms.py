"""Words and terms of a text, as the text indexes of both database engines store them.

A word is a run of letters, digits and their marks. Scripts such as Chinese, Japanese, Korean and Thai do not
separate words by spaces. There each letter is a term, and a query word is a phrase of terms. So 車 and
自転車 both find 赤い自転車, without a dictionary.
"""

from __future__ import annotations

import re
import unicodedata

_PLAIN = re.compile(r"[^\W_]+")
#: First and last letter of blocks of scripts without spaces between words.
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
#: Letters that Unicode normalization does not decompose.
_STROKES = str.maketrans(
    {"đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l", "ø": "o", "ŧ": "t", "æ": "ae", "œ": "oe", "þ": "th"}
)
#: Letters that are distinct from their base letter. Russian ё is not, because it is also written е.
_OWN_LETTERS = frozenset("йўїґѓќ")
#: Part of a word or a sign, by the first letter of the Unicode category.
_KINDS = {"L": "word", "N": "word", "M": "word", "S": "sign"}
#: Zero-width characters that separate words.
_PARTING = "\u200b"


def fold(text: str) -> str:
    """Return text in lower case without accents.

    Letters that differ only in case or form become equal, also ß and ss. Marks that form a different letter
    stay, such as the vowels of Thai and Hindi and the voicing of kana.
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
    # Normalize again, because lower case can change the form.
    small = unicodedata.normalize("NFKC", kept).casefold().translate(_STROKES)
    return unicodedata.normalize("NFKC", small)


def words(text: str, *, signs: bool = False) -> list[str]:
    """Return the folded words of a text in order; with ``signs``, runs of emoji are words too."""
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
    # A mark alone is not a word.
    return [word for word in found if word and (signs or any(map(str.isalnum, word)))]


def terms(text: str) -> list[str]:
    """Return the index terms of a text in order: words, or letters of scripts without spaces."""
    found: list[str] = []
    for word in words(text):
        if word.isascii():
            found.append(word)
            continue
        run = ""
        for letter in word:
            mark = bool(run) and unicodedata.category(letter)[0] == "M"
            if run and not mark and (is_unspaced(letter) or is_unspaced(run[0])):
                found.append(run)
                run = ""
            run += letter
        found.append(run)
    return found


def indexed(text: str) -> str:
    """Return a text that a whitespace tokenizer splits into the terms."""
    return text if text.isascii() else " ".join(terms(text))


def _is_accent(sign: str) -> bool:
    """True for marks that do not change the letter: accents and the points of Hebrew and Arabic.

    Their Unicode combining class is 1, 10 to 36 or from 200, or their category is ``Me``.
    """
    place = unicodedata.combining(sign)
    return place >= 200 or place == 1 or 10 <= place <= 36 or unicodedata.category(sign) == "Me"


def _is_invisible(sign: str) -> bool:
    """True for invisible format characters: soft hyphens, joiners, variation selectors."""
    code = ord(sign)
    if 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
        return True
    return unicodedata.category(sign) == "Cf" and sign not in _PARTING


def is_unspaced(letter: str) -> bool:
    """True for letters of scripts without spaces between words, and of Korean."""
    code = ord(letter)
    return code >= _UNSPACED[0][0] and any(first <= code <= last for first, last in _UNSPACED)
