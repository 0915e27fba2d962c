"""Words and terms of a text in every script."""

from __future__ import annotations

import sqlite3

import pytest

from memory.terms import fold, indexed, terms, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("two Red_cars, x-y 3", ["two", "red", "cars", "x", "y", "3"]),
        ("赤いＴoyota車が3台。", ["赤", "い", "toyota", "車", "が", "3", "台"]),
        ("一辆红色的汽车", list("一辆红色的汽车")),
        ("자동차가 있다", list("자동차가있다")),
        ("รถยนต์", ["ร", "ถ", "ย", "น", "ต์"]),
        ("ガス か\u3099 ｶﾞ", ["ガ", "ス", "が", "ガ"]),
        ("गाड़ी की", ["गाड़ी", "की"]),
        ("Große STRASSE ẞ", ["grosse", "strasse", "ss"]),
        ("Café naïve ﬁre Łódź Ærø İ ısı", ["cafe", "naive", "fire", "lodz", "aero", "i", "isi"]),
        ("ΣΊΣΥΦΟΣ σίσυφος", ["σισυφοσ", "σισυφοσ"]),
        ("كِتَاب می\u200cخواهم", ["كتاب", "میخواهم"]),
        ("so\u00adft ❤️ 1️⃣ 🚗", ["soft", "1"]),
        ("... \u0301 ー", ["ー"]),
        ("", []),
    ],
)
def test_terms_of_every_script(text: str, found: list[str]) -> None:
    assert terms(text) == found
    assert terms(fold(text)) == found
    assert terms(text.upper()) == found or "ı" in text


def test_a_word_is_what_stands_between_spaces() -> None:
    assert words("赤い車 รถยนต์, Straße") == ["赤い車", "รถยนต์", "strasse"]


@pytest.mark.parametrize(
    "text", ["a Red_car-3", "赤いToyota車", "รถยนต์สีแดง", "Straße naïve", "गाड़ी की", "자동차"]
)
def test_the_index_of_a_file_cuts_texts_into_the_same_terms(text: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE words USING fts5(text,"
        " tokenize=\"unicode61 remove_diacritics 0 categories 'L* N* Co M*'\")"
    )
    connection.execute("INSERT INTO words VALUES (?)", (indexed(text),))
    connection.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab('words', 'instance')")
    rows = connection.execute('SELECT term FROM vocabulary ORDER BY "offset"').fetchall()
    assert [term for (term,) in rows] == terms(text)
    connection.close()
