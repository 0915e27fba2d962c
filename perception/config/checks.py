"""Checks for all sections of the configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from perception.class_names import check_known
from perception.errors import ConfigError


def check(condition: bool, field_name: str, expected: str, value: object) -> None:
    """Raise a ``ConfigError`` that names the field unless the condition holds."""
    if not condition:
        raise ConfigError(f"{field_name} must be {expected}, got {value!r}")


def check_classes(field_name: str, names: Iterable[str], classes: Sequence[str]) -> None:
    """Raise a ``ConfigError`` that names the field unless all names are known classes."""
    try:
        check_known(names, classes)
    except ValueError as error:
        raise ConfigError(f"{field_name}: {error}") from None


def finite_pair(field_name: str, value: tuple[float, ...]) -> tuple[float, float]:
    """Return two finite numbers, or raise a ``ConfigError`` that names the field."""
    check(len(value) == 2 and all(map(math.isfinite, value)), field_name, "two finite numbers", value)
    return value[0], value[1]
