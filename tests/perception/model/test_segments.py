"""Reductions of runs of rows: as numpy computes them, with the gradient of torch."""

from typing import Literal

import numpy as np
import pytest
import torch

from perception.model.segments import segment_reduce

COUNTS = torch.tensor([1, 9, 2, 5])


def rows() -> torch.Tensor:
    """With equal values in most segments, as after a ReLU."""
    return torch.randn(17, 3, generator=torch.Generator().manual_seed(0)).mul(2).round().clamp(min=0)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("reduce", "by_hand"), [("mean", np.mean), ("max", np.max)])
def test_values(reduce: Literal["mean", "max"], by_hand: object, training: bool) -> None:
    values = rows()
    parts = [by_hand(part.numpy(), axis=0) for part in values.split(COUNTS.tolist())]  # type: ignore[operator]
    with torch.set_grad_enabled(training):
        np.testing.assert_allclose(segment_reduce(values, COUNTS, reduce), np.array(parts), rtol=1e-5)
        assert segment_reduce(values[:0], COUNTS[:0], reduce).shape == (0, 3)


@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_gradient_is_that_of_torch(reduce: Literal["mean", "max"], device: torch.device) -> None:
    ours, theirs = (rows().to(device).requires_grad_() for _ in range(2))
    counts, weights = COUNTS.to(device), torch.arange(12.0, device=device).view(4, 3)
    (segment_reduce(ours, counts, reduce) * weights).sum().backward()
    expected = torch.segment_reduce(theirs, reduce, lengths=counts, axis=0)
    assert isinstance(expected, torch.Tensor)
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
