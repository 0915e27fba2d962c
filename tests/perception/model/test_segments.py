"""Reductions of runs of rows: as numpy computes them, with the gradient of torch."""

from typing import Literal

import numpy as np
import pytest
import torch

from perception.model.segments import Chunks, repeat_rows, segment_reduce

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


@pytest.mark.parametrize("counts", [[], [0], [0, 3, 0, 1, 7, 0], [4, 5]])
def test_chunks_of_exported_programs(counts: list[int]) -> None:
    given = torch.tensor(counts, dtype=torch.int64)
    owner, within = repeat_rows(given)
    assert owner.tolist() == [row for row, count in enumerate(counts) for _ in range(count)]
    assert within.tolist() == [place for count in counts for place in range(count)]
    chunks = Chunks.of(given, 4)
    values = torch.rand(sum(counts), 3)
    parts = values.split(counts)
    highest = torch.stack(
        [part.amax(0) if len(part) else torch.zeros(3) for part in parts] or [values.new_zeros(3)]
    )
    assert torch.equal(chunks.maximum(values, given), highest[: len(counts)])
    if counts == [4, 5]:
        means = torch.stack([part.mean(0) for part in parts])
        torch.testing.assert_close(chunks.mean(values, given), means)
