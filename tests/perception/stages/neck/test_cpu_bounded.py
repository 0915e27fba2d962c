"""Cells near others on a CPU: what C++ lists is what arrays list."""

from __future__ import annotations

import pytest
import torch
from background_library import same, with_and_without
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from perception.stages.neck.cpu_bounded import dilated_cells, padded_rows
from sparse_core.conv.convolution.cpu import compiled
from sparse_core.kernels import native


@pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")
@settings(max_examples=60)
@given(
    shape=st.tuples(st.integers(1, 25), st.integers(1, 25)),
    frames=st.integers(1, 3),
    share=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    empty_count=st.integers(1, 9),
    seed=st.integers(0, 999),
)
def test_cells_near_others_and_their_rows(
    shape: tuple[int, int], frames: int, share: float, empty_count: int, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    near = torch.rand((frames, *shape), generator=random) < share
    empty = torch.randint(0, empty_count, shape, generator=random, dtype=torch.int32)

    def planned() -> list[Tensor]:
        wider, cells = dilated_cells(near)
        return [wider, cells, padded_rows(cells, empty, empty_count, frames)]

    assert same(*with_and_without(compiled.PLANNING, planned))
