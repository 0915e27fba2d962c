"""Whole models: which layers, files that come back bit for bit, and files that do not fit."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from sparse_core.compression.model import compress_model
from sparse_core.conv import SubmanifoldConv2d
from sparse_core.nm.layers.assembly import compressed_layers
from sparse_core.nm.packing.files import load_compressed, save_compressed
from sparse_core.nm.packing.model import CompressedModel
from sparse_core.nm.pattern import TWO_FOUR, NMPattern


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        SubmanifoldConv2d(4, 6, bias=True),
        nn.Linear(36, 10),
        nn.Linear(10, 6),
        nn.Embedding(3, 4),
    )


def same(first: CompressedModel, second: CompressedModel) -> None:
    assert first.weights.keys() == second.weights.keys()
    assert first.other.keys() == second.other.keys()
    for name, weight in first.weights.items():
        other = second.weights[name]
        assert (weight.view, weight.pattern, weight.coding, weight.index_coding, weight.zero) == (
            other.view,
            other.pattern,
            other.coding,
            other.index_coding,
            other.zero,
        )
        assert weight.parts().keys() == other.parts().keys()
        for part, tensor in weight.parts().items():
            assert torch.equal(tensor, other.parts()[part]), (name, part)
            assert tensor.dtype == other.parts()[part].dtype
    for name, tensor in first.other.items():
        assert torch.equal(tensor, second.other[name])


@pytest.mark.parametrize("coding", ["float32", "bfloat16", "int8", "int4/8", "codebook8"])
@pytest.mark.parametrize("pattern", [TWO_FOUR, None])
def test_files_come_back_bit_for_bit(
    network: nn.Module, coding: str, pattern: NMPattern | None, tmp_path: Path
) -> None:
    compressed = compress_model(network, pattern, coding, pad=True, other_dtype=torch.float16)
    assert list(compressed.weights) == ["0", "2", "3", "4", "5"]
    file = save_compressed(compressed, tmp_path / "model.safetensors", extra={"note": [1, 2]})
    found = load_compressed(file)
    assert found.extra == {"note": [1, 2]}
    same(compressed, found.model)
    restored = found.model.load_into(copy.deepcopy(network))
    for name, value in compressed.state_dict().items():
        assert torch.equal(restored.state_dict()[name].float(), value.float())
    assert compressed.report is not None
    assert compressed.report.stored_bytes == compressed.nbytes
    assert file.stat().st_size >= compressed.nbytes
    again = save_compressed(found.model, tmp_path / "again.safetensors", extra={"note": [1, 2]})
    same(compressed, load_compressed(again).model)


def test_reports_say_everything(network: nn.Module) -> None:
    report = compress_model(network, {"0": TWO_FOUR, "4": NMPattern(1, 4), "5": None}, "int8").report
    assert report is not None
    text = str(report)
    assert "bits per weight" in text
    assert "the pattern or coding skips it" in text
    assert [layer.pattern for layer in report.layers] == ["2:4", "1:4", "dense"]
    values = json.loads(json.dumps(report.to_json()))
    assert values["stored_bytes"] == report.stored_bytes < values["dense_bytes"]
    assert values["skipped"]["6"] == "Embedding is not among " + values["skipped"]["6"].split("among ")[1]
    dense = sum(tensor.nbytes for tensor in network.state_dict().values())
    assert report.dense_bytes == dense
    assert all(layer.stored_bytes >= layer.theory_bytes for layer in report.layers)


def test_widths_are_skipped_or_padded(network: nn.Module) -> None:
    compressed = compress_model(network, NMPattern(2, 4), "int8")
    assert compressed.report is not None
    assert compressed.report.skipped["5"] == ("its input dimension 10 is not divisible by m=4 (use pad=True)")
    assert "5" in compress_model(network, NMPattern(2, 4), "int8", pad=True).weights


def test_bad_models_are_named(network: nn.Module) -> None:
    with torch.no_grad():
        network[4].weight[0, 0] = float("inf")
    with pytest.raises(ValueError, match="layer 4 holds NaN or infinite"):
        compress_model(network)
    with pytest.raises(ValueError, match="layer 5: a codebook of 200 entries"):
        compress_model(network, None, "codebook200", select="5")
    with pytest.raises(TypeError, match=r"pattern must be NMPattern\(n, m\) or None, got 'int8'"):
        compress_model(network, "int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pattern names layers that the model does not have: nine"):
        compress_model(network, {"nine": TWO_FOUR})
    with pytest.raises(ValueError, match=r"no layer can be compressed: .*divisible"):
        compress_model(network, NMPattern(2, 7), select="^5$")
    with torch.no_grad():
        network[4].weight[0, 0] = 0
        network[1].running_var[2] = 1e30
    with pytest.raises(ValueError, match=r"1\.running_var holds .* other_dtype=torch.float32"):
        compress_model(network, other_dtype=torch.float16, pad=True)


def test_another_network_is_refused_and_stays(network: nn.Module) -> None:
    compressed = compress_model(network, pad=True)
    other = nn.Sequential(nn.Linear(4, 4))
    before = other[0].weight.clone()
    with pytest.raises(ValueError, match="another network: 0 tensors missing"):
        compressed.load_into(other)
    assert torch.equal(other[0].weight, before)


@pytest.fixture
def file(network: nn.Module, tmp_path: Path) -> Path:
    return save_compressed(compress_model(network, pad=True), tmp_path / "model.safetensors")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_truncated_files_are_refused(file: Path, share: float) -> None:
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(ValueError, match=r"model\.safetensors: damaged, or not a safetensors file"):
        load_compressed(file)


def rewrite(file: Path, change: object) -> None:
    """Write a file again after ``change`` (a function of header and tensors) has been at it."""
    with safe_open(str(file), framework="pt") as stored:
        header = dict(stored.metadata())
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    change(header, tensors)  # type: ignore[operator]
    save_file(tensors, str(file), metadata=header)


def _record(header: dict[str, str], name: str, **fields: object) -> None:
    layers = json.loads(header["layers"])
    layers[name].update(fields)
    header["layers"] = json.dumps(layers)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t: h.update(format="other"), "format is 'other'"),
        (lambda h, t: h.update(version="2"), "version is '2'"),
        (lambda h, t: h.update(layers="{"), "the header is damaged: layers is missing or not JSON"),
        (lambda h, t: h.update(layers="[]"), "must be a JSON object"),
        (lambda h, t: h.pop("extra"), "extra is missing"),
        (lambda h, t: t.pop("4.weight@values"), "layer 4: the tensor of its values is missing"),
        (lambda h, t: t.pop("4.weight@scale"), "layer 4: scale is missing"),
        (lambda h, t: t["4.weight@values"].add_(1), "layer 4: its checksum"),
        (lambda h, t: t.update({"9.weight@values": torch.ones(1)}), "9.weight@values belongs to no layer"),
        (lambda h, t: _record(h, "4", n=3), "layer 4: index must be|layer 4: values must be"),
        (lambda h, t: _record(h, "4", shape=[10, 40]), "layer 4: "),
        (lambda h, t: _record(h, "4", layout="sideways"), "layer 4: layout must be one of"),
        (lambda h, t: _record(h, "4", coding={"kind": "int3"}), "layer 4: kind must be one of"),
        (lambda h, t: _record(h, "4", coding={"sort": 1}), "layer 4: "),
        (lambda h, t: h.update(layers=json.dumps({"4": {}})), "layer 4: the field 'shape' is missing"),
    ],
)
def test_files_that_do_not_fit_say_where(file: Path, change: object, message: str) -> None:
    rewrite(file, change)
    with pytest.raises(ValueError, match=message) as caught:
        load_compressed(file)
    assert str(file) in str(caught.value)


def test_other_paths_are_refused(file: Path, network: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_compressed(tmp_path / "none.safetensors")
    with pytest.raises(FileNotFoundError, match="create it first"):
        save_compressed(compress_model(network, pad=True), tmp_path / "none" / "x.safetensors")
    save_file({"a": torch.ones(1)}, str(tmp_path / "foreign.safetensors"))
    with pytest.raises(ValueError, match="save_compressed or save_packed did not write it"):
        load_compressed(tmp_path / "foreign.safetensors")


class Tied(nn.Module):
    """A pair of layers with one weight, a layer under two names, and a tied embedding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)
        self.right.weight = self.left.weight
        self.shared = nn.Linear(8, 8)
        self.again = self.shared
        self.embedding, self.head = nn.Embedding(6, 8), nn.Linear(8, 6, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.again(self.shared(self.right(self.left(x).relu()))))


@pytest.mark.parametrize("coding", ["int8", "codebook"])
def test_tied_tensors_are_stored_once_and_stay_tied(coding: str, tmp_path: Path) -> None:
    model = Tied()
    compressed = compress_model(model, coding=coding)
    assert set(compressed.weights) == {"left", "shared"}
    assert set(compressed.other) == {"left.bias", "right.bias", "shared.bias", "embedding.weight"}
    loaded = load_compressed(save_compressed(compressed, tmp_path / "tied.safetensors")).model
    assert loaded.tied == compressed.tied
    assert loaded.tied["head.weight"] == "embedding.weight"
    x = torch.randn(5, 8)
    plain = loaded.load_into(Tied())
    weight = compressed.weights["left"].to_dense()
    assert torch.equal(plain.left.weight, weight)
    assert plain.right.weight is plain.left.weight
    layers = compressed_layers(Tied(), loaded, train_codebook=coding == "codebook")
    assert layers.again is layers.shared
    assert torch.equal(layers.right.weight, weight)
    assert layers.right.values.data_ptr() == layers.left.values.data_ptr()
    torch.testing.assert_close(layers(x), plain(x))
    if coding == "codebook":
        assert layers.right.centroids is layers.left.centroids
        assert len(list(layers.parameters())) == 6


def test_a_tie_to_nothing_is_named(tmp_path: Path) -> None:
    compressed = compress_model(Tied())
    compressed.tied["head.weight"] = "nowhere"
    with pytest.raises(ValueError, match=r"tied: 'head\.weight' refers to 'nowhere'"):
        load_compressed(save_compressed(compressed, tmp_path / "tied.safetensors"))
