"""Whole models: what is converted, what is left and why, and the way back."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sparse_core.nm.layers.block_linear import BlockSparseLinear
from sparse_core.nm.layers.conversion import densify, packed_layers, sparsify
from sparse_core.nm.layers.int8_linear import SparseLinearInt8
from sparse_core.nm.layers.sparse_linear import SparseLinear
from sparse_core.nm.masks import block_mask, nm_mask
from sparse_core.nm.pattern import Block, NMPattern
from sparse_core.nm.pruning.calibration import collect_inputs


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Net(nn.Module):
    """A convolution, three Linear layers of which one has an odd width, and an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 15))
        self.head = nn.Linear(15, 3)

    def forward(self, index: Tensor) -> Tensor:
        x = self.conv(self.embed(index)[:, None, None]).mean(dim=(1, 2))
        return self.head(torch.relu(self.body(x)))


def masked(model: nn.Module, patterns: dict[str, NMPattern | Block]) -> nn.Module:
    """The oracle: a copy with small weights (blocks) of the named layers set to zero."""
    pruned = copy.deepcopy(model)
    with torch.no_grad():
        for name, pattern in patterns.items():
            weight = pruned.get_submodule(name).weight
            kept = block_mask(weight, pattern) if isinstance(pattern, Block) else None
            weight.mul_(nm_mask(weight, pattern.n, pattern.m) if kept is None else kept)
    return pruned


INDEX = torch.arange(10).reshape(5, 2)[:, 0]


def test_report_lists_every_layer_with_a_reason() -> None:
    model = Net()
    oracle = masked(model, {"body.0": NMPattern(), "body.2": NMPattern()})
    before = {
        name: layer.weight.detach().clone() for name, layer in model.body.named_children() if name != "1"
    }
    report = sparsify(model)
    assert report.model is model
    assert [layer.name for layer in report.converted] == ["body.0", "body.2"]
    reasons = {layer.name: (layer.kind, layer.reason) for layer in report.skipped}
    assert reasons["conv"] == ("Conv2d", "masked only: no packed convolution")
    assert reasons["embed"][0] == "Embedding"
    assert "15 is not divisible by m=4" in reasons["head"][1]
    assert set(reasons) == {"conv", "embed", "head"}
    first = report.converted[0]
    assert (first.shape, first.kind, first.pattern) == ((32, 16), "SparseLinear", NMPattern())
    assert first.bytes_before == 32 * 16 * 4
    assert first.bytes_after == 32 * 8 * 4 + 32 * 2
    kept = before["0"].abs()[nm_mask(before["0"], 2, 4)].sum() / before["0"].abs().sum()
    assert first.kept_magnitude == pytest.approx(float(kept))
    torch.testing.assert_close(model(INDEX), oracle(INDEX))
    text = str(report)
    for word in ("body.0", "32x16", "2:4", "total", "Conv2d", "left out", f"{first.kept_magnitude:.2%}"):
        assert word in text
    found = json.loads(json.dumps(report.to_json()))
    assert found["bytes_after"] == report.bytes_after == sum(layer.bytes_after for layer in report.converted)
    assert found["converted"][1]["shape"] == [15, 32]


def test_densify_gives_exactly_the_masked_weights() -> None:
    model = Net()
    oracle = masked(model, {"body.0": NMPattern(1, 4)})
    sparsify(model, NMPattern(1, 4), select=r"body\.0")
    back = densify(model)
    assert back is model
    assert {name: type(part) for name, part in model.named_modules()} == {
        name: type(part) for name, part in oracle.named_modules()
    }
    for name, value in oracle.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    assert torch.equal(model(INDEX), oracle(INDEX))
    with pytest.raises(ValueError, match="no packed layer"):
        densify(model)


def test_a_copy_leaves_the_model_alone() -> None:
    model = Net()
    report = sparsify(model, inplace=False, keep_dense=True)
    assert packed_layers(model) == {}
    assert list(packed_layers(report.model)) == ["body.0", "body.2"]
    assert report.model.body[0].keep_dense is True
    dense = densify(report.model, inplace=False)
    assert list(packed_layers(report.model)) == ["body.0", "body.2"]
    torch.testing.assert_close(dense(INDEX), report.model(INDEX))


def test_patterns_and_blocks_by_name() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 8))
    patterns = {"0": NMPattern(2, 8), "1": Block(16, 0.5)}
    oracle = masked(model, patterns)
    report = sparsify(model, {**patterns, "2": None})
    assert [type(layer) for layer in model] == [SparseLinear, BlockSparseLinear, nn.Linear]
    assert report.skipped[0].reason == "the pattern leaves it dense"
    x = torch.randn(4, 32)
    torch.testing.assert_close(model(x), oracle(x))
    assert "16x16 blocks" in str(report)
    assert model[1].coded.nbytes == 8 * 256 * 4 + 5 * 4 + 8 * 4
    densify(model)
    assert torch.equal(model[1].weight, oracle[1].weight)


def test_selection_by_function_and_the_model_itself() -> None:
    model = Net()
    report = sparsify(model, select=lambda name, module: module.out_features == 32)
    assert [layer.name for layer in report.converted] == ["body.0"]
    assert {layer.name: layer.reason for layer in report.skipped}["body.2"] == "not selected"
    linear = nn.Linear(8, 4)
    report = sparsify(linear)
    assert isinstance(report.model, SparseLinear)
    assert "(model)" in str(report)
    assert type(densify(report.model)) is nn.Linear


def test_masks_decide_what_is_kept() -> None:
    model = Net()
    masks = {"body.0": nm_mask(model.body[0].weight, 2, 4, score=-model.body[0].weight.abs())}
    masks["conv"] = torch.ones(4, 1, 3, 3, dtype=torch.bool)
    wanted = model.body[0].weight.detach() * masks["body.0"]
    sparsify(model, masks=masks)
    assert torch.equal(model.body[0].weight, wanted)
    other = Net()
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"layer body\.2: the mask of weight is not 2:4: row 0, group 0"):
        sparsify(other, masks={"body.2": torch.ones(15, 32, dtype=torch.bool)})
    with pytest.raises(ValueError, match=r"masks names layers that the model does not have: body\.7"):
        sparsify(other, masks={"body.7": masks["body.0"]})
    assert packed_layers(other) == {}
    assert all(torch.equal(other.state_dict()[name], value) for name, value in before.items())


def test_a_module_under_two_names_is_converted_once() -> None:
    shared = nn.Linear(16, 16)
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, nn.Linear(16, 4))})
    report = sparsify(model)
    assert [layer.name for layer in report.converted] == ["a", "b.1"]
    assert model["a"] is model["b"][0]
    assert isinstance(model["a"], SparseLinear)
    densify(model)
    assert model["a"] is model["b"][0]


def test_tied_weights_stay_tied() -> None:
    model = nn.ModuleDict({"a": nn.Linear(16, 16), "b": nn.Linear(16, 16), "c": nn.Linear(16, 16)})
    model["b"].weight = model["a"].weight
    report = sparsify(model)
    assert [layer.name for layer in report.converted] == ["c"]
    reasons = {layer.name: layer.reason for layer in report.skipped}
    assert reasons["a"] == "tied: its weight is also that of 'b'"
    assert reasons["b"].startswith("tied")
    assert model["b"].weight is model["a"].weight


class _Mask(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * nm_mask(weight, 2, 4)


def test_parametrised_hooked_and_changed_layers() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    model = nn.Sequential(nn.Linear(16, 16), Doubled(16, 16), nn.Linear(16, 16), nn.Linear(16, 16))
    parametrize.register_parametrization(model[0], "weight", _Mask())
    handle = model[2].register_forward_hook(lambda *_: None)
    wanted = model[0].weight.detach().clone()
    with torch.no_grad():
        report = sparsify(model)
    assert [layer.name for layer in report.converted] == ["0", "3"]
    assert report.converted[0].note == "its parametrisation was dropped"
    assert report.converted[0].kept_magnitude == 1
    assert "its parametrisation was dropped" in str(report)
    assert torch.equal(model[0].weight, wanted)
    assert model[0].values.requires_grad
    reasons = {layer.name: layer.reason for layer in report.skipped}
    assert reasons["1"] == "Doubled computes something else than nn.Linear"
    assert "hooks" in reasons["2"]
    handle.remove()
    assert [layer.name for layer in sparsify(model).converted] == ["2"]


def test_attention_is_left_out() -> None:
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    model = nn.ModuleDict({"attention": attention, "linear": nn.Linear(16, 16)})
    report = sparsify(model)
    assert [layer.name for layer in report.converted] == ["linear"]
    reasons = {layer.name: layer.reason for layer in report.skipped}
    assert "without calling it" in reasons["attention.out_proj"]
    with pytest.raises(ValueError, match=r"no layer can be packed: .*out_proj: nn\.MultiheadAttention"):
        sparsify(attention)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_transformer_encoder_runs_the_packed_layers(
    training: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, activation="gelu")
    encoder = nn.TransformerEncoder(layer, 2).train(training)
    names = [f"layers.{number}.linear{half}" for number in (0, 1) for half in (1, 2)]
    oracle = masked(encoder, dict.fromkeys(names, NMPattern()))
    fused = {name: vars(part).copy() for name, part in encoder.named_modules()}
    report = sparsify(encoder)
    assert [found.name for found in report.converted] == names
    assert len(report.notes) == 3
    assert report.notes[0] in str(report)
    calls = []
    forward = SparseLinear.forward
    monkeypatch.setattr(SparseLinear, "forward", lambda self, x: calls.append(self) or forward(self, x))
    x = torch.randn(3, 5, 16)
    padding = torch.arange(5)[None] >= torch.tensor([5, 3, 2])[:, None] if padded else None
    seen = ~padding if padded else torch.ones(3, 5, dtype=torch.bool)
    with torch.no_grad():
        found = encoder(x, src_key_padding_mask=padding)
        expected = oracle.train()(x, src_key_padding_mask=padding)
    assert len(calls) == 4
    torch.testing.assert_close(found[seen], expected[seen])
    densify(encoder)
    for name, part in encoder.named_modules():
        plain = {key: value for key, value in vars(part).items() if isinstance(value, int)}
        assert plain == {key: value for key, value in fused[name].items() if isinstance(value, int)}, name


def test_quantised_conversion_and_activation() -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    x = torch.randn(16, 32)
    statistics = collect_inputs(model, [x], layers=["0"])
    oracle = masked(model, {"0": NMPattern(), "2": NMPattern()})
    report = sparsify(model, quantise=True, statistics=statistics)
    assert [type(model[place]) for place in (0, 2)] == [SparseLinearInt8] * 2
    assert model[0].activation_scale is not None
    assert model[2].activation_scale is None
    assert report.converted[0].bytes_after == 32 * 16 + 32 * 4 + 32 * 4
    assert (model(x) - oracle(x)).abs().max() < 0.05
    model[0] = SparseLinear.from_dense(oracle[0], activation="relu")
    fused = model(x)
    densify(model)
    assert isinstance(model[0], nn.Sequential)
    assert not model[0].training
    torch.testing.assert_close(model(x), fused, rtol=0.05, atol=0.05)
    with pytest.raises(ValueError, match="layer 0: quantise=True needs an n:m"):
        sparsify(nn.Sequential(nn.Linear(32, 32)), Block(8, 0.5), quantise=True)
    with pytest.raises(ValueError, match="statistics names layers"):
        sparsify(oracle, quantise=True, statistics={"9": statistics["0"]})


def test_models_without_a_layer_to_convert() -> None:
    with pytest.raises(ValueError, match="no Linear"):
        sparsify(nn.ReLU())
    with pytest.raises(ValueError, match="not divisible by m=4"):
        sparsify(nn.Linear(15, 3))
    with pytest.raises(ValueError, match="select='nothing'"):
        sparsify(Net(), select="nothing")
    converted = sparsify(nn.Sequential(nn.Linear(8, 8))).model
    with pytest.raises(ValueError, match="SparseLinear is not among Linear"):
        sparsify(converted)


def test_progress_bar_is_drawn_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    sparsify(Net())
    assert capsys.readouterr().out == ""
    sparsify(Net(), progress=True)
    assert "packing" in capsys.readouterr().out
