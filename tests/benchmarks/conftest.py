"""What tests of benchmarks share."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    """A benchmark sets the number of threads for itself."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def load() -> Callable[[str], types.ModuleType]:
    """Import a module of the benchmarks, which are no installed package."""
    return lambda name: importlib.import_module(f"benchmarks.{name}")
