"""Filters and queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Unpack

from memory.areas import Region
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
    short_repr,
)

Order = Literal["relevance", "recency", "distance"]
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Conditions on memories. All given conditions must hold; the empty filter matches everything.

    Attributes:
        text: words that label and caption must contain together, in any form with the same stem, at most
            ``MOST_WORDS`` distinct ones. Case and accents are ignored; there is no query syntax. Text without
            a letter or digit matches nothing.
        between_ns: first and last nanosecond, both included.
        labels, kinds, states: allowed values of each; an empty list matches nothing.
        map_id: the map.
        min_confidence: minimum confidence, 0 to 1.
        marked: True for marked memories only, False for the others only.
        moving: True for objects that moved when they were last observed, False for those that stood. Memories
            without a velocity match neither.
        box: x0, y0, x1, y1 in metres, edges included.
        circle: x, y and radius in metres, edge included.
        polygon: 3 to ``MOST_CORNERS`` corners (x, y) in metres, edges included; even-odd rule.
        area: name of an area of the store (:meth:`memory.store.MemoryStore.set_area`), which also fixes the
            map.
        region: part of the plane; the store replaces ``area`` by it.
    """

    text: str | None = None
    between_ns: tuple[int, int] | None = None
    labels: Sequence[str] | None = None
    kinds: Sequence[Kind] | None = None
    states: Sequence[State] | None = None
    map_id: str | None = None
    min_confidence: float = 0.0
    marked: bool | None = None
    moving: bool | None = None
    box: tuple[float, float, float, float] | None = None
    circle: tuple[float, float, float] | None = None
    polygon: Sequence[tuple[float, float]] | None = None
    area: str | None = None
    region: Region | None = None

    def __repr__(self) -> str:
        return short_repr(self)

    def __post_init__(self) -> None:
        if self.text is not None:
            check_words("text", self.text)
        if self.map_id is not None:
            check_text("map_id", self.map_id)
        if self.area is not None:
            check_text("area", self.area)
        if self.between_ns is not None:
            first, last = (check_integer("between_ns", value) for value in self.between_ns)
            if first > last:
                raise ValueError(
                    f"between_ns must be (first, last) with first <= last, got {first} and {last}"
                )
            object.__setattr__(self, "between_ns", (first, last))
        choices = {"labels": None, "kinds": KINDS, "states": STATES}
        for name, allowed in choices.items():
            found = getattr(self, name)
            if isinstance(found, str):
                raise TypeError(f"{name} must be a list of strings, got the string {found!r}")
            for entry in found or ():
                check_text(name, entry) if allowed is None else check_choice(name, entry, allowed)
        (least,) = check_numbers("min_confidence", (self.min_confidence,), 1)
        if not 0.0 <= least <= 1.0:
            raise ValueError(f"min_confidence must be from 0 to 1, got {least}")
        object.__setattr__(self, "min_confidence", least)
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
        """Bounding box x0, y0, x1, y1 in metres; ``None`` without a place; x0 > x1 if nothing can match."""
        boxes: list[tuple[float, float, float, float]] = []
        if self.box is not None:
            boxes.append(self.box)
        if self.circle is not None:
            x, y, radius = self.circle
            # Widen the box slightly, because squared distances round.
            wide = radius * (1.0 + 1e-9) + 1e-9 * max(abs(x), abs(y))
            boxes.append((x - wide, y - wide, x + wide, y + wide))
        if self.polygon is not None:
            xs, ys = zip(*self.polygon, strict=True)
            boxes.append((min(xs), min(ys), max(xs), max(ys)))
        if self.region is not None:
            boxes.append(self.region.bounds)
        if not boxes:
            return None
        x0, y0, x1, y1 = zip(*boxes, strict=True)
        return max(x0), max(y0), min(x1), min(y1)


#: Filter that matches all memories.
EVERYTHING = Filter()


class FilterParts(TypedDict, total=False):
    """Arguments of :class:`Filter` except ``text``, which belongs to the query."""

    between_ns: tuple[int, int] | None
    labels: Sequence[str] | None
    kinds: Sequence[Kind] | None
    states: Sequence[State] | None
    map_id: str | None
    min_confidence: float
    marked: bool | None
    moving: bool | None
    box: tuple[float, float, float, float] | None
    circle: tuple[float, float, float] | None
    polygon: Sequence[tuple[float, float]] | None
    area: str | None


@dataclass(frozen=True, kw_only=True, init=False)
class Query:
    """A search. All given conditions must hold.

    Arguments of :class:`Filter` may be given directly, as in ``Query(labels=["cup"], states=["gone"])``. They
    replace those of ``where``.

    Attributes:
        text: words or a sentence, at most ``MOST_WORDS`` distinct words, in any form with the same stem.
            Words such as *red mug* must all occur in label or caption. A sentence, with words such as *the*
            or *when* or with a date, ranks memories by relevance (:mod:`memory.search.relevance`). If nothing
            is found, misspelled words are corrected; ``Hit.reason`` reports it.
        embedding: (dim,) vector to compare with.
        like: id of a memory to compare with.
        encoder: encoder whose vectors are compared; ``"default"`` is :attr:`Memory.embedding`.
        near: x, y, z (or x, y) in metres; distances are measured from it.
        where: further conditions, with at most ``MOST_LABELS`` labels. An unknown label matches those that
            differ in case, ending or spelling; ``Hit.reason`` reports it.
        k: maximum number of hits.
        order: relevance, most recent first, or closest first. ``None`` means relevance for text and vectors,
            otherwise closest first with ``near``, otherwise most recent first.
        aggregate: also compute the attention weight of each hit, see :meth:`MemoryStore.context`.
    """

    text: str | None = None
    embedding: NDArray[np.float32] | None = field(default=None, compare=False)
    like: int | None = None
    encoder: str = "default"
    near: tuple[float, ...] | None = None
    where: Filter = EVERYTHING
    k: int = 10
    order: Order | None = None
    aggregate: bool = False

    def __init__(
        self, *, text: str | None = None, embedding: ArrayLike | None = None, like: int | None = None,
        encoder: str = "default", near: Sequence[float] | None = None, radius_m: float | None = None,
        where: Filter | None = None, k: int = 10, order: Order | None = None, aggregate: bool = False,
        **parts: Unpack[FilterParts],
    ) -> None:  # fmt: skip
        """Create a query. ``radius_m`` is a radius in metres around ``near``; ``parts`` go into ``where``.

        Raises:
            ValueError, TypeError: an argument is invalid.
        """
        unknown = sorted(parts.keys() - FilterParts.__annotations__.keys())
        if unknown:
            names = ", ".join(FilterParts.__annotations__)
            raise TypeError(f"Query has no argument {unknown[0]!r}. Filters are {names}")
        if check_integer("k", k) < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if embedding is not None and like is not None:
            raise ValueError("embedding and like exclude each other. Give one of them")
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
                raise ValueError("radius_m needs near: give the centre x, y")
            if not (math.isfinite(radius_m) and radius_m >= 0.0):
                raise ValueError(f"radius_m must be finite and not negative, got {radius_m}")
            if parts.get("circle") is not None:
                raise ValueError("radius_m and circle exclude each other. Give one of them")
            parts["circle"] = (near[0], near[1], radius_m)
        where = EVERYTHING if where is None else where
        where = replace(where, **parts) if parts else where
        for name in ("labels", "kinds", "states"):
            count = len(getattr(where, name) or ())
            if count > MOST_LABELS:
                raise ValueError(f"{name} may have at most {MOST_LABELS} entries, got {count}")
        vector = None if embedding is None else check_vector("embedding", embedding)
        # A frozen class refuses assignments.
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
        return short_repr(self)

    @property
    def _compares(self) -> bool:
        return self.text is not None or self.embedding is not None or self.like is not None

    @property
    def filter(self) -> Filter:
        """Return ``where`` combined with the text."""
        if self.text is None:
            return self.where
        also = "" if self.where.text is None else f" {self.where.text}"
        return replace(self.where, text=self.text + also)

    @property
    def ordered_by(self) -> Order:
        """Return ``order``, or the default order of the given parts."""
        if self.order is not None:
            return self.order
        if self._compares:
            return "relevance"
        return "recency" if self.near is None else "distance"
