"""Tests of model surgery: shared modules, names, states."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sparse_core.attention.modules.linears import convert_linears
from sparse_core.common.surgery import (
    check_names,
    choose_layers,
    owners,
    replace_modules,
    shapes_of,
    share_weight,
    state_difference,
)


class Twice(nn.Module):
    """A module under two names, and a weight in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.again = self.first
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.first.weight
        self.alone = nn.Linear(8, 4)


def test_shared_modules_are_chosen_once() -> None:
    found = choose_layers(Twice(), (nn.Linear,))
    assert list(found.layers) == ["first", "alone"]
    assert found.skipped == {"tied": "tied: its weight is that of 'first'"}


def test_replacing_skips_tied_and_hooked_layers() -> None:
    model = Twice()
    found = choose_layers(model, (nn.Linear,), replacing=True)
    assert list(found.layers) == ["alone"]
    assert found.skipped["first"] == "tied: its weight is also that of 'tied'"
    model.alone.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match=r"^nothing. The model has .*alone: it has hooks"):
        choose_layers(model, (nn.Linear,), replacing=True, nothing="nothing")


def test_rules_give_reasons() -> None:
    found = choose_layers(Twice(), (nn.Linear,), rule=lambda name, _: "no" if name == "alone" else None)
    assert found.skipped["alone"] == "no"
    with pytest.raises(ValueError, match=r"and select='alone'. .*alone: never"):
        choose_layers(Twice(), (nn.Linear,), "alone", rule=lambda *_: "never")


def test_other_modules_name_their_matrices() -> None:
    model = nn.ModuleDict(
        {"words": nn.Embedding(3, 4), "cell": nn.GRUCell(4, 5, bias=False), "last": nn.Linear(5, 1)}
    )
    model["cell"].register_parameter("absent", None)
    model["deep"] = nn.RNN(4, 5, num_layers=2)
    model["deep"].register_parameter("more", nn.Parameter(torch.ones(1, 1)))
    assert choose_layers(model, (nn.Linear,)).skipped == {
        "words": "Embedding is not among Linear",
        "cell": "GRUCell is not among Linear; its matrices stay dense: weight_ih (15, 4), weight_hh (15, 5)",
        "deep": "RNN is not among Linear; its matrices stay dense: weight_ih_l0 (5, 4), weight_hh_l0 (5, 5),"
        " weight_ih_l1 (5, 5), weight_hh_l1 (5, 5) and 1 more",
    }


def test_a_parametrised_weight_belongs_to_its_layer() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    weight = model[0].weight
    torch.nn.utils.parametrize.register_parametrization(model[0], "weight", nn.Identity())
    (owner,) = owners(model)[id(weight)]
    assert (owner.name, owner.module, owner.key) == ("0", model[0], "original")
    assert list(choose_layers(model, (nn.Linear,), replacing=True).layers) == ["0"]


def test_modules_are_replaced_under_all_their_names() -> None:
    model, new = Twice(), nn.Identity()
    assert replace_modules(model, {model.first: new}) is model
    assert model.first is model.again is new
    assert replace_modules(model, {model: new}) is new


def test_a_shared_weight_is_one_tensor() -> None:
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    bias = second.bias
    share_weight(second, first)
    assert second.weight is first.weight
    assert second.bias is bias
    # A frozen weight is a buffer, which makes room for a parameter.
    frozen = nn.Linear(3, 2)
    del frozen.weight
    frozen.register_buffer("weight", torch.zeros(2, 3))
    share_weight(frozen, first)
    assert frozen.weight is first.weight
    assert [*frozen._buffers] == []


@pytest.mark.parametrize("kind", ["2:4", "2:4-training", "dense"])
def test_attention_layers_stay_tied(kind: str) -> None:
    model = Twice()
    convert_linears(model, kind)
    assert model.first is model.again
    name = "values" if kind == "2:4" else "weight"
    weights = [getattr(layer, name) for layer in (model.first, model.tied, model.alone)]
    assert weights[0] is weights[1]
    assert weights[0] is not weights[2]
    x = torch.randn(8, 8)
    with torch.no_grad():
        model.tied.bias.copy_(model.first.bias)
        assert torch.equal(model.first(x), model.tied(x))
    convert_linears(model, "dense")
    assert model.first.weight is model.tied.weight
    with pytest.raises(ValueError, match="cannot replace the model itself"):
        convert_linears(model.alone, "2:4")


def test_names_that_a_model_does_not_have() -> None:
    check_names(Twice(), {"again": 1, "": 2}, "masks")
    check_names(Twice(), None, "masks")
    with pytest.raises(ValueError, match=r"^masks names layers that the model does not have: third, 4$"):
        check_names(Twice(), {"third": 1, "first": 2, 4: 3}, "masks")


def test_states_that_differ() -> None:
    expected = shapes_of({"a": torch.zeros(2), "b": torch.zeros(3, 1), "extra state": None})
    assert expected == {"a": (2,), "b": (3, 1)}
    assert state_difference(expected, dict(expected)) is None
    assert state_difference(expected, {"a": (2,)}) == (
        "1 tensors missing (first: 'b'), 0 that the model does not have"
    )
    more = state_difference(expected, {**expected, "d": (1,), "c": (1,)}, owner="the base")
    assert more == "0 tensors missing, 2 that the base does not have (first: 'c')"
    unlike = state_difference(expected, {**expected, "b": (1, 3)})
    assert unlike == "tensor 'b' has shape (1, 3), the model has (3, 1)"
