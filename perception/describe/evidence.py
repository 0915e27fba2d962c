"""Values of a description, with their origin."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

#: Certainty: the data show it (measured), support it (likely), or do not tell (assumed).
Surety = Literal["measured", "likely", "assumed"]


class Evidence(NamedTuple):
    """The value of a field, with its origin.

    Attributes:
        field: dotted name in ``dataset.yaml``.
        value: value in ``dataset.yaml``.
        how: origin of the value, as text.
        sure: certainty.
    """

    field: str
    value: Any
    how: str
    sure: Surety
