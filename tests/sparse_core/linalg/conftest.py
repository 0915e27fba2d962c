from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _one_thread(one_thread: None) -> None:
    """See ``one_thread``."""
