"""Packed layers inside torch's Transformer encoder: padded positions are those of the dense encoder."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sparse_core.nm import prune, sparsify
from sparse_core.nm.layers.conversion import densify
from sparse_core.nm.layers.encoder import fill_padding

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")

WIDTH = 16
#: Rows of real tokens, filled up at the end; in front; and without any padding.
LENGTHS = torch.tensor([7, 3, 5])
AT_THE_END = torch.arange(7) >= LENGTHS[:, None]
IN_FRONT = AT_THE_END.flip(1)


def encoder(norm: Callable[[], nn.Module | None] = lambda: None, mask_check: bool = True) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
    made = nn.TransformerEncoder(layer, 2, norm=norm(), mask_check=mask_check).eval()
    prune(made, 2, 4)
    return made


def scaled_norm() -> nn.Module:
    norm = nn.LayerNorm(WIDTH)
    nn.init.normal_(norm.bias)
    return norm


def tokens() -> Tensor:
    return torch.randn(3, 7, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("norm", [lambda: None, scaled_norm], ids=["plain", "normed"])
@pytest.mark.parametrize("mask_check", [True, False])
def test_padded_positions_are_those_of_the_dense_encoder(
    norm: Callable[[], nn.Module | None], mask_check: bool
) -> None:
    """Over all that decides whether torch leaves padding out: the dense encoder is the oracle."""
    dense = encoder(norm, mask_check)
    packed = sparsify(dense, inplace=False).model
    floating = torch.zeros(3, 7).masked_fill(AT_THE_END, -torch.inf)
    paddings = [AT_THE_END, floating, None] + ([IN_FRONT] if mask_check else [])
    causal = torch.triu(torch.ones(7, 7, dtype=torch.bool), 1)
    filled = 0
    for padding, mask, grad, training in itertools.product(
        paddings, (None, causal), (False, True), (False, True)
    ):
        if padding is IN_FRONT and mask is causal:
            continue  # Its first rows attend to nothing.
        if padding is floating and mask is causal:
            continue  # torch warns of masks of two types.
        with torch.set_grad_enabled(grad):
            dense.train(training)
            packed.train(training)
            expected = dense(tokens(), mask, src_key_padding_mask=padding)
            found = packed(src=tokens(), mask=mask, src_key_padding_mask=padding)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        if padding is AT_THE_END and norm() is None:
            filled += bool((found[padding] == 0).all())
    assert filled == (1 if norm() is None else 0)


def test_a_sequence_of_padding_only_is_filled() -> None:
    dense = encoder()
    packed = sparsify(dense, inplace=False).model
    nothing = AT_THE_END.clone()
    nothing[1] = True
    with torch.no_grad():
        found = packed(tokens(), src_key_padding_mask=nothing)
        torch.testing.assert_close(found, dense(tokens(), src_key_padding_mask=nothing))
    assert not found[1].any()


def test_filling_follows_copies_and_ends_with_the_packed_layers() -> None:
    dense = encoder()
    packed = sparsify(copy.deepcopy(dense)).model
    sparsify(encoder(), select="linear1")
    again = copy.deepcopy(packed)
    with torch.no_grad():
        expected = dense(tokens(), src_key_padding_mask=AT_THE_END)
        torch.testing.assert_close(again(tokens(), src_key_padding_mask=AT_THE_END), expected)
    assert [*again._forward_hooks.values()] == [fill_padding]
    restored = densify(again)
    assert not restored._forward_hooks
    assert not restored._forward_hooks_with_kwargs
    assert restored.use_nested_tensor is True
    assert [*packed._forward_hooks.values()] == [fill_padding]
    with torch.no_grad():
        assert torch.equal(restored(tokens(), src_key_padding_mask=AT_THE_END), expected)


@pytest.mark.parametrize("score", ["wanda", "sparsegpt"])
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.filterwarnings("ignore:the calibration of")  # a small one is enough here
def test_padded_batches_calibrate_by_what_is_real(score: str, sequential: bool) -> None:
    """What stands at padded positions must not matter: torch leaves it out, and so do the statistics."""
    batch, noise = tokens(), tokens()
    noise[AT_THE_END] = 100 * torch.randn(int(AT_THE_END.sum()), WIDTH, generator=torch.Generator())
    pruned = []
    for source in (batch, noise):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, 2)
        batches = [{"src": source, "src_key_padding_mask": AT_THE_END}]
        report = prune(model, 2, 4, score=score, calibration=batches, sequential=sequential)
        assert {layer.name for layer in report.layers} == {
            f"layers.{number}.linear{part}" for number in (0, 1) for part in (1, 2)
        }
        pruned.append(model.state_dict())
    for name, value in pruned[0].items():
        assert torch.equal(value, pruned[1][name]), name
