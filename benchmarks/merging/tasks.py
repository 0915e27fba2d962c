"""Pairs of tasks for which one small model is tuned twice, to be merged afterwards.

Handwritten digits of scikit-learn (halves of the classes; turned and inverted images), and texts that come
with Python (its reference manual; source code).
"""

from __future__ import annotations

import copy
import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from benchmarks.layers.pruning_models import Digits, accuracy, build, fit, load_split
from sparse_core.nm.training import warmup_cosine

State = Mapping[str, Tensor]
#: Score of a model on each part of the data that is asked for.
Scores = Callable[[nn.Module, str], dict[str, float]]
#: A part of the digits, or another way to see them.
View = Callable[[Digits], Digits]


@dataclass(frozen=True)
class Trained:
    """A base, the models tuned from it, and how they are judged.

    Attributes:
        base: trained a little on both tasks, or on something close to them.
        tuned: on the first and on the second task.
        joint: the base trained on both together, for as many steps as both tuned ones had.
        scores: of a model on both tasks, by name, on ``validation`` or ``test`` data.
        loss: of a model on the test data of both.
    """

    base: nn.Module
    tuned: tuple[nn.Module, nn.Module]
    joint: nn.Module
    scores: Scores
    loss: Callable[[nn.Module], float]


class Pair(NamedTuple):
    """Two tasks.

    Attributes:
        tasks: their names.
        unit: of the scores.
        larger_is_better: of the scores.
        train: from a seed; quickly where asked.
    """

    tasks: tuple[str, str]
    unit: str
    larger_is_better: bool
    train: Callable[[int, bool], Trained]


def _digits(
    seed: int, quick: bool, views: Mapping[str, View], *, base: Mapping[str, View], base_steps: int
) -> Trained:
    """Models of digits, seen in two ways; the base is trained on all that it sees in its own ways."""
    split = load_split(torch.device("cpu"))
    parts = {"validation": split.validation, "test": split.test}
    torch.manual_seed(seed)
    before = build("transformer")
    known = _together([view(split.training) for view in base.values()])
    fit(before, known, steps=20 if quick else base_steps, peak_rate=3e-3, seed=seed)
    seen = [view(split.training) for view in views.values()]
    models = []
    for index, digits in enumerate((*seen, _together(seen))):
        model = copy.deepcopy(before)
        # Both tasks together get the steps of both.
        steps = (20 if quick else 150) * (1 + index // 2)
        fit(model, digits, steps=steps, peak_rate=1e-3, seed=1000 + 3 * seed + index)
        models.append(model)

    def scores(model: nn.Module, part: str) -> dict[str, float]:
        return {name: accuracy(model, view(parts[part])) for name, view in views.items()}

    def loss(model: nn.Module) -> float:
        losses = []
        for view in views.values():
            digits = view(split.test)
            losses.append(float(nn.functional.cross_entropy(model(digits.images), digits.labels)))
        return sum(losses) / len(losses)

    return Trained(before, (models[0], models[1]), models[2], scores, loss)


def _together(digits: list[Digits]) -> Digits:
    return Digits(*(torch.cat(found) for found in zip(*digits, strict=True)))


def _upright(digits: Digits) -> Digits:
    return digits


def _turned(digits: Digits) -> Digits:
    return Digits(digits.images.rot90(1, (2, 3)), digits.labels)


def _inverted(digits: Digits) -> Digits:
    return Digits(1 - digits.images, digits.labels)


def _low(digits: Digits) -> Digits:
    return Digits(digits.images[digits.labels < 5], digits.labels[digits.labels < 5])


def _high(digits: Digits) -> Digits:
    return Digits(digits.images[digits.labels >= 5], digits.labels[digits.labels >= 5])


def _halves(seed: int, quick: bool) -> Trained:
    views = {"digits 0-4": _low, "digits 5-9": _high}
    return _digits(seed, quick, views, base={"all": _upright}, base_steps=300)


def _rough_halves(seed: int, quick: bool) -> Trained:
    views = {"digits 0-4": _low, "digits 5-9": _high}
    return _digits(seed, quick, views, base={"all": _upright}, base_steps=80)


def _views(seed: int, quick: bool) -> Trained:
    views = {"turned": _turned, "inverted": _inverted}
    return _digits(seed, quick, views, base={"upright": _upright, **views}, base_steps=400)


_CONTEXT, _VOCABULARY, _BATCH, _BLOCK = 16, 96, 256, 1000
_SOURCES = ("argparse", "doctest", "inspect", "tarfile", "typing")


class CharacterModel(nn.Module):
    """The next character from those before it, by a feed-forward network (Bengio et al. 2003).

    Args:
        width: of an embedded character.
        hidden: of both hidden layers.
    """

    def __init__(self, width: int = 24, hidden: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(_VOCABULARY, width)
        self.first = nn.Linear(_CONTEXT * width, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, _VOCABULARY)

    def forward(self, characters: Tensor) -> Tensor:
        """(N, 16) int64 to logits (N, 96)."""
        found = nn.functional.gelu(self.first(self.embed(characters).flatten(1)))
        return cast(Tensor, self.head(found + nn.functional.gelu(self.second(found))))


class Windows(NamedTuple):
    """Characters (N, 16) int64, and those that follow (N,)."""

    before: Tensor
    after: Tensor


def read_texts() -> dict[str, str]:
    """The topics of Python's manual, and the source of some of its modules."""
    topics = importlib.import_module("pydoc_data.topics").topics
    source = (inspect.getsource(importlib.import_module(name)) for name in _SOURCES)
    return {"manual": "\n".join(topics[name] for name in sorted(topics)), "code": "\n".join(source)}


def cut(text: str) -> dict[str, Windows]:
    """Windows of a text; of ten blocks of a thousand characters the ninth validates and the tenth tests."""
    # Ends of lines are zero, and with them the few characters beyond ASCII.
    codes = torch.tensor([ord(letter) - 31 if 32 <= ord(letter) < 127 else 0 for letter in text])
    windows = codes.unfold(0, _CONTEXT + 1, 1)
    block = (torch.arange(len(windows)) + _CONTEXT) // _BLOCK % 10
    start = torch.arange(len(windows)) // _BLOCK % 10
    chosen = {"training": (block < 8) & (start < 8), "validation": block == 8, "test": block == 9}
    made = {}
    for name, rule in chosen.items():
        # A window that reaches back into another part's block is left out.
        inside = windows[rule & (block == start)] if name != "training" else windows[rule]
        inside = inside if name == "training" else inside[::4]
        made[name] = Windows(inside[:, :-1], inside[:, -1])
    return made


def _fit_text(model: nn.Module, texts: list[Windows], steps: int, peak_rate: float, seed: int) -> None:
    """Train in place on batches that take the same number of windows from each text."""
    optimizer = torch.optim.AdamW(model.parameters(), peak_rate, weight_decay=1e-2)
    rate = warmup_cosine(optimizer, min(20, steps // 10), steps)
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(steps):
        size = _BATCH // len(texts)
        places = [torch.randint(len(text.after), (size,), generator=generator) for text in texts]
        before = torch.cat([text.before[place] for text, place in zip(texts, places, strict=True)])
        after = torch.cat([text.after[place] for text, place in zip(texts, places, strict=True)])
        loss = nn.functional.cross_entropy(model(before), after)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
    model.eval()


@torch.no_grad()
def bits(model: nn.Module, windows: Windows) -> float:
    """Bits a character."""
    model.eval()
    return float(nn.functional.cross_entropy(model(windows.before), windows.after)) / math.log(2)


def _texts(seed: int, quick: bool) -> Trained:
    texts = {name: cut(text) for name, text in read_texts().items()}
    training = [text["training"] for text in texts.values()]
    torch.manual_seed(seed)
    base = CharacterModel()
    _fit_text(base, training, 30 if quick else 600, 3e-3, seed)
    models = []
    for index, chosen in enumerate((training[:1], training[1:], training)):
        model = copy.deepcopy(base)
        steps = (30 if quick else 1500) * len(chosen)
        _fit_text(model, chosen, steps, 1e-3, 1000 + 3 * seed + index)
        models.append(model)

    def scores(model: nn.Module, part: str) -> dict[str, float]:
        return {name: bits(model, text[part]) for name, text in texts.items()}

    def loss(model: nn.Module) -> float:
        return sum(scores(model, "test").values()) * math.log(2) / len(texts)

    return Trained(base, (models[0], models[1]), models[2], scores, loss)


#: By name; the first two differ in how long the base was trained.
PAIRS = {
    "classes": Pair(("digits 0-4", "digits 5-9"), "accuracy, %", True, _halves),
    "classes, rough base": Pair(("digits 0-4", "digits 5-9"), "accuracy, %", True, _rough_halves),
    "views": Pair(("turned", "inverted"), "accuracy, %", True, _views),
    "texts": Pair(("manual", "code"), "bits a character", False, _texts),
}
