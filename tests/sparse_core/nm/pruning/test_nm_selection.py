"""Which layers a pattern applies to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.utils.prune
from torch import nn
from torch.nn.utils import parametrize

from sparse_core.common.surgery import is_parametrised, weight_parameter
from sparse_core.nm.pattern import Block, NMPattern
from sparse_core.nm.pruning import prune
from sparse_core.nm.pruning.allocation import allocate
from sparse_core.nm.pruning.selection import selected_layers


class Net(nn.Module):
    """Layers of all kinds, one of them under two names and two with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.first = nn.Linear(8, 6)
        self.again = self.first
        self.odd = nn.Linear(6, 8)
        self.conv = nn.Conv2d(4, 4, 3)
        self.small_conv = nn.Conv2d(3, 4, 3)
        self.shared = nn.Linear(8, 6)
        self.shared.weight = self.first.weight
        self.head = nn.Linear(8, 10)
        self.head.weight = self.embed.weight
        self.norm = nn.LayerNorm(8)


class Doubled(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 2 * weight


def test_layers_and_reasons() -> None:
    found = selected_layers(Net(), NMPattern(2, 4))
    assert list(found.layers) == ["first", "conv"]
    assert found.skipped == {
        "embed": "Embedding is not among Linear, Conv2d",
        "odd": "its input dimension 6 is not divisible by m=4",
        "small_conv": "its input dimension 27 is not divisible by m=4",
        "shared": "tied: its weight is that of 'first'",
        "head": "tied: its weight is also that of 'embed' (Embedding)",
    }


def test_blocks_take_any_width() -> None:
    assert list(selected_layers(Net(), Block(8, 0.5)).layers) == ["first", "odd", "conv", "small_conv"]


def test_select_by_name_function_and_type() -> None:
    model = Net()
    assert list(selected_layers(model, NMPattern(2, 4), "^fir").layers) == ["first"]
    by_module = selected_layers(model, NMPattern(2, 4), lambda name, module: isinstance(module, nn.Conv2d))
    assert list(by_module.layers) == ["conv"]
    assert by_module.skipped["first"] == "not selected"
    by_type = selected_layers(model, NMPattern(2, 4), types=(nn.Linear,))
    assert list(by_type.layers) == ["first"]
    assert by_type.skipped["conv"] == "Conv2d is not among Linear"


def test_the_model_itself_is_a_layer() -> None:
    layer = nn.Linear(8, 2)
    assert selected_layers(layer, NMPattern(2, 4)).layers == {"": layer}


def test_pattern_for_each_layer() -> None:
    found = selected_layers(Net(), {"first": NMPattern(1, 8), "conv": None, "odd": NMPattern(1, 2)})
    assert list(found.layers) == ["first", "odd"]
    assert found.skipped["conv"] == "the pattern leaves it dense"
    assert found.skipped["small_conv"] == "the pattern leaves it dense"


def test_parametrised_weight_counts_once_and_ties_are_seen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    original = model[0].weight
    parametrize.register_parametrization(model[0], "weight", Doubled())
    assert is_parametrised(model[0])
    assert not is_parametrised(model[1])
    assert weight_parameter(model[0]) is original
    assert weight_parameter(model[1]) is model[1].weight
    assert list(selected_layers(model, NMPattern(2, 4)).layers) == ["0", "1"]


def test_weights_computed_from_several_tensors_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Conv2d(4, 4, 1), nn.Linear(4, 4))
    nn.utils.parametrizations.weight_norm(model[0])
    nn.utils.parametrizations.weight_norm(model[1])
    found = selected_layers(model, NMPattern(2, 4))
    assert list(found.layers) == ["2"]
    assert list(found.skipped) == ["0", "1"]
    assert found.skipped["0"].startswith("its weight is computed from several tensors (WeightNorm)")
    with pytest.raises(ValueError, match="Linear has no weight parameter: its weight is computed from"):
        weight_parameter(model[0])
    parametrize.remove_parametrizations(model[0], "weight")
    assert list(selected_layers(model, NMPattern(2, 4)).layers) == ["0", "2"]


def old_weight_norm(layer: nn.Module) -> None:
    with pytest.warns(FutureWarning, match="weight_norm"):
        torch.nn.utils.weight_norm(layer)


def zeroed_half(layer: nn.Module) -> None:
    torch.nn.utils.prune.l1_unstructured(layer, "weight", 0.5)


@pytest.mark.parametrize("change", [old_weight_norm, torch.nn.utils.spectral_norm, zeroed_half])
def test_weights_computed_by_a_hook_are_left_out(change: Callable[[nn.Module], object]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    change(model[0])
    found = selected_layers(model, NMPattern(2, 4))
    assert list(found.layers) == ["1"]
    assert found.skipped["0"].startswith("a hook computes its weight")
    with pytest.raises(ValueError, match=r"no layer matches 2:4\. .*a hook computes"):
        selected_layers(model[:1], NMPattern(2, 4))
    # What is built on the selection leaves it out as well.
    report = prune(model, 2, 4)
    assert list(report.masks) == ["1"]
    assert report.skipped == found.skipped
    assert allocate(model, 0.5).skipped == found.skipped


def test_lazy_and_empty_layers_are_left_out() -> None:
    with pytest.warns(UserWarning, match="zero-element"):
        model = nn.Sequential(nn.LazyLinear(4), nn.Linear(0, 4), nn.Linear(4, 4))
    found = selected_layers(model, NMPattern(2, 4))
    assert list(found.layers) == ["2"]
    assert found.skipped["0"] == "its weight has no shape yet: run the model once"
    assert found.skipped["1"] == "its weight of shape (4, 0) is empty"


def test_integer_weights_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].weight = nn.Parameter(torch.ones(4, 4, dtype=torch.int8), requires_grad=False)
    assert selected_layers(model, NMPattern(2, 4)).skipped["0"] == "its weight has type torch.int8"


def test_nothing_matches_says_what_exists() -> None:
    with pytest.raises(ValueError, match=r"no layer matches 2:4: the model has no Linear, Conv2d"):
        selected_layers(nn.ReLU(), NMPattern(2, 4))
    with pytest.raises(ValueError, match=r"no layer matches 2:4 and select='zzz'.*first: not selected"):
        selected_layers(Net(), NMPattern(2, 4), "zzz")
    with pytest.raises(ValueError, match=r"0: its input dimension 6 is not divisible by m=4; .*and 2 more"):
        selected_layers(nn.Sequential(*[nn.Linear(6, 6) for _ in range(10)]), NMPattern(2, 4))


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        selected_layers(Net(), NMPattern(2, 4), "(")
    with pytest.raises(TypeError, match="select must be"):
        selected_layers(Net(), NMPattern(2, 4), 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pattern must be"):
        selected_layers(Net(), "2:4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not have: nowhere"):
        selected_layers(Net(), {"nowhere": NMPattern(2, 4), "first": NMPattern(2, 4)})
