"""One way to call a model with a batch, and its mode afterwards."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from sparse_core.nm.forward_pass import call_model, evaluation_mode


class Difference(nn.Module):
    def forward(self, a: Tensor, b: Tensor | None = None) -> Tensor:
        return a if b is None else a - b


def test_every_form_of_a_batch() -> None:
    model, a, b = Difference(), torch.tensor([3.0]), torch.tensor([1.0])
    assert float(call_model(model, a)) == 3
    assert float(call_model(model, (a, b))) == 2
    assert float(call_model(model, [b, a])) == -2
    assert float(call_model(model, {"b": a, "a": b})) == -2
    assert float(call_model(model, OrderedDict(a=a, b=b))) == 2


def test_each_module_gets_its_mode_back() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.Dropout()))
    model[1].eval()
    model[1][1].train()
    before = [module.training for module in model.modules()]
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before
    with pytest.raises(KeyError), evaluation_mode(model):
        raise KeyError
    assert [module.training for module in model.modules()] == before == [True, True, False, False, True]
