"""Measured choices on disk: where they are kept, and their file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from sparse_core.files import replacing

__all__ = ["cache_folder", "device_name", "read_choices", "write_choices"]

Choice = TypeVar("Choice")


def cache_folder() -> Path:
    """``sparsight`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named) / "sparsight"
    try:
        return Path.home() / ".cache" / "sparsight"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / "sparsight"


@cache
def device_name(index: int) -> str:
    """Name of a GPU."""
    return torch.cuda.get_device_name(index)


def read_choices(path: Path, version: int, parse: Callable[[list], Choice]) -> dict[str, Choice]:
    """Choices by key; none from a file that is missing, damaged or of another version.

    Args:
        path: written by :func:`write_choices`.
        version: that the file must have.
        parse: an entry; may raise ``ValueError``, ``TypeError`` or ``OverflowError``.
    """
    # A damaged or foreign cache is measured again, never an error.
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["version"] != version:
            return {}
        return {key: parse(entry) for key, entry in stored["choices"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def write_choices(path: Path, version: int, entries: Mapping[str, Sequence[object]]) -> None:
    """Write choices as the file that is shipped or kept, one a line so that changes can be read."""
    lines = [f"  {json.dumps(key)}: {json.dumps(list(entry))}" for key, entry in sorted(entries.items())]
    text = f'{{"version": {version}, "choices": {{\n' + ",\n".join(lines) + "\n}}\n"
    with replacing(path, private=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
