"""``prune`` on tensors and models: what changes, what is reported, and what is refused before any change."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sparse_core.nm.masks import block_mask, check_nm, nm_mask
from sparse_core.nm.pattern import Block, NMPattern
from sparse_core.nm.pruning import prune
from sparse_core.nm.pruning.calibration import InputStatistics, collect_inputs
from sparse_core.nm.pruning.scores import GradientScore, wanda
from sparse_core.nm.pruning.sparsegpt import CalibrationWarning, sparsegpt


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    """A small convnet whose layers are named in another order than they run."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(16, 3)
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.grouped = nn.Conv2d(8, 16, 1, groups=2)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(self.grouped(torch.relu(self.stem(images))))
        out: Tensor = self.head(hidden.mean(dim=(2, 3)))
        return out


def batches(count: int = 3) -> list[Tensor]:
    mixing = random(3, 3, seed=99)
    return [torch.einsum("nchw,dc->ndhw", random(4, 3, 6, 6, seed=seed), mixing) for seed in range(count)]


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def changed(model: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}


def test_both_ways_to_write_a_pattern() -> None:
    weight = random(8, 16).requires_grad_()
    pruned = prune(weight, 2, 4)
    assert torch.equal(pruned, weight.detach() * nm_mask(weight, 2, 4))
    assert torch.equal(prune(weight, NMPattern(2, 4)), pruned)
    assert torch.equal(prune(weight), pruned)
    assert not pruned.requires_grad
    assert torch.equal(weight.detach(), random(8, 16))


def test_tensors_by_each_score() -> None:
    weight, inputs = random(8, 16), random(50, 16, seed=1) * torch.linspace(0.1, 3, 16)
    known = collect_inputs(nn.Linear(16, 8), [inputs], layers=[""], hessian=True)[""]
    assert known.hessian is not None
    by_wanda = nm_mask(weight, 2, 4, wanda(weight, known.norm))
    assert torch.equal(prune(weight, 2, 4, score="wanda", statistics=known), weight * by_wanda)
    assert torch.equal(
        prune(weight, 2, 4, score="sparsegpt", statistics=known),
        sparsegpt(weight, known.hessian, NMPattern(2, 4)).weight,
    )
    gradient = random(8, 16, seed=2)
    assert torch.equal(
        prune(weight, 2, 4, score="gradient", gradient=gradient),
        weight * nm_mask(weight, 2, 4, (weight * gradient).abs()),
    )
    assert torch.equal(
        prune(weight, 2, 4, score=gradient), weight.masked_fill(~nm_mask(weight, 2, 4, gradient), 0)
    )
    assert torch.equal(prune(weight, Block(8, 0.5)), weight * block_mask(weight, Block(8, 0.5)))
    torch.testing.assert_close(prune(weight, 2, 4, compensate=True).norm(dim=1), weight.norm(dim=1))


def test_convolution_tensor_in_channels_last_groups() -> None:
    weight = random(4, 8, 3, 3)
    pruned = prune(weight, NMPattern(1, 4, "channels_last"))
    check_nm(pruned, 1, 4, conv_layout="channels_last")


def test_model_by_magnitude() -> None:
    model = Net()
    before, parameters = weights(model), dict(model.named_parameters())
    report = prune(model, NMPattern(2, 4))
    assert [layer.name for layer in report.layers] == ["head", "grouped"]
    assert report.skipped == {"stem": "its input dimension 27 is not divisible by m=4"}
    assert changed(model, before) == {"head.weight", "grouped.weight"}
    assert dict(model.named_parameters()).keys() == parameters.keys()
    assert all(value is parameters[name] for name, value in model.named_parameters())
    for layer in report.layers:
        old, mask = before[f"{layer.name}.weight"], report.masks[layer.name]
        assert torch.equal(mask, nm_mask(old, 2, 4))
        assert torch.equal(parameters[f"{layer.name}.weight"].detach(), old * mask)
        assert layer.kept_magnitude == pytest.approx(float((old * mask).abs().sum() / old.abs().sum()))
        assert (layer.zeros_before, layer.zeros_after) == (0, old.numel() // 2)
    assert report.sparsity == 0.5


@pytest.mark.filterwarnings("ignore:the calibration of")  # a small one is enough here
def test_report_is_a_table_and_json() -> None:
    model = Net()
    report = prune(model, NMPattern(2, 4), score="sparsegpt", calibration=batches())
    data = json.loads(json.dumps(report.to_json()))
    assert [layer["name"] for layer in data["layers"]] == ["grouped", "head"]
    assert data["layers"][0]["shape"] == [16, 4, 1, 1]
    assert data["layers"][0]["damping_used"] == 0.01
    assert data["sparsity"] == 0.5
    lines = str(report).splitlines()
    place = lines[0].index("pattern")
    assert [line[place : place + 3] for line in lines[2:4]] == ["2:4", "2:4"]
    assert lines[2].split()[:5] == ["grouped", "16x4x1x1", "2:4", "sparsegpt", lines[2].split()[4]]
    assert lines[4].split() == ["total", "112", "0.00%", "50.00%"]
    assert lines[-1].split("  ")[0] == "stem"
    assert str(prune(nn.Linear(8, 8))).splitlines()[2].startswith("(model)")


def test_pattern_for_each_layer_and_selection() -> None:
    model = Net()
    report = prune(model, {"head": NMPattern(1, 8), "stem": Block(8, 0.5), "grouped": None})
    assert {layer.name: str(layer.pattern) for layer in report.layers} == {
        "head": "1:8",
        "stem": "8x8 blocks, 50% dropped",
    }
    check_nm(model.head.weight, 1, 8)
    assert torch.equal(model.stem.weight != 0, report.masks["stem"])
    chosen = prune(Net(), 2, 4, select="head")
    assert [layer.name for layer in chosen.layers] == ["head"]
    assert chosen.skipped["grouped"] == "not selected"


def test_wanda_with_batches_is_wanda_with_statistics() -> None:
    one, other = Net(), Net()
    names = ["grouped", "head"]
    known = collect_inputs(other, batches(), layers=names)
    report = prune(one, NMPattern(2, 4), score="wanda", calibration=iter(batches()))
    prune(other, NMPattern(2, 4), score="wanda", statistics=known)
    fresh = Net()
    for name in names:
        weight = fresh.get_submodule(name).weight
        assert isinstance(weight, Tensor)
        expected = nm_mask(weight, 2, 4, wanda(weight, known[name].norm))
        assert torch.equal(report.masks[name], expected)
        assert torch.equal(one.get_submodule(name).weight, other.get_submodule(name).weight)  # type: ignore[arg-type]


def test_sparsegpt_prunes_each_group_of_a_convolution_by_its_own_inputs() -> None:
    model, fresh = Net(), Net()
    known = collect_inputs(model, batches(), layers=["grouped"], hessian=True)
    prune(model, NMPattern(2, 4), score="sparsegpt", statistics=known, select="grouped")
    hessian = known["grouped"].hessian
    assert hessian is not None
    for group in (0, 1):
        rows = slice(8 * group, 8 * group + 8)
        expected = sparsegpt(fresh.grouped.weight[rows], hessian[group], NMPattern(2, 4)).weight
        assert torch.equal(model.grouped.weight[rows].detach(), expected)


def output_error(score: Any, *, select: Any = None, **options: Any) -> float:
    model, dense = Net(), Net()
    prune(model, NMPattern(2, 4), score=score, select=select, **options)
    with torch.no_grad():
        return sum(float((model(batch) - dense(batch)).square().mean()) for batch in batches())


def test_compensation_by_least_squares_lowers_the_error_of_a_layer() -> None:
    plain = output_error("magnitude", select="head")
    scaled = output_error("magnitude", select="head", compensate=True, calibration=batches())
    assert scaled < plain
    report = prune(Net(), NMPattern(2, 4), compensate=True, calibration=batches())
    assert {layer.note for layer in report.layers} == {"rows scaled by least squares"}
    by_norm = prune(Net(), NMPattern(2, 4), compensate=True)
    assert {layer.note for layer in by_norm.layers} == {"rows scaled to their old norm"}


@pytest.mark.filterwarnings("ignore:the calibration of")  # a small one is enough here
def test_sequential_statistics_see_the_layers_pruned_before() -> None:
    model, by_hand = Net(), Net()
    report = prune(model, NMPattern(2, 4), score="sparsegpt", calibration=iter(batches()), sequential=True)
    assert [layer.name for layer in report.layers] == ["grouped", "head"]
    for name in ("grouped", "head"):
        known = collect_inputs(by_hand, batches(), layers=[name], hessian=True)
        prune(by_hand, NMPattern(2, 4), score="sparsegpt", statistics=known, select=f"^{name}$")
    assert changed(model, weights(by_hand)) == set()
    at_once = Net()
    prune(at_once, NMPattern(2, 4), score="sparsegpt", calibration=batches())
    assert changed(at_once, weights(model)) == {"head.weight"}


def test_gradients_of_now_and_averaged() -> None:
    model = Net()
    model(batches()[0]).square().sum().backward()
    score = GradientScore(model)
    score.update()
    other = copy.deepcopy(model)
    for name, parameter in model.named_parameters():
        other.get_parameter(name).grad = parameter.grad
    assert model.head.weight.grad is not None
    expected = nm_mask(model.head.weight, 2, 4, (model.head.weight * model.head.weight.grad).abs())
    averaged = prune(model, NMPattern(2, 4), score="gradient", gradient=score)
    assert torch.equal(averaged.masks["head"], expected)
    now = prune(other, NMPattern(2, 4), score="gradient")
    assert torch.equal(now.masks["head"], expected)


def test_given_scores() -> None:
    model = Net()
    scores = {"head": random(3, 16, seed=5), "grouped": random(16, 4, 1, 1, seed=6)}
    report = prune(model, NMPattern(2, 4), score=scores)
    assert torch.equal(report.masks["head"], nm_mask(scores["head"], 2, 4, scores["head"]))
    assert report.layers[0].method == "given scores"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("score", ["magnitude", "wanda", "sparsegpt"])
def test_types_of_models(dtype: torch.dtype, score: Any) -> None:
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).to(dtype)
    inputs = [random(30, 16).to(dtype)]
    report = prune(model, NMPattern(2, 4), score=score, calibration=inputs, compensate=score == "wanda")
    for name in ("0", "2"):
        weight = model.get_submodule(name).weight
        assert isinstance(weight, Tensor)
        assert weight.dtype == dtype
        check_nm(weight, 2, 4)
        check_nm(report.masks[name], 2, 4)
    assert torch.isfinite(model(inputs[0])).all()


def test_attention_and_parametrised_layers() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    report = prune(copy.deepcopy(model), NMPattern(2, 4), score="wanda", calibration=[random(2, 5, 8)])
    assert [layer.name for layer in report.layers] == ["linear1", "linear2"]
    assert "without calling it" in report.skipped["self_attn.out_proj"]
    assert "inputs of its in_proj_weight are not collected" in report.skipped["self_attn"]
    assert "self_attn.out_proj" in prune(copy.deepcopy(model), NMPattern(2, 4)).masks
    parametrize.register_parametrization(model.linear1, "weight", nn.Identity())
    assert "is parametrised" in prune(model, NMPattern(2, 4)).skipped["linear1"]
    with pytest.raises(ValueError, match=r"no layer matches 2:4 .*linear1: its weight is parametrised"):
        prune(model, NMPattern(2, 4), select="linear1")


def test_more_damping_is_reported() -> None:
    model = nn.Linear(4, 4)
    hessian = torch.eye(4)
    hessian[0, 1] = hessian[1, 0] = 1.5
    known = {"": InputStatistics(10, torch.ones(4).double(), torch.ones(()), hessian)}
    with pytest.warns(CalibrationWarning):
        report = prune(model, NMPattern(2, 4), score="sparsegpt", statistics=known)
    assert report.layers[0].damping_used == pytest.approx(1.0)
    assert "damping 1; factored at attempt 3" in str(report)


@pytest.fixture
def untouched() -> Iterator[Net]:
    """A model that no refusal may have changed."""
    model = Net()
    before = weights(model)
    yield model
    assert changed(model, before) == set()


def test_refused_before_any_change(untouched: Net) -> None:
    known = collect_inputs(untouched, batches(), layers=["head", "grouped"])
    refusals: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "score must be one of", {"score": "random"}),
        (ValueError, "'wanda' needs inputs", {"score": "wanda"}),
        (ValueError, "statistics lacks the layers", {"score": "wanda", "statistics": {}}),
        (TypeError, "statistics is a dictionary", {"score": "wanda", "statistics": known["head"]}),
        (
            ValueError,
            "the statistics of layer 'head' are of 4 columns",
            {"score": "wanda", "statistics": {"head": known["grouped"], "grouped": known["grouped"]}},
        ),
        (ValueError, "needs the Hessian of layer 'head'", {"score": "sparsegpt", "statistics": known}),
        (ValueError, "'head' has no gradient", {"score": "gradient"}),
        (TypeError, "gradient is a GradientScore", {"score": "gradient", "gradient": random(3, 16)}),
        (ValueError, "'head' never had a gradient", {"score": "gradient", "gradient": GradientScore(Net())}),
        (ValueError, "score lacks the layers", {"score": {"head": random(3, 16)}}),
        (TypeError, "dictionary by layer name", {"score": random(3, 16)}),
        (
            ValueError,
            "must have its weight's shape",
            {"score": {"head": random(3, 16), "grouped": random(2)}},
        ),
        (
            ValueError,
            "score of layer 'grouped' has NaN",
            {"score": {"head": random(3, 16), "grouped": random(16, 4, 1, 1) * float("nan")}},
        ),
        (
            ValueError,
            "sequential pruning collects",
            {"score": "wanda", "statistics": known, "sequential": True},
        ),
        (ValueError, "no layer matches", {"select": "nothing"}),
        (ValueError, "batches is empty", {"score": "wanda", "calibration": []}),
    ]
    for error, message, options in refusals:
        with pytest.raises(error, match=message):
            prune(untouched, NMPattern(2, 4), **options)
    with pytest.raises(TypeError, match="SparseGPT prunes to n:m patterns"):
        prune(
            untouched, {"head": NMPattern(2, 4), "stem": Block(8)}, score="sparsegpt", calibration=batches()
        )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("options", [{}, {"compensate": True}, {"score": "sparsegpt"}], ids=str)
def test_weights_that_are_not_finite_are_named_before_any_change(
    value: float, options: dict[str, Any]
) -> None:
    model = Net()
    if options:
        options = {**options, "calibration": batches()}
    with torch.no_grad():
        model.grouped.weight[0, 0] = value
    head = model.head.weight.detach().clone()
    with pytest.raises(ValueError, match="weight of layer 'grouped' has NaN or infinite"):
        prune(model, NMPattern(2, 4), **options)
    assert torch.equal(model.head.weight, head)
    with pytest.raises(ValueError, match="compensation needs finite values"):
        prune(torch.tensor([[1.0, 2.0, float("inf"), 0.0]]), 2, 4, compensate=True)


def test_bad_arguments() -> None:
    weight = random(4, 8)
    with pytest.raises(TypeError, match="needs m too"):
        prune(weight, 2)
    with pytest.raises(TypeError, match="m is only valid"):
        prune(weight, NMPattern(2, 4), 4)
    with pytest.raises(TypeError, match="pattern must be NMPattern"):
        prune(weight, "2:4")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="a tensor takes one pattern"):
        prune(weight, {"": NMPattern(2, 4)})  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="target must be a tensor or a module"):
        prune([1.0], 2, 4)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="not divisible by m=3"):
        prune(weight, 1, 3)
    with pytest.raises(ValueError, match="needs its gradient"):
        prune(weight, 2, 4, score="gradient")
    with pytest.raises(ValueError, match="needs statistics"):
        prune(weight, 2, 4, score="wanda")
    with pytest.raises(TypeError, match="SparseGPT prunes to n:m"):
        prune(weight, Block(8), score="sparsegpt")


def test_an_all_zero_layer_is_pruned() -> None:
    layer = nn.Linear(8, 4)
    nn.init.zeros_(layer.weight)
    report = prune(layer)
    assert report.layers[0].kept_magnitude == 1.0
    assert (report.layers[0].zeros_before, report.layers[0].zeros_after) == (32, 32)
    check_nm(report.masks[""], 2, 4)


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    prune(Net(), NMPattern(2, 4))
    assert capsys.readouterr().out == ""
    prune(Net(), NMPattern(2, 4), score="wanda", calibration=batches(), progress=True)
    shown = capsys.readouterr().out
    assert "calibrating" in shown
    assert "pruning" in shown
