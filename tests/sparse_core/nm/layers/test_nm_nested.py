"""Packed layers on nested tensors: part by part what they make of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sparse_core.nm import Block, NMPattern, prune, sparsify

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")

LAYERS: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "n:m": lambda linear: sparsify(linear).model,
    "int8": lambda linear: sparsify(linear, quantise=True).model,
    "blocks": lambda linear: sparsify(linear, Block(8, 0.5)).model,
}


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
@pytest.mark.parametrize("kind", LAYERS)
def test_parts_of_a_nested_tensor(kind: str, layout: torch.layout) -> None:
    torch.manual_seed(0)
    layer = LAYERS[kind](nn.Linear(16, 24))
    parts = [torch.randn(rows, 16) for rows in (3, 1, 5)]
    found = layer(torch.nested.as_nested_tensor(parts, layout=layout))
    assert found.is_nested
    assert found.layout == layout
    # Scales of int8 inputs are those of all rows together.
    expected = layer(torch.cat(parts)).split([3, 1, 5])
    for part, plain in zip(found.unbind(), expected, strict=True):
        assert torch.equal(part, plain)


def test_gradients_pass_through_nested_tensors() -> None:
    torch.manual_seed(0)
    layer = LAYERS["n:m"](nn.Linear(16, 24))
    parts = [torch.randn(rows, 16, requires_grad=True) for rows in (3, 5)]

    def gradients(found: list[Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(sum(part.square().sum() for part in found), [*parts, layer.values])

    nested = gradients(list(layer(torch.nested.as_nested_tensor(parts)).unbind()))
    for one, plain in zip(nested, gradients([layer(part) for part in parts]), strict=True):
        torch.testing.assert_close(one, plain)


def test_encoders_take_nested_tensors_as_dense_ones_do() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    prune(encoder, NMPattern(2, 4))
    x = torch.nested.nested_tensor([torch.randn(4, 16), torch.randn(6, 16)])
    with torch.no_grad():
        expected = encoder(x)
        found = sparsify(encoder).model(x)
    for part, plain in zip(found.unbind(), expected.unbind(), strict=True):
        torch.testing.assert_close(part, plain)
