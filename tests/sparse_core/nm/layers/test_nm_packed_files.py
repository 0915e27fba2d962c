"""Files of converted models: round trips, sizes, and files that must be refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sparse_core.common.surgery import share_weight
from sparse_core.compression import compress_model, compressed_layers
from sparse_core.nm.layers.conversion import densify, sparsify
from sparse_core.nm.layers.files import load_packed, save_packed
from sparse_core.nm.layers.sparse_linear import SparseLinear
from sparse_core.nm.packing.files import load_compressed
from sparse_core.nm.pattern import Block, NMPattern


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def build(seed: int = 0, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(32, 64, bias=bias), nn.BatchNorm1d(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6)
    )


PATTERNS = {"0": NMPattern(2, 4), "2": Block(16, 0.5), "4": NMPattern(1, 8)}


def converted(seed: int = 0, bias: bool = True) -> nn.Sequential:
    model = build(seed, bias)
    model(torch.randn(8, 32))
    sparsify(model, PATTERNS)
    return model.eval()


def rewrite(path: Path, header: dict[str, str | None] | None = None, **tensors: Tensor | None) -> None:
    """Write the file again with other header fields and tensors; ``None`` takes one out."""
    with safe_open(str(path), framework="pt") as stored:
        fields = {**stored.metadata(), **(header or {})}
    found = {**load_file(path), **tensors}
    save_file(
        {name: value for name, value in found.items() if value is not None},
        path,
        metadata={name: value for name, value in fields.items() if value is not None},
    )


def test_round_trip_into_a_dense_model(tmp_path: Path) -> None:
    model = converted()
    path = save_packed(model, tmp_path / "model.safetensors")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]
    fresh = build(seed=1).eval()
    loaded = load_packed(path, fresh)
    assert loaded is fresh
    x = torch.randn(5, 32)
    assert torch.equal(loaded(x), model(x))
    assert [type(layer) for layer in loaded] == [type(layer) for layer in model]
    assert loaded[0].values.requires_grad
    assert not loaded[0].training
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    # The model has the layers already: it is only loaded.
    again = load_packed(path, converted(seed=2))
    assert torch.equal(again(x), model(x))
    dense = densify(again)
    torch.testing.assert_close(dense(x), model(x))


def test_quantised_fused_and_single_layers(tmp_path: Path) -> None:
    linear = nn.Linear(16, 8)
    x = torch.randn(3, 16)
    for layer in (
        SparseLinear.from_dense(linear, activation="gelu"),
        SparseLinear.from_dense(linear, activation="relu").quantise(0.03),
        SparseLinear.from_dense(linear).quantise(),
    ):
        path = save_packed(layer, tmp_path / "layer.safetensors")
        loaded = load_packed(path, nn.Linear(16, 8))
        assert type(loaded) is type(layer)
        assert torch.equal(loaded(x), layer(x))
        assert loaded.settings == layer.settings


def test_type_of_the_model_is_kept(tmp_path: Path) -> None:
    model = converted().bfloat16()
    path = save_packed(model, tmp_path / "model.safetensors")
    loaded = load_packed(path, build(seed=1))
    assert loaded[0].values.dtype == torch.float32
    assert torch.equal(loaded[0].weight, model[0].weight.float())
    assert torch.equal(loaded[2].weight, model[2].weight.float())


def test_shared_modules_and_tied_tensors_are_stored_once(tmp_path: Path) -> None:
    def make(seed: int) -> nn.ModuleDict:
        torch.manual_seed(seed)
        shared = nn.Linear(16, 16)
        model = nn.ModuleDict({"a": shared, "b": shared, "c": nn.Linear(16, 16), "d": nn.Linear(16, 16)})
        model["d"].weight = model["c"].weight
        return model

    model = make(0)
    sparsify(model, select="a")
    # A view into a larger buffer.
    model.register_buffer("view", torch.arange(10.0)[2:5])
    path = save_packed(model, tmp_path / "model.safetensors")
    assert [name for name in load_file(path) if name.startswith(("b.", "d."))] == ["d.bias"]
    other = make(1)
    other.register_buffer("view", torch.zeros(3))
    load_packed(path, other)
    assert other["a"] is other["b"]
    assert other["c"].weight is other["d"].weight
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


def test_an_existing_file_is_replaced_and_failures_leave_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    save_packed(converted(seed=1), path)
    model = converted()
    save_packed(model, path)
    assert torch.equal(load_compressed(path).model.weights["0"].values, model[0].values)
    before = path.read_bytes()

    def broken(*arguments: Any, **options: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("safetensors.torch.save_file", broken)
    with pytest.raises(OSError, match="disk full"):
        save_packed(converted(seed=1), path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def refused(path: Path, model: nn.Module, message: str) -> None:
    """Loading fails with a message that names the file, and changes nothing."""
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=message) as caught:
        load_packed(path, model)
    assert str(path) in str(caught.value)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = save_packed(converted(), tmp_path / "model.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    refused(path, build(), "damaged, or not a safetensors file")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_packed(tmp_path / "missing", build())


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("0", {"layer": {"kind": "csr"}}, "layer 0: kind of a layer cannot be 'csr'"),
        ("0", {"layer": {"kind": "nm", "colour": 1}}, "layer 0: .*colour"),
        ("0", {"layer": {"kind": "nm", "dtype": "torch.int3"}}, "dtype of a layer cannot be 'torch.int3'"),
        ("0", {"layer": {"kind": "nm", "activation": "tanh"}}, "activation of a layer cannot be 'tanh'"),
        ("0", {"layer": {"kind": "int8", "input_scale": 0}}, "input_scale of a layer cannot be 0"),
        ("0", {"layer": {"kind": "int8"}}, "values are stored as float32, not as integers"),
        ("0", {"m": 5}, "layer 0: (index|values) must be"),
        ("2", {"blocks": 7}, "layer 2: blocks of 7x7 do not fit"),
        ("2", {"shape": [64]}, "layer 2: blocks of 16x16 do not fit"),
    ],
)
def test_damaged_records_are_refused(tmp_path: Path, name: str, fields: dict[str, Any], message: str) -> None:
    path = save_packed(converted(), tmp_path / "model.safetensors")
    with safe_open(str(path), framework="pt") as stored:
        layers = json.loads(stored.metadata()["layers"])
    layers[name].update(fields)
    rewrite(path, {"layers": json.dumps(layers)})
    refused(path, build(), message)


def test_models_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = save_packed(converted(), tmp_path / "model.safetensors")
    with pytest.raises(TypeError, match=r"the path comes first: load_packed\(path, model\)"):
        load_packed(build(), path)  # type: ignore[arg-type]
    refused(path, nn.Sequential(*list(build())[:3]), r"2 that the model does not have \(first: '4.bias'\)")
    for place, module, message in (
        (0, nn.Linear(36, 64), r"'0.weight' has shape \(64, 32\), the model has \(64, 36\)"),
        (2, nn.Conv1d(64, 64, 1), r"'2.weight' has shape \(64, 64\), the model has \(64, 64, 1\)"),
        (2, nn.Embedding(64, 64), r"1 that the model does not have \(first: '2.bias'\)"),
        (1, nn.Identity(), r"5 that the model does not have \(first: '1.bias'\)"),
        (1, nn.BatchNorm1d(32), r"'1\.\w+' has shape \(64,\), the model has \(32,\)"),
    ):
        other = build()
        other[place] = module
        refused(path, other, message)
    refused(path, build(bias=False), r"1 that the model does not have \(first: '0.bias'\)")
    refused(path, build().append(nn.Linear(6, 2)), r"2 tensors missing \(first: '5.bias'\)")

    class Table(nn.Embedding):
        def __init__(self) -> None:
            super().__init__(64, 64)
            self.bias = nn.Parameter(torch.zeros(64))

    other = build()
    other[2] = Table()
    refused(path, other, "layer 2 is Table in the model, not nn.Linear")


def test_damaged_tensors_are_refused(tmp_path: Path) -> None:
    path = save_packed(converted(), tmp_path / "model.safetensors")
    whole, tensors = path.read_bytes(), load_file(path)

    def damaged(message: str, **changed: Tensor | None) -> None:
        path.write_bytes(whole)
        rewrite(path, **changed)
        refused(path, build(), message)

    damaged("layer 2: .*block structure is damaged", **{"2.weight@col": tensors["2.weight@col"] + 50})
    damaged("layer 2: the tensor of its row_ptr is missing", **{"2.weight@row_ptr": None})


def test_invalid_models_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no packed layer"):
        save_packed(build(), tmp_path / "model.safetensors")
    with pytest.raises(FileNotFoundError, match=r"the folder .* does not exist"):
        save_packed(converted(), tmp_path / "missing" / "model.safetensors")

    class Odd(nn.Module):
        def get_extra_state(self) -> dict[str, int]:
            return {"a": 1}

    with pytest.raises(ValueError, match=r"odd\._extra_state of the state dict is dict"):
        save_packed(nn.ModuleDict({"linear": converted()[0], "odd": Odd()}), tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_layers_that_share_a_weight_share_it_again(tmp_path: Path) -> None:
    model = nn.Sequential(SparseLinear.from_dense(nn.Linear(16, 16)), nn.Linear(16, 16))
    model[1] = SparseLinear.from_dense(nn.Linear(16, 16), activation="relu")
    share_weight(model[1], model[0])
    path = save_packed(model, tmp_path / "model.safetensors")
    loaded = load_packed(path, nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)))
    assert loaded[1].values is loaded[0].values
    assert (loaded[0].activation, loaded[1].activation) == (None, "relu")
    x = torch.randn(3, 16)
    assert torch.equal(loaded(x), model(x))


def test_infinite_values_of_a_layer_come_back(tmp_path: Path) -> None:
    layer = SparseLinear.from_dense(nn.Linear(16, 8).double())
    with torch.no_grad():
        layer.values[0, 0] = float("inf")
    loaded = load_packed(save_packed(layer, tmp_path / "layer.safetensors"), nn.Linear(16, 8).double())
    assert torch.equal(loaded.weight, layer.weight)


def test_compressed_layers_are_saved_and_made_dense(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(8 * 16, 6))
    packed = compressed_layers(copy.deepcopy(model), compress_model(model, coding="int4"))
    path = save_packed(packed, tmp_path / "model.safetensors")
    loaded = load_packed(path, copy.deepcopy(model))
    x = torch.randn(2, 4, 6, 6)
    assert torch.equal(loaded(x), packed(x))
    dense = densify(loaded)
    assert [type(layer) for layer in dense] == [type(layer) for layer in model]
    torch.testing.assert_close(dense(x), packed(x))
