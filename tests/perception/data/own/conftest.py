"""Folders of one's own data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from own_scene import describe_folder


@pytest.fixture
def describe(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder of two labelled scans, and describes it."""
    return partial(describe_folder, tmp_path)
