"""A permuted model computes what it did, and n:m keeps more of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from sparse_core.nm.pattern import NMPattern
from sparse_core.nm.permutation.model import PermutationReport, permute_model


def checked(
    model: nn.Module, inputs: Any, pattern: NMPattern | None = None, **options: Any
) -> PermutationReport:
    """Permute a copy-compared model and assert that its output stays and nothing kept is lost."""
    model.double().eval()
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    expected = model(*arguments)
    report = permute_model(model, inputs, pattern or NMPattern(2, 4), effort="fast", **options)
    torch.testing.assert_close(model(*arguments), expected, rtol=1e-9, atol=1e-9)
    assert all(group.retained >= group.retained_before for group in report.groups)
    for group in report.groups:
        assert (group.reason is None) == (group.name in report.permutations)
    return report


def permuted(report: PermutationReport) -> set[str]:
    """Names of layers whose columns were permuted."""
    return {name for group in report.groups if group.reason is None for name in group.consumers}


def reasons(report: PermutationReport) -> dict[str, str]:
    """Why groups were left."""
    return {group.name: group.reason for group in report.groups if group.reason is not None}


class Functional(nn.Module):
    """A network made of layers and a forward function."""

    def __init__(self, forward: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """A norm whose numbers differ from channel to channel."""
    norm = nn.BatchNorm2d(channels)
    for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        nn.init.uniform_(tensor, 0.5, 2)
    return norm


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_hidden_layers_of_an_mlp_are_permuted_and_its_input_is_not() -> None:
    model = nn.Sequential(
        nn.Linear(16, 32),
        nn.LayerNorm(32),
        nn.GELU(),
        nn.Dropout(),
        nn.Linear(32, 24),
        nn.ReLU(),
        nn.Linear(24, 8),
    )
    nn.init.uniform_(model[1].weight, 0.5, 2)
    report = checked(model, torch.randn(5, 16, dtype=torch.float64))
    assert permuted(report) == {"4", "6"}
    assert reasons(report) == {"0": "the model's input"}
    assert report.tracer == "torch.fx"
    group = next(group for group in report.groups if group.name == "4")
    assert set(group.producers) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert group.retained > group.retained_before


def test_columns_are_those_of_the_old_weight_in_the_reported_order() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).double()
    old = copy.deepcopy(model)
    order = checked(model, torch.randn(3, 8, dtype=torch.float64)).permutations["2"]
    assert torch.equal(model[2].weight, old[2].weight[:, order])
    assert torch.equal(model[0].weight, old[0].weight[order])
    assert torch.equal(model[0].bias, old[0].bias[order])


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False)
        self.norm = batch_norm(2 * channels)
        self.depthwise = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1, groups=2 * channels)
        self.last = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.last(self.depthwise(torch.relu(self.norm(self.first(x))))))


def convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), batch_norm(16), nn.ReLU(inplace=True), Residual(16),
        nn.MaxPool2d(2), Residual(16), nn.Conv2d(16, 24, 3, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 12),
    )  # fmt: skip


def test_convnet_with_residuals_in_channels_last_layout() -> None:
    report = checked(convnet(), torch.randn(2, 3, 9, 9).double(), NMPattern(2, 4, "channels_last"))
    assert permuted(report) == {"3.first", "3.last", "5.first", "5.last", "6", "9"}
    stream = next(group for group in report.groups if group.name == "3.first")
    assert stream.consumers == ("3.first", "5.first", "6")
    assert {"0.weight", "1.running_var", "3.last.weight", "5.last.bias"} <= set(stream.producers)


def test_unfold_layout_searches_only_1x1_kernels_and_linear_layers() -> None:
    report = checked(convnet(), torch.randn(2, 3, 9, 9).double())
    assert permuted(report) == {"3.last", "5.last", "9"}
    assert "unfold" in reasons(report)["3.first"]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v)
        return self.out(attended.transpose(1, 2).reshape(batch, tokens, width))


class Transformer(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(11, width)
        self.places = nn.Parameter(torch.randn(1, 6, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        for norm in self.norms:
            nn.init.uniform_(norm.weight, 0.5, 2)
        self.attention = Attention(width, 4)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.head = nn.Linear(width, 11)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places
        x = x + self.attention(self.norms[0](x))
        x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return self.head(self.norms[2](x)[:, 0])


def test_transformer_shares_one_order_along_the_residual_stream() -> None:
    report = checked(Transformer(), torch.randint(11, (2, 6)))
    stream = next(group for group in report.groups if group.name == "attention.qkv")
    assert stream.reason is None
    assert stream.consumers == ("attention.qkv", "up", "head")
    assert {"words.weight", "places", "attention.out.weight", "down.weight"} <= set(stream.producers)
    assert "down" in permuted(report)
    assert any("splits" in reason or "fixes" in reason for reason in [reasons(report)["attention.out"]])


def test_multi_head_attention_module_follows_the_stream() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        x = self.entry(x)
        return self.exit(x + self.attention(x, x, x, need_weights=False)[0])

    model = Functional(
        forward,
        entry=nn.Linear(8, 16),
        attention=nn.MultiheadAttention(16, 4, batch_first=True),
        exit=nn.Linear(16, 5),
    )
    report = checked(model, torch.randn(2, 3, 8).double())
    exit_group = next(group for group in report.groups if group.name == "exit")
    assert exit_group.reason is None
    assert {"attention.in_proj_weight", "attention.out_proj.weight"} <= set(exit_group.producers)
    assert "heads" in reasons(report)["attention.out_proj"]


def test_concatenated_branches_are_permuted_each_within_its_columns() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        left, right = self.left(x), self.right(x).relu()
        return self.both(torch.cat([left, right], dim=-1)) + self.single(right)

    model = Functional(
        forward,
        left=nn.Linear(8, 16),
        right=nn.Linear(8, 24),
        both=nn.Linear(40, 12),
        single=nn.Linear(24, 12),
    )
    report = checked(model, torch.randn(3, 8).double())
    assert set(report.permutations) == {"both[0:16]", "both[16:40]"}
    assert next(g for g in report.groups if g.name == "both[16:40]").consumers == ("both", "single")


def test_gated_halves_keep_facing_each_other() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * value)

    model = Functional(forward, up=nn.Linear(8, 48), down=nn.Linear(24, 8))
    report = checked(model, torch.randn(3, 8).double())
    assert permuted(report) == {"down"}


def test_flattened_maps_are_permuted_in_blocks_by_other_consumers() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        x = self.conv(x).relu()
        return self.head(x.flatten(1)) + self.side(x).mean((2, 3))

    model = Functional(forward, conv=nn.Conv2d(4, 16, 1), head=nn.Linear(16 * 4, 8), side=nn.Conv2d(16, 8, 1))
    report = checked(model, torch.randn(3, 4, 2, 2).double())
    assert permuted(report) == {"head", "side"}


def test_shared_module_and_tied_weights_stay_consistent() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = x + self.shared(torch.tanh(x))
        x = x + self.shared(torch.tanh(x))
        return F.linear(self.last(x), self.embed.weight)

    model = Functional(forward, embed=nn.Embedding(13, 16), shared=nn.Linear(16, 16), last=nn.Linear(16, 16))
    report = checked(model, torch.randint(13, (2, 5)))
    assert "shared" in permuted(report)


BARRIERS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "cumsum": lambda self, x: self.last(self.first(x).cumsum(-1)),
    "flip": lambda self, x: self.last(self.first(x).flip(-1)),
    "roll": lambda self, x: self.last(torch.roll(self.first(x), 1, -1)),
    "view": lambda self, x: self.last(self.first(x).view(-1, 4, 4).softmax(-1).reshape(-1, 16)),
    "constant": lambda self, x: self.last(self.first(x) * torch.arange(16.0, dtype=torch.float64)),
    "slice": lambda self, x: self.last(F.pad(self.first(x)[:, 1:], (1, 0))),
    "output": lambda self, x: (lambda y: torch.cat([self.last(y), y], -1))(self.first(x)),
    "matrix": lambda self, x: self.last(self.first(x) @ torch.ones(16, 16, dtype=torch.float64).tril()),
    "index": lambda self, x: self.last(self.first(x)[:, torch.arange(15, -1, -1)]),
}


@pytest.mark.parametrize("kind", BARRIERS)
def test_barriers_leave_the_model_and_are_reported(kind: str) -> None:
    model = Functional(BARRIERS[kind], first=nn.Linear(8, 16), last=nn.Linear(16, 8))
    before = copy.deepcopy(model.double().state_dict())
    report = checked(model, torch.randn(3, 8).double())
    assert set(reasons(report)) == {"first", "last"}
    assert report.permutations == {}
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_grouped_convolution_and_group_norm_are_barriers() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 16, 1),
        nn.Conv2d(16, 16, 1, groups=4),
        nn.Conv2d(16, 16, 1),
        nn.GroupNorm(4, 16),
        nn.Conv2d(16, 8, 1),
    )
    report = checked(model, torch.randn(1, 4, 3, 3).double())
    assert report.permutations == {}
    assert "grouped" in reasons(report)["2"]
    assert "groups of channels" in reasons(report)["4"]


def test_parametrised_layers_and_encoder_layers_are_not_looked_into() -> None:
    encoder = nn.TransformerEncoderLayer(16, 2, dim_feedforward=32, batch_first=True)
    spectral = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))
    model = nn.Sequential(nn.Linear(8, 16), encoder, spectral, nn.Linear(16, 8))
    report = checked(model, torch.randn(2, 3, 8).double())
    assert report.permutations == {}
    assert "TransformerEncoderLayer" in " ".join(reasons(report).values())
    assert "ParametrizedLinear" in reasons(report)["3"]


def test_control_flow_goes_through_export() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        x = self.norm(F.relu(self.first(x)))
        if float(x.shape[0]) > 1 and bool(x.dim() == 2) and [*x.shape][1] == 16:
            x = self.last(x)
        for row in range(len(self.layers)):
            x = x + self.layers[row](x)
        return x[:, :3] if len(x) > 1 else x

    model = Functional(
        forward,
        first=nn.Linear(8, 16),
        norm=nn.LayerNorm(16),
        last=nn.Linear(16, 8),
        layers=nn.ModuleList([nn.Linear(8, 8)]),
    )
    report = checked(model, torch.randn(3, 8).double())
    assert report.tracer == "torch.export"
    assert permuted(report) == {"last"}


def test_untraceable_model_is_left_alone() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(x) if float(x.sum()) > 0 else self.last(-x)

    model = Functional(forward, first=nn.Linear(8, 16), last=nn.Linear(16, 8))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="can be traced neither"):
        permute_model(model, torch.randn(3, 8))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_random_forward_pass_is_reverted() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        # Drops numbers in evaluation too.
        return self.last(F.dropout(self.first(x), 0.5))

    model = Functional(forward, first=nn.Linear(8, 16), last=nn.Linear(16, 8))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match="reverted"):
        permute_model(model, torch.randn(3, 8))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("hooked", ["layer", "container"])
def test_hooks_that_change_numbers_are_seen(hooked: str) -> None:
    def weigh(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output * torch.arange(16.0, dtype=torch.float64)

    container = nn.Sequential(nn.Linear(8, 16), nn.Identity())
    (container if hooked == "container" else container[0]).register_forward_hook(weigh)
    report = checked(nn.Sequential(container, nn.Linear(16, 8)), torch.randn(3, 8).double())
    assert report.permutations == {}


def test_select_counts_only_some_layers_and_modes_survive() -> None:
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    ).double()
    model[1].eval()
    report = permute_model(model, (torch.randn(3, 8).double(),), select="^4$", effort="fast")
    assert permuted(report) == {"4"}
    assert model.training
    assert not model[1].training
    report = permute_model(
        model, {"input": torch.randn(3, 8).double()}, select=lambda name, module: name == "2"
    )
    assert [group.name for group in report.groups] == ["2"]
    with pytest.raises(ValueError, match="the model has 0, 2, 4"):
        permute_model(model, torch.randn(3, 8).double(), select="nothing")
    with pytest.raises(ValueError, match="not a regular expression"):
        permute_model(model, torch.randn(3, 8).double(), select="(")


def test_report_is_a_table_and_json() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    report = checked(model, torch.randn(3, 8).double())
    lines = str(report).splitlines()
    assert len(lines) == 4
    assert "the model's input" in lines[2]
    assert report.to_json()["permutations"]["2"] == report.permutations["2"].tolist()


@settings(max_examples=25)
@given(data=st.data())
def test_random_networks_compute_what_they_did(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 99)))
    steps = data.draw(
        st.lists(
            st.sampled_from(["linear", "residual", "cat", "norm", "glu", "reshape", "swap"]),
            min_size=1,
            max_size=6,
        )
    )
    widths = [16]
    layers: list[nn.Module] = []
    for step in steps:
        width = widths[-1]
        new = data.draw(st.sampled_from([8, 12, 16])) if step in ("linear", "cat", "glu") else width
        of = {"glu": 2 * new}.get(step, new)
        layers.append(nn.LayerNorm(width) if step == "norm" else nn.Linear(width, of))
        widths.append(width + new if step == "cat" else new)

    def forward(self: Any, x: Tensor) -> Tensor:
        x = self.entry(x)
        for step, layer in zip(steps, self.layers, strict=True):
            if step == "residual":
                x = x + torch.tanh(layer(x))
            elif step == "cat":
                x = torch.cat([x, layer(x)], -1)
            elif step == "glu":
                x = F.glu(layer(x))
            elif step == "reshape":
                y = layer(x)
                x = (y.unflatten(-1, (2, -1)).transpose(-1, -2) * 2).flatten(-2)
            elif step == "swap":
                x = layer(x.transpose(0, 1).contiguous().transpose(0, 1)).unsqueeze(1).squeeze(1)
            else:
                x = layer(x)
        return self.exit(x)

    model = Functional(
        forward, entry=nn.Linear(8, 16), layers=nn.ModuleList(layers), exit=nn.Linear(widths[-1], 3)
    )
    checked(model, torch.randn(3, 8).double())
