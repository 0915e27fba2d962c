"""A value of a description, and how it was found."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

#: ``"measured"``: the data show it; ``"likely"``: they speak for it; ``"assumed"``: they cannot tell.
Surety = Literal["measured", "likely", "assumed"]


class Evidence(NamedTuple):
    """One thing that was found out.

    Attributes:
        field: what of, by its dotted name in ``dataset.yaml``.
        value: as written there.
        how: how it was found, in words.
        sure: how sure that is.
    """

    field: str
    value: Any
    how: str
    sure: Surety
