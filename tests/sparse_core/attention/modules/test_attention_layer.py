"""The Transformer layer and stack against the same arithmetic written out, and what one does with modules."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sparse_core.attention.modules.feed_forward import FeedForward
from sparse_core.attention.modules.layer import SparseTransformerLayer
from sparse_core.attention.modules.learned_blocks import LearnedBlocks
from sparse_core.attention.modules.linears import convert_linears
from sparse_core.attention.modules.selectors import TopKBlocks
from sparse_core.attention.modules.transformer import SparseTransformer
from sparse_core.attention.patterns.builders import full, local_window, random_blocks
from sparse_core.nm.layers.sparse_linear import SparseLinear
from sparse_core.nm.masks import check_nm
from sparse_core.nm.training import SparseTrainingLinear

WINDOW = functools.partial(local_window, window=6, block_size=16)


def random_rows(batch: int, length: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, width, generator=generator)


def made(linears: Any = "dense", **options: Any) -> SparseTransformerLayer:
    torch.manual_seed(0)
    return SparseTransformerLayer(32, 2, WINDOW, linears=linears, **options)


def normalised(x: Tensor, norm: nn.Module) -> Tensor:
    if isinstance(norm, nn.RMSNorm):
        return x / (x.square().mean(dim=2, keepdim=True) + torch.finfo(x.dtype).eps).sqrt() * norm.weight
    centred = x - x.mean(dim=2, keepdim=True)
    scaled = centred / (centred.square().mean(dim=2, keepdim=True) + 1e-5).sqrt() * norm.weight
    return scaled if norm.bias is None else scaled + norm.bias


def written_out(layer: SparseTransformerLayer, x: Tensor) -> Tensor:
    x = x + layer.attention(normalised(x, layer.attention_norm))
    hidden = normalised(x, layer.feed_forward_norm)
    part = layer.feed_forward
    if part.gate is None:
        up = part.up(hidden)
        inner = up * 0.5 * (1 + torch.erf(up / math.sqrt(2)))
    else:
        gate = part.gate(hidden)
        inner = gate / (1 + torch.exp(-gate)) * part.up(hidden)
    return x + part.down(inner)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_is_a_prenorm_layer(norm: Any, gated: bool, bias: bool) -> None:
    layer = made(norm=norm, gated=gated, bias=bias, dtype=torch.float64, key_heads=1)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = random_rows(2, 50, 32).double()
    torch.testing.assert_close(layer(x), written_out(layer, x))
    assert bias == any(name.endswith("bias") for name, _ in layer.named_parameters())


def test_full_pattern_equals_torch_layer() -> None:
    """Against ``nn.TransformerEncoderLayer`` with ``norm_first``, weights copied over."""
    torch.manual_seed(0)
    other = nn.TransformerEncoderLayer(
        32, 2, 128, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    layer = made(dtype=torch.float64)
    attention = type(layer.attention).from_multihead(other.self_attn, full(50, 16))
    layer.attention.load_state_dict(attention.state_dict())
    layer.attention.set_pattern(full(50, 16))
    for mine, its in (
        (layer.attention_norm, other.norm1),
        (layer.feed_forward_norm, other.norm2),
        (layer.feed_forward.up, other.linear1),
        (layer.feed_forward.down, other.linear2),
    ):
        mine.load_state_dict(its.state_dict())
    x = random_rows(2, 50, 32).double()
    torch.testing.assert_close(layer(x), other(x))


def test_hidden_sizes() -> None:
    assert FeedForward(64).up.out_features == 256
    assert FeedForward(1024, gated=True).up.out_features == 2752  # 8 / 3 * 1024 = 2730.7
    assert FeedForward(384, gated=True).up.out_features == 1024
    assert FeedForward(64, 100, gated=True).gate.out_features == 100  # type: ignore[union-attr]


def test_ragged_batches() -> None:
    layer = made()
    x, lengths = random_rows(2, 40, 32), torch.tensor([40, 23])
    padding = (torch.arange(40) >= lengths[:, None])[..., None]
    out = layer(x.masked_fill(padding, torch.nan), lengths=lengths)
    torch.testing.assert_close(out[1:, :23], layer(x[1:, :23]))
    assert not bool(out[1, 23:].any())
    out.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in layer.parameters())
    with pytest.raises(ValueError, match="lengths must be from 0 to 40"):
        layer(x, lengths=torch.tensor([1, 50]))


@pytest.mark.parametrize("linears", ["dense", "2:4", "2:4-training"])
@pytest.mark.parametrize("gated", [False, True])
def test_gradients_reach_every_parameter(linears: Any, gated: bool) -> None:
    layer = made(linears, gated=gated, norm="rms")
    layer(random_rows(2, 40, 32)).sin().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert name == "attention.k.bias" or bool((parameter.grad != 0).any()), name


def test_two_four_weights() -> None:
    dense, sparse = made(gated=True), made("2:4", gated=True)
    layers = {name: m for name, m in sparse.named_modules() if isinstance(m, SparseLinear)}
    assert set(layers) == {
        *(f"attention.{name}" for name in ("q", "k", "v", "out")),
        *(f"feed_forward.{name}" for name in ("up", "gate", "down")),
    }
    for name, layer in layers.items():
        weight = dense.get_submodule(name).weight
        magnitude = weight.abs().reshape(-1, 4)
        kept = (layer.weight != 0).reshape(-1, 4)
        assert bool((kept.sum(dim=1) == 2).all())
        assert bool((magnitude.masked_fill(kept, 0).amax(1) <= magnitude.masked_fill(~kept, 9).amin(1)).all())
        assert torch.equal(layer.weight[layer.weight != 0], weight[layer.weight != 0])
    later = made(gated=True)
    later.convert_linears("2:4")
    x = random_rows(1, 40, 32)
    assert torch.equal(later(x), sparse(x))
    sparse.convert_linears("2:4")
    assert torch.equal(later(x), sparse(x))
    sparse.convert_linears("dense")
    assert not any(isinstance(module, SparseLinear) for module in sparse.modules())
    torch.testing.assert_close(sparse(x), later(x))


def test_two_four_training_becomes_two_four() -> None:
    """Training prunes in every step; packing afterwards keeps the results."""
    layer = made("2:4-training")
    assert isinstance(layer.feed_forward.up, SparseTrainingLinear)
    x = random_rows(1, 40, 32)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        layer(x).square().mean().backward()
        optimiser.step()
    expected = layer(x)
    for kind in ("dense", "2:4"):
        packed = copy.deepcopy(layer)
        packed.convert_linears(kind)
        torch.testing.assert_close(packed(x), expected)
        check_nm(packed.feed_forward.up.weight, 2, 4)
    packed.convert_linears("2:4-training")
    assert isinstance(packed.attention.q, SparseTrainingLinear)


def test_gates_and_other_layers_are_not_converted() -> None:
    layer = made()
    layer.attention.set_pattern(LearnedBlocks(2, 16, 0.5, block_size=16))
    layer.extra = nn.Bilinear(4, 4, 4)
    convert_linears(layer, "2:4")
    assert isinstance(layer.attention.pattern, LearnedBlocks)
    assert isinstance(layer.extra, nn.Bilinear)


def test_sizes_that_do_not_fit_two_four() -> None:
    with pytest.raises(ValueError, match=r"layer 'feed_forward.down' has 50 inputs"):
        made("2:4", hidden=50)
    with pytest.raises(ValueError, match=r"layer 'feed_forward.up' .* 50 outputs; 2:4 training"):
        made("2:4-training", hidden=50)
    with pytest.raises(ValueError, match="linears must be one of dense, 2:4, 2:4-training"):
        made("4:8")
    layer = made(hidden=50)
    with pytest.raises(ValueError, match="down"):
        layer.convert_linears("2:4")
    assert all(type(m) is nn.Linear for n, m in layer.named_modules() if n.endswith((".q", ".up")))


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="norm must be one of layer, rms"):
        made(norm="batch")
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1, got 1"):
        made(dropout=1.0)
    with pytest.raises(ValueError, match=r"dropout must be at least 0 and below 1, got -0\.1"):
        made(attention_dropout=-0.1)
    with pytest.raises(ValueError, match="hidden must be at least 1"):
        made(hidden=0)
    with pytest.raises(ValueError, match=r"x must have shape \(batch, length, 32\)"):
        made().attention(torch.zeros(1, 4, 16))


@pytest.mark.parametrize("linears", ["dense", "2:4", "2:4-training"])
def test_copies_and_state_dicts(linears: Any, tmp_path: Any) -> None:
    layer = made(linears)
    x = random_rows(1, 40, 32)
    expected = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), expected)
    torch.manual_seed(7)
    other = SparseTransformerLayer(32, 2, WINDOW, linears=linears)
    assert not torch.equal(other(x), expected)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    other.load_state_dict(torch.load(tmp_path / "layer.pt"))
    assert torch.equal(other(x), expected)
    assert layer.to(torch.float64)(x.double()).dtype == torch.float64
    torch.testing.assert_close(layer(x.double()).float(), expected)


@pytest.mark.parametrize("linears", ["dense", "2:4", "2:4-training"])
def test_autocast(linears: Any) -> None:
    layer, x = made(linears), random_rows(1, 40, 32)
    expected = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x)
    found.sum().backward()
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant: bool) -> None:
    """Recomputation draws the same dropout, also of the attention weights."""
    layer = made(dropout=0.3, attention_dropout=0.3)
    x = random_rows(2, 40, 32).requires_grad_()
    results = []
    for run in (layer, functools.partial(checkpoint, layer, use_reentrant=reentrant)):
        torch.manual_seed(1)
        x.grad = None
        layer.zero_grad()
        out = run(x)
        out.sin().sum().backward()
        results.append([out, x.grad, *(parameter.grad for parameter in layer.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_dropout_in_training_only() -> None:
    layer, x = made(dropout=0.5), random_rows(1, 40, 32)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    assert torch.equal(layer(x), made()(x))


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor"
)  # a warning of torch after a graph break
@pytest.mark.parametrize(
    "linears",
    [
        pytest.param("dense", marks=pytest.mark.slow),
        "2:4",
        pytest.param("2:4-training", marks=pytest.mark.slow),
    ],
)
def test_compiles(linears: Any) -> None:
    torch.compiler.reset()
    layer, x = made(linears, gated=True), random_rows(2, 40, 32)
    compiled = torch.compile(layer, backend="aot_eager")
    parameters = list(layer.parameters())
    expected = torch.autograd.grad(layer(x).sin().sum(), parameters)
    found = torch.autograd.grad(compiled(x).sin().sum(), parameters)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


# The stack


def stack(count: int, pattern: Any = None, **options: Any) -> SparseTransformer:
    torch.manual_seed(0)
    layers = [SparseTransformerLayer(32, 2, **options) for _ in range(count)]
    return SparseTransformer(layers, pattern, norm=nn.LayerNorm(32))


def test_layers_follow_each_other_and_share_a_pattern() -> None:
    asked = []

    def build(*wanted: Any) -> Any:
        asked.append(wanted)
        return local_window(wanted[0], 5, 16, device=wanted[2])

    model, x = stack(3, build), random_rows(2, 40, 32)
    found = model(x)
    expected = x
    for layer in model.layers:
        expected = layer(expected, pattern=local_window(40, 5, 16))
    assert torch.equal(found, model.norm(expected))
    assert len(asked) == 1
    copied = copy.deepcopy(model)
    assert torch.equal(copied(x), found)
    assert len(asked) == 2


def test_the_index_of_a_pattern_is_prepared_once() -> None:
    pattern = local_window(40, 5, 16)
    model = stack(3, pattern)
    assert all(layer.attention.pattern is pattern for layer in model.layers)
    model(random_rows(1, 40, 32))
    assert len(pattern.plans) == 1


def test_a_pattern_for_each_layer() -> None:
    patterns = [local_window(40, 5, 16), TopKBlocks(0.5, 16), None]
    model, x = stack(3, patterns), random_rows(1, 40, 32)
    expected = x
    for layer, pattern in zip(model.layers, patterns, strict=True):
        assert layer.attention.pattern is pattern
        expected = layer(expected, pattern=pattern)
    assert torch.equal(model(x), model.norm(expected))
    expected = x
    for layer in model.layers:
        expected = layer(expected, pattern=full(40, 16))
    assert torch.equal(model(x, pattern=full(40, 16)), model.norm(expected))
    expected = model.layers[2](model.layers[1](model.layers[0](x)), pattern=full(40, 16))
    assert torch.equal(model(x, pattern=[None, None, full(40, 16)]), model.norm(expected))


def test_each_layer_has_its_own_gate() -> None:
    model = stack(2, LearnedBlocks(2, 16, 0.5, block_size=16))
    gates = [layer.attention.pattern for layer in model.layers]
    assert gates[0] is not gates[1]
    assert all(isinstance(gate, LearnedBlocks) for gate in gates)


def test_ragged_stack() -> None:
    model, x = stack(2, WINDOW), random_rows(2, 40, 32)
    lengths = torch.tensor([11, 40])
    out = model(x, lengths=lengths)
    torch.testing.assert_close(out[:1, :11], model(x[:1, :11]))
    assert not bool(out[0, 11:].any())


def test_bad_stacks() -> None:
    with pytest.raises(ValueError, match="at least one layer"):
        SparseTransformer([])
    with pytest.raises(ValueError, match="got 1 patterns for 2 layers"):
        stack(2, [None])
    with pytest.raises(ValueError, match="pattern has 3 heads: give 1 or 2"):
        stack(2, random_blocks(40, 0.5, 16, heads=3))
    with pytest.raises(TypeError, match="pattern must be"):
        stack(2, [None, "window"])


@pytest.mark.gpu
@pytest.mark.parametrize("linears", ["dense", "2:4", "2:4-training"])
def test_gpu_equals_reference(cuda: torch.device, linears: Any) -> None:
    """bfloat16, two layers, compared with plain torch attention in the same model; both repeat."""
    torch.manual_seed(0)
    layers = [SparseTransformerLayer(256, 4, gated=True, norm="rms") for _ in range(2)]
    model = SparseTransformer(layers, local_window(1000, 100), norm=nn.RMSNorm(256))
    model = model.to(cuda, torch.bfloat16)
    for layer in model.layers:
        layer.convert_linears(linears)
    reference = copy.deepcopy(model)
    for layer in reference.layers:
        layer.attention.impl = "reference"
    x = random_rows(2, 1000, 256).to(cuda, torch.bfloat16)
    results = []
    for one in (model, model, reference):
        rows = x.clone().requires_grad_()
        out = one(rows)
        results.append([out.detach(), *torch.autograd.grad(out.float().sin().sum(), [rows])])
    for first, second, expected in zip(*results, strict=True):
        assert torch.equal(first, second)
        error = (first.float() - expected.float()).abs()
        assert float(error.max() / expected.float().abs().max()) < 0.05


@pytest.mark.gpu
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor",
    "ignore:TensorFloat32 tensor cores",
    "ignore::DeprecationWarning",  # a warning of torch's compiler
)
def test_gpu_compiles(cuda: torch.device) -> None:
    torch.compiler.reset()
    layer = SparseTransformerLayer(256, 4, functools.partial(local_window, window=100), gated=True)
    layer = layer.to(cuda, torch.bfloat16)
    x = random_rows(2, 1000, 256).to(cuda, torch.bfloat16)
    compiled = torch.compile(layer)
    for _ in range(2):
        expected = torch.autograd.grad(layer(x).float().sin().sum(), layer.attention.q.weight)[0]
        found = torch.autograd.grad(compiled(x).float().sin().sum(), layer.attention.q.weight)[0]
        error = (found.float() - expected.float()).abs().max() / expected.float().abs().max()
        assert float(error) < 0.05
