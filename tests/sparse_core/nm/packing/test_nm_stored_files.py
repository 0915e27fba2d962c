"""Files and states that release 0.1 wrote still give the same models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from sparse_core.compression import CompressedConv2d, CompressedLinear, compress
from sparse_core.nm import (
    Block,
    BlockSparseLinear,
    NMPattern,
    SparseLinear,
    SparseLinearInt8,
    load_packed,
    save_packed,
)
from sparse_core.nm.packing.files import load_compressed

STORED = Path(__file__).parent / "stored"


class Model(nn.Module):
    """The model of the stored file: each kind of layer, a layer of two names, and a tied embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.again = nn.Linear(16, 16)
        self.brain = nn.Linear(16, 16, bias=False).bfloat16()
        self.blocks, self.third, self.norm = nn.Linear(16, 24), nn.Linear(24, 8), nn.BatchNorm1d(8)
        self.relu, self.gelu = nn.Linear(8, 8), nn.Linear(8, 8)
        self.out, self.table = nn.Linear(8, 3), nn.Embedding(3, 8)
        self.out.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.brain(self.again(self.first(x)).bfloat16()).float()
        y: Tensor = self.out(self.gelu(self.relu(self.norm(self.third(self.blocks(x))))))
        return y


def test_a_converted_model_of_release_0_1_gives_its_output(tmp_path: Path) -> None:
    expected = load_file(STORED / "packed-model-1-output.safetensors")
    model = load_packed(STORED / "packed-model-1.safetensors", Model().eval())
    kinds = (SparseLinear, SparseLinear, BlockSparseLinear, SparseLinear, SparseLinearInt8, SparseLinearInt8)
    names = ("first", "brain", "blocks", "third", "relu", "gelu")
    assert tuple(type(getattr(model, name)) for name in names) == kinds
    assert model.again is model.first
    assert model.out.weight is model.table.weight
    # Release 0.1 rounded the inputs of int8 layers with one scale for all rows.
    torch.testing.assert_close(model(expected["x"]).detach(), expected["y"], rtol=2e-3, atol=2e-4)
    # What is written now holds the same.
    written = save_packed(model, tmp_path / "again.safetensors")
    again = load_packed(written, Model().eval())
    assert again.again is again.first
    assert torch.equal(again(expected["x"]), model(expected["x"]))


def test_a_compressed_model_of_release_0_1_gives_its_weights() -> None:
    found = load_compressed(STORED / "compressed-model-1.safetensors")
    assert found.extra == {"name": "stored"}
    state, expected = (
        found.model.state_dict(),
        load_file(STORED / "compressed-model-1-dense.safetensors"),
    )
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], value) for name, value in expected.items())


@pytest.mark.parametrize("name", ["sparse", "int8", "blocks", "compressed", "codebook", "convolution"])
def test_layers_take_the_states_of_release_0_1(name: str) -> None:
    stored = load_file(STORED / "layer-states-1.safetensors")
    state = {
        key.removeprefix(f"{name}."): value for key, value in stored.items() if key.startswith(f"{name}.")
    }
    torch.manual_seed(9)
    linear, convolution = nn.Linear(16, 8), nn.Conv2d(4, 6, 3)
    layer = {
        "sparse": lambda: SparseLinear.from_dense(linear),
        "int8": lambda: SparseLinear.from_dense(linear).quantise(0.01),
        "blocks": lambda: BlockSparseLinear.from_dense(linear, Block(8, 0.5)),
        "compressed": lambda: CompressedLinear(compress(linear.weight, coding="int4/4"), linear.bias),
        "codebook": lambda: CompressedLinear(compress(linear.weight, coding="codebook8"), linear.bias),
        "convolution": lambda: CompressedConv2d(
            compress(convolution.weight, NMPattern(2, 4, "channels_last")), convolution
        ),
    }[name]()
    layer.load_state_dict(state)
    x = stored["image" if name == "convolution" else "x"]
    torch.testing.assert_close(layer(x).detach(), stored[f"y.{name}"], rtol=1e-5, atol=1e-6)
