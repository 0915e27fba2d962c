"""Functions of other packages, found by entry points: ``perception`` does not import ``memory``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any


def installed(group: str, what: str) -> Any:
    """Load the first entry point of a group, by name.

    Args:
        group: name of the group.
        what: noun for the error.

    Raises:
        ImportError: nothing is installed for the group.
    """
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    if not found:
        raise ImportError(
            f"no {what} is installed (entry point group {group!r}). Reinstall it: pip install sparsight"
        )
    return found[0].load()


@contextmanager
def as_value_error(name: str) -> Iterator[None]:
    """Convert the errors of the other package, which are unknown here, to ``ValueError`` with a name."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{name}: {error}") from error
