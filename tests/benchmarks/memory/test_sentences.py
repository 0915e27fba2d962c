"""The benchmark of sentences: on a talk made here."""

from __future__ import annotations

import importlib
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

THINGS = ("ladder", "kettle", "garden", "violin", "bridge", "candle")


@pytest.fixture
def sentences() -> Any:
    return importlib.import_module("benchmarks.memory.sentences")


class Letters:
    """Vectors by the words that a text has: no package, but alike where texts are."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        found = np.full((len(texts), 384), 1e-3, np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                found[row, zlib.crc32(word.encode()) % 384] += 1.0
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def talk(folder: Path) -> Path:
    """Two conversations: one asks about a thing, and the other says what became of it."""
    turns, questions = [], []
    for number, name in ((0, "conv-26"), (1, "conv-9")):
        for at, thing in enumerate(THINGS[number::2]):
            when = f"2023-0{at + 1}-0{number + 1}T10:00:00+00:00"
            said = f"Ann: and the {thing} of my aunt?", f"Bob: my aunt bought it, it was {at} metres long"
            ids = [f"{name}:D{at}:{turn}" for turn in (1, 2)]
            turns += [
                {"id": id, "content": text, "created_at": when} for id, text in zip(ids, said, strict=True)
            ]
            questions.append({
                "id": f"{name}_q{at}", "category": "single_hop", "query": f"Did the aunt buy the {thing}?",
                "relevant": [{"corpus_item_id": id} for id in ids],
            })  # fmt: skip
    for file, rows in (("turns.jsonl", turns), ("queries.jsonl", questions)):
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


@pytest.mark.parametrize("known", [True, False])
def test_questions_find_what_was_said(
    sentences: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    def missing() -> None:
        raise ImportError("no such package")

    monkeypatch.setattr(sentences, "TextEncoder", Letters if known else missing)
    monkeypatch.setattr(sentences, "K", 2)
    out = tmp_path / "out.json"
    arguments = ["--conversations", str(talk(tmp_path)), "--memories", "40", "--out", str(out)]
    assert sentences.main([*arguments, "--threads", "1"]) == 0
    values = json.loads(out.read_text())
    sides = {side["name"]: side for side in values["sides"]}
    assert len(sides) == (15 if known else 12)
    assert any("no vectors" in note for note in values["notes"]) != known
    alone = sides["the store, `text=` alone"]
    assert alone["all"]["questions"] == 6
    # The reply has another form of one word of the question only, which every reply has.
    without = sides["and dates, misspellings: the store without sessions and cues"]
    assert alone["all"]["recall"] == 1.0 > without["all"]["recall"]
    assert alone["sessions"] == {"5": 1.0, "10": 1.0}
    for name in ("turns added in random order", "times of sessions only, random order"):
        assert sides[f"`text=` alone, {name}"]["all"]["recall"] == 1.0
    validated = sides["`text=` alone, cross-validated over conversations"]
    assert set(validated["constants"]) == {"conv-26", "conv-9"}
    assert {"`text=`", "`text=`, 40 memories"} <= set(values["times"])


def test_constants_are_chosen_by_the_other_conversations(sentences: Any, tmp_path: Path) -> None:
    """The only constants that answer about one conversation count for the other one."""
    spoken = sentences.read(talk(tmp_path))

    class Answers:
        def find(self, place: int) -> list[str]:
            question = spoken.questions[place]
            right = question["id"].startswith("conv-26") == (relevance.IN_SESSION == 0.5)
            return [entry["corpus_item_id"] for entry in question["relevant"]] if right else []

    relevance = importlib.import_module("memory.search.relevance")
    usual = relevance.IN_SESSION
    side = sentences.cross_validated(Answers(), spoken, [{"IN_SESSION": 0.5}, {"IN_SESSION": 0.1}])
    assert side["constants"] == {"conv-26": {"IN_SESSION": 0.1}, "conv-9": {"IN_SESSION": 0.5}}
    assert side["all"]["recall"] == 0.0
    assert usual == relevance.IN_SESSION


def test_the_bm25_of_the_benchmark_is_that_of_its_formula(sentences: Any) -> None:
    texts = [["a", "b"], ["a"], ["b", "b", "c", "d"]]
    assert sentences.Bm25(texts).best(["b"]) == [2, 0, 1]
    assert sentences.Bm25(texts, k1=0.0, b=0.0).best(["b", "d"])[0] == 2
    assert sentences.Bm25([]).best(["b"]) == []
