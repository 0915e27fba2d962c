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

from sparse_core.nm.layers import SparseLinear
from sparse_core.nm.layers.block_linear import BlockSparseLinear
from sparse_core.nm.layers.conversion import densify, packed_layers, sparsify
from sparse_core.nm.layers.files import load_packed, packed_size_report, read_packed, save_packed
from sparse_core.nm.packing.state_files import LayerRecord, record_of
from sparse_core.nm.pattern import Block, NMPattern


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """See ``one_thread``."""
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
    header = read_packed(path)
    assert header.layers["0"] == LayerRecord("nm", (64, 32), True, "torch.float32", 2, 4)
    assert header.layers["2"].blocks == 8


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
        assert record_of(loaded) == record_of(layer)


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
    # Only the extra state, which is made anew for each name, is there twice.
    assert [name for name in load_file(path) if name.startswith("b.")] == ["b._extra_state"]
    assert "d.weight" not in load_file(path)
    other = make(1)
    other.register_buffer("view", torch.zeros(3))
    load_packed(path, other)
    assert other["a"] is other["b"]
    assert other["c"].weight is other["d"].weight
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


def test_sizes_of_model_and_file_agree(tmp_path: Path) -> None:
    model = converted()
    dense = sum(value.nbytes for value in build().state_dict().values())
    report = packed_size_report(model)
    states = sum(layer.get_extra_state().nbytes for layer in packed_layers(model).values())
    assert report.dense_bytes == dense + states
    assert report.packed_bytes == sum(value.nbytes for value in model.state_dict().values())
    path = save_packed(model, tmp_path / "model.safetensors")
    assert packed_size_report(path) == report
    assert path.stat().st_size - report.packed_bytes < 4096
    first = report.layers[0]
    assert (first.dense_bytes, first.packed_bytes) == (64 * 32 * 4, 64 * 16 * 4 + 64 * 4)
    text = str(report)
    for word in ("2:4", "16x16 blocks", "1:8", "other tensors", f"{report.packed_bytes:,}"):
        assert word in text
    assert json.loads(json.dumps(report.to_json()))["packed_bytes"] == report.packed_bytes
    quantised = SparseLinear.from_dense(nn.Linear(16, 8).half()).quantise()
    assert packed_size_report(quantised).layers[0].dense_bytes == 16 * 8 * 2
    assert packed_size_report(quantised).layers[0].pattern == "2:4 int8"
    with pytest.raises(ValueError, match="no packed layer"):
        packed_size_report(build())


def test_an_existing_file_is_replaced_and_failures_leave_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    save_packed(converted(seed=1), path)
    model = converted()
    save_packed(model, path)
    assert torch.equal(read_packed(path).tensors["0.values"], model[0].values)
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
    whole = path.read_bytes()
    for size in (0, 7, 300, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused(path, build(), "damaged or no safetensors file")
    path.write_bytes(b"\x00" * 64)
    refused(path, build(), "damaged or no safetensors file")
    save_file({"weight": torch.zeros(3)}, path)
    refused(path, build(), "format is None, not 'sparsight-nm'")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_packed(tmp_path / "missing.safetensors", build())
    with pytest.raises(FileNotFoundError, match="a folder, not a file"):
        load_packed(tmp_path, build())


LAYER = LayerRecord("nm", (64, 32), True, "torch.float32", 2, 4).to_json()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", "2", "version is '2', this release reads '1'"),
        ("version", None, "version is None"),
        ("format", "gguf", "format is 'gguf'"),
        ("layers", None, "layers is missing or not JSON"),
        ("layers", "{", "layers is missing or not JSON"),
        ("layers", "[]", "layers must be a JSON object, got list"),
        ("layers", '{"0": 3}', "must be described by an object, got int"),
        ("layers", '{"0": {"kind": "nm"}}', "a field is missing"),
        ("layers", json.dumps({"0": {**LAYER, "colour": 1}}), "unknown"),
        ("layers", json.dumps({"0": {**LAYER, "kind": "csr"}}), "kind cannot be 'csr'"),
        ("layers", json.dumps({"0": {**LAYER, "shape": [64, -4]}}), "shape cannot be"),
        ("layers", json.dumps({"0": {**LAYER, "shape": "ab"}}), "shape cannot be"),
        ("layers", json.dumps({"0": {**LAYER, "dtype": "torch.int3"}}), "dtype cannot be 'torch.int3'"),
        ("layers", json.dumps({"0": {**LAYER, "m": 5}}), "m cannot be 5"),
        ("layers", json.dumps({"0": {**LAYER, "n": "2"}}), "m cannot be 4"),
        ("layers", json.dumps({"0": {**LAYER, "activation": "tanh"}}), "activation cannot be"),
        ("layers", json.dumps({"0": {**LAYER, "kind": "blocks", "block_size": 7}}), "block_size cannot be 7"),
        (
            "layers",
            json.dumps({"0": {**LAYER, "kind": "blocks", "block_size": 16, "blocks": 9}}),
            "blocks cannot be 9",
        ),
        ("tied", '{"a": "b"}', "'a' is said to share 'b'"),
        ("tied", "3", "tied must be a JSON object"),
    ],
)
def test_damaged_headers_are_refused(tmp_path: Path, field: str, value: str | None, message: str) -> None:
    path = save_packed(converted(), tmp_path / "model.safetensors")
    rewrite(path, {field: value})
    refused(path, build(), message)


def test_models_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = save_packed(converted(), tmp_path / "model.safetensors")
    refused(
        path, nn.Sequential(*list(build())[:3]), "layer 4 is missing from the model; the file has it as 1:8"
    )
    other = build()
    other[2] = nn.Identity()
    refused(path, other, "layer 2 is Identity in the model; the file has it as 16x16 blocks")
    other = build()
    other[0] = nn.Linear(36, 64)
    refused(path, other, r"layer 0 is \(64, 32\) with bias in the file but \(64, 36\) with bias in the model")
    refused(path, build(bias=False), r"layer 0 is .* but \(64, 32\) without bias")
    other = build()
    other.append(nn.Linear(6, 2))
    refused(path, other, r"2 tensors missing \(first: '5.bias'\)")
    other = build()
    other[1] = nn.Identity()
    refused(path, other, r"5 that the model does not have \(first: '1.bias'\)")
    other = build()
    other[1] = nn.BatchNorm1d(32)
    refused(path, other, r"'1\.\w+' has shape \(64,\), the model has \(32,\)")


def test_damaged_tensors_are_refused(tmp_path: Path) -> None:
    model = converted()
    path = save_packed(model, tmp_path / "model.safetensors")
    whole = path.read_bytes()
    state = model.state_dict()

    def damaged(message: str, **tensors: Tensor | None) -> None:
        path.write_bytes(whole)
        rewrite(path, **tensors)
        refused(path, build(), message)

    damaged("layer 0: .*metadata of the packed weight are damaged", **{"0.metadata": state["0.metadata"] * 0})
    damaged("layer 2: .*block structure is damaged", **{"2.col": state["2.col"] + 50})
    damaged(r"1 tensors missing \(first: '0.metadata'\)", **{"0.metadata": None})
    damaged(r"'0\.values' has shape \(64, 8\)", **{"0.values": torch.zeros(64, 8)})
    damaged("layer 0: .*format version 9", **{"0._extra_state": torch.tensor([9, 2, 4])})
    damaged(r"layer 0: .*stored values are torch\.int8", **{"0.values": state["0.values"].to(torch.int8)})


def test_what_cannot_be_saved(tmp_path: Path) -> None:
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


def test_empty_layers_of_a_record_can_be_called() -> None:
    for pattern in (NMPattern(2, 4), Block(32, 0.5)):
        model = nn.Sequential(nn.Linear(40, 72))
        sparsify(model, pattern)
        empty = record_of(model[0]).empty_layer(torch.float64, torch.device("cpu"))
        assert isinstance(empty, BlockSparseLinear | SparseLinear)
        assert torch.equal(
            empty(torch.ones(2, 40, dtype=torch.float64)), torch.zeros(2, 72, dtype=torch.float64)
        )
        assert empty.values.shape == model[0].values.shape
