"""What is asked: which memories pass, and in which order they answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Unpack

from memory.types import (
    KINDS,
    MOST_LABELS,
    STATES,
    Kind,
    State,
    check_choice,
    check_integer,
    check_numbers,
    check_polygon,
    check_text,
    check_vector,
    check_words,
    told,
)

Order = Literal["relevance", "recency", "distance"]
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Every part that is given must hold; the empty filter matches everything.

    Attributes:
        text: words that label and caption together must all have, in any form with their stem, at most
            ``MOST_WORDS`` different ones; case and accents do not matter. Nothing in it is syntax. Text
            without a letter or digit matches nothing.
        between_ns: first and last nanosecond, both included.
        labels, kinds, states: any of them; an empty list matches nothing. States are ``present``, ``moved``,
            ``gone`` and ``unknown``: whether a thing is believed to be there still.
        map_id: the map, exactly.
        min_confidence: least confidence.
        marked: only marked ones, or only others.
        box: x0, y0, x1, y1 in metres, edges included.
        circle: x, y and radius in metres, the rim included.
        polygon: corners (x, y) in metres, from three to ``MOST_CORNERS``, edges included; even-odd where it
            crosses itself.
    """

    text: str | None = None
    between_ns: tuple[int, int] | None = None
    labels: Sequence[str] | None = None
    kinds: Sequence[Kind] | None = None
    states: Sequence[State] | None = None
    map_id: str | None = None
    min_confidence: float = 0.0
    marked: bool | None = None
    box: tuple[float, float, float, float] | None = None
    circle: tuple[float, float, float] | None = None
    polygon: Sequence[tuple[float, float]] | None = None

    def __repr__(self) -> str:
        """What is set."""
        return told(self)

    def __post_init__(self) -> None:
        """Raise ``ValueError`` or ``TypeError``, naming the part that is wrong."""
        if self.text is not None:
            check_words("text", self.text)
        if self.map_id is not None:
            check_text("map_id", self.map_id)
        if self.between_ns is not None:
            first, last = (check_integer("between_ns", value) for value in self.between_ns)
            if first > last:
                raise ValueError(f"between_ns must rise, got {first} and {last}")
            object.__setattr__(self, "between_ns", (first, last))
        choices = {"labels": None, "kinds": KINDS, "states": STATES}
        for name, allowed in choices.items():
            found = getattr(self, name)
            if isinstance(found, str):
                raise TypeError(f"{name} must be a list of strings, got the string {found!r}")
            for entry in found or ():
                check_text(name, entry) if allowed is None else check_choice(name, entry, allowed)
        object.__setattr__(
            self, "min_confidence", check_numbers("min_confidence", (self.min_confidence,), 1)[0]
        )
        if self.box is not None:
            box = check_numbers("box", self.box, 4)
            if box[0] > box[2] or box[1] > box[3]:
                raise ValueError(f"box must be x0, y0, x1, y1 with x0 <= x1 and y0 <= y1, got {box}")
            object.__setattr__(self, "box", box)
        if self.circle is not None:
            circle = check_numbers("circle", self.circle, 3)
            if circle[2] < 0.0:
                raise ValueError(f"the radius of circle must not be negative, got {circle[2]}")
            object.__setattr__(self, "circle", circle)
        if self.polygon is not None:
            object.__setattr__(self, "polygon", check_polygon(self.polygon))

    @property
    def bounds(self) -> tuple[float, float, float, float] | None:
        """x0, y0, x1, y1 around everything that matches; ``None`` without a place. x0 > x1: nothing does."""
        boxes: list[tuple[float, float, float, float]] = []
        if self.box is not None:
            boxes.append(self.box)
        if self.circle is not None:
            x, y, radius = self.circle
            # A little wider: the rim is judged by squares, which round.
            wide = radius * (1.0 + 1e-9) + 1e-9 * max(abs(x), abs(y))
            boxes.append((x - wide, y - wide, x + wide, y + wide))
        if self.polygon is not None:
            xs, ys = zip(*self.polygon, strict=True)
            boxes.append((min(xs), min(ys), max(xs), max(ys)))
        if not boxes:
            return None
        x0, y0, x1, y1 = zip(*boxes, strict=True)
        return max(x0), max(y0), min(x1), min(y1)


class FilterParts(TypedDict, total=False):
    """Parts of a filter by name, see :class:`Filter`; words apart, which a query compares."""

    between_ns: tuple[int, int] | None
    labels: Sequence[str] | None
    kinds: Sequence[Kind] | None
    states: Sequence[State] | None
    map_id: str | None
    min_confidence: float
    marked: bool | None
    box: tuple[float, float, float, float] | None
    circle: tuple[float, float, float] | None
    polygon: Sequence[tuple[float, float]] | None


@dataclass(frozen=True, kw_only=True, init=False)
class Query:
    """What is asked for: every part that is given must hold.

    Parts of a filter may be given as they are, ``Query(labels=["cup"], states=["gone"])``: they are put into
    ``where``, in place of what it has.

    Attributes:
        text: what label or caption should say, at most ``MOST_WORDS`` different words, in any form with their
            stem: cars finds car. Mere words, *red mug*, must all be there. A sentence or question, with words
            such as *the* or *when* or with a date, orders memories by how well they fit it, see
            :mod:`memory.search.relevance`; beside a vector by both. A word that no memory has stands for one
            that differs by a slip or two where nothing is found without; ``Hit.reason`` says so.
        embedding: (dim,) vector that hits should be similar to.
        like: id of a memory to which hits should be similar.
        encoder: which of the vectors is compared; ``"default"`` is :attr:`Memory.embedding`.
        near: x, y, z (or x, y) in metres, which ``"distance"`` is from.
        where: what else must hold, with at most ``MOST_LABELS`` labels. A label that no memory has stands for
            those that it is but for case, ending or a slip; ``Hit.reason`` says so.
        k: most hits.
        order: by relevance, the most recent first, or the closest first; ``None``: relevance where words or
            vectors are compared, else the closest first where ``near`` is given, else the most recent first.
        aggregate: also give each hit its weight in the attention of :meth:`MemoryStore.context`.
    """

    text: str | None = None
    embedding: NDArray[np.float32] | None = field(default=None, compare=False)
    like: int | None = None
    encoder: str = "default"
    near: tuple[float, ...] | None = None
    where: Filter = field(default_factory=Filter)
    k: int = 10
    order: Order | None = None
    aggregate: bool = False

    def __init__(
        self, *, text: str | None = None, embedding: ArrayLike | None = None, like: int | None = None,
        encoder: str = "default", near: Sequence[float] | None = None, radius_m: float | None = None,
        where: Filter | None = None, k: int = 10, order: Order | None = None, aggregate: bool = False,
        **parts: Unpack[FilterParts],
    ) -> None:  # fmt: skip
        """Check everything, and put the parts of a filter into ``where``.

        Args:
            text, embedding, like, encoder, near, where, k, order, aggregate: see the class.
            radius_m: metres in the plane around ``near``: the circle of ``where``.
            parts: of ``where``.

        Raises:
            ValueError, TypeError: names the field that is wrong.
        """
        if check_integer("k", k) < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if embedding is not None and like is not None:
            raise ValueError("give embedding or like, not both")
        if text is not None:
            check_words("text", text)
        check_text("encoder", encoder)
        if like is not None:
            check_integer("like", like)
        if near is not None:
            if len(near) not in (2, 3):
                raise ValueError(f"near must have two or three numbers, got {len(near)}")
            near = check_numbers("near", near, len(near))
        if radius_m is not None:
            if near is None:
                raise ValueError("radius_m needs near")
            if not (math.isfinite(radius_m) and radius_m >= 0.0):
                raise ValueError(f"radius_m must be finite and not negative, got {radius_m}")
            if parts.get("circle") is not None:
                raise ValueError("give radius_m or circle, not both")
            parts["circle"] = (near[0], near[1], radius_m)
        where = Filter(**parts) if where is None else replace(where, **parts) if parts else where
        for name in ("labels", "kinds", "states"):
            count = len(getattr(where, name) or ())
            if count > MOST_LABELS:
                raise ValueError(f"{name} must be at most {MOST_LABELS}, got {count}")
        vector = None if embedding is None else check_vector("embedding", embedding)
        # Not by assignment, which a frozen class refuses.
        vars(self).update(
            text=text, embedding=vector, like=like, encoder=encoder, near=near, where=where, k=k, order=order,
            aggregate=aggregate,
        )  # fmt: skip
        if order is not None:
            check_choice("order", order, ORDERS)
        if order == "distance" and near is None:
            raise ValueError("order='distance' needs near")
        if order == "relevance" and not self._compares:
            raise ValueError("order='relevance' needs text, embedding or like")

    def __repr__(self) -> str:
        """What is set, without the numbers of vectors."""
        return told(self)

    @property
    def _compares(self) -> bool:
        return self.text is not None or self.embedding is not None or self.like is not None

    @property
    def filter(self) -> Filter:
        """All that must hold: ``where``, with the words."""
        if self.text is None:
            return self.where
        also = "" if self.where.text is None else f" {self.where.text}"
        return replace(self.where, text=self.text + also)

    @property
    def ordered_by(self) -> Order:
        """The order that was asked for, or what follows from the parts that are given."""
        if self.order is not None:
            return self.order
        if self._compares:
            return "relevance"
        return "recency" if self.near is None else "distance"
