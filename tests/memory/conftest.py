"""What tests of the memory share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory.index import calibration
from memory.index.kinds import KINDS, cuda_on, faiss_on


@pytest.fixture
def gpu_kinds_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds of index for a GPU take the same steps on the CPU."""
    # In plain torch they take long: fewer rows are asked for to measure them.
    monkeypatch.setattr(calibration, "QUERIES", 24)
    monkeypatch.setitem(KINDS, "cuda", replace(KINDS["cuda"], gpu=False, **cuda_on("cpu")))
    monkeypatch.setitem(KINDS, "faiss-gpu", replace(KINDS["faiss-gpu"], gpu=False, has="", **faiss_on("cpu")))
