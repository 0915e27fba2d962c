"""State dicts with torch's semi-structured tensors: read and written, and files that must be refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.sparse import SparseSemiStructuredTensorCUSPARSELT, SparseSemiStructuredTensorCUTLASS
from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass

from sparse_core.nm import densify, load_packed, nm_mask, prune, save_packed, sparsify
from sparse_core.nm.layers.sparse_linear import SparseLinear

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of SparseSemiStructuredTensor")


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64, bias=False), nn.LayerNorm(64)
    ).half()


def semi_structured(weight: Tensor) -> Tensor:
    """Return what torch makes on a GPU with CUTLASS, made on a CPU."""
    packed, meta = sparse_semi_structured_from_dense_cutlass(weight)
    return SparseSemiStructuredTensorCUTLASS(
        weight.shape, packed=packed, meta=meta, packed_t=None, meta_t=None, compressed_swizzled_bitmask=None
    )


def torch_state(*layers: str) -> tuple[nn.Sequential, dict[str, Any]]:
    """Return a pruned network, and its state dict with some layers semi-structured."""
    model = network(0)
    prune(model, 2, 4)
    state = {
        key: semi_structured(value) if key.removesuffix(".weight") in layers else value
        for key, value in model.state_dict().items()
    }
    return model, state


def test_a_state_dict_is_read(tmp_path: Path) -> None:
    pruned, state = torch_state("0", "2")
    torch.save(state, tmp_path / "model.pt")
    model = load_packed(tmp_path / "model.pt", network(1))
    assert [type(layer) for layer in model] == [SparseLinear, nn.GELU, SparseLinear, nn.LayerNorm]
    restored = densify(model).state_dict()
    for key, value in pruned.state_dict().items():
        assert torch.equal(restored[key], value), key


def test_one_layer(tmp_path: Path) -> None:
    weight = torch.randn(64, 64, dtype=torch.float16)
    weight = weight * nm_mask(weight, 2, 4)
    torch.save({"weight": semi_structured(weight)}, tmp_path / "layer.pt")
    layer = load_packed(tmp_path / "layer.pt", nn.Linear(64, 64, bias=False).half())
    assert isinstance(layer, SparseLinear)
    assert torch.equal(layer.weight, weight)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"0.weight": torch.ones(2, 2)}, "no tensor is semi-structured"),
        ({"0.weight": 3}, "0.weight is a int, not a tensor"),
        ([1, 2], "a list; save model.state_dict"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    torch.save(content, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=message):
        load_packed(tmp_path / "model.pt", network(1))


def test_a_file_runs_no_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    torch.save({"0.weight": Evil()}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match="damaged, or not a state dict"):
        load_packed(tmp_path / "model.pt", network(1))
    assert not (tmp_path / "ran").exists()


def test_a_name_that_is_no_weight(tmp_path: Path) -> None:
    _, state = torch_state("0")
    torch.save({"0.other": state["0.weight"]}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"0\.other: only the weights of Linear layers"):
        load_packed(tmp_path / "model.pt", network(1))


def test_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(ValueError, match=r"model\.pt: damaged"):
        load_packed(tmp_path / "model.pt", network(1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_what_needs_a_gpu(tmp_path: Path) -> None:
    model = network(0)
    prune(model, 2, 4)
    sparsify(model)
    with pytest.raises(ValueError, match=r"layer 0: .* live on a GPU.*model\.to\('cuda'\)"):
        save_packed(model, tmp_path / "model.pt", format="torch")
    assert not (tmp_path / "model.pt").exists()
    made = SparseSemiStructuredTensorCUSPARSELT(
        torch.Size((64, 64)), packed=torch.zeros(3000, dtype=torch.float16), meta=None, packed_t=None,
        meta_t=None, compressed_swizzled_bitmask=None,
    )  # fmt: skip
    torch.save({"0.weight": made}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"0\.weight: torch reads tensors of cuSPARSELt on a GPU only"):
        load_packed(tmp_path / "model.pt", network(1))


@pytest.mark.gpu
@pytest.mark.parametrize("cutlass", [False, True])
def test_written_and_read_on_a_gpu(
    cuda: torch.device, tmp_path: Path, cutlass: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.sparse.SparseSemiStructuredTensor, "_FORCE_CUTLASS", cutlass)
    model = network(0).to(cuda)
    prune(model, 2, 4)
    dense = {key: value.clone() for key, value in model.state_dict().items()}
    x = torch.randn(128, 64, dtype=torch.float16, device=cuda)
    expected = model(x)
    sparsify(model)
    save_packed(model, tmp_path / "model.pt", format="torch")
    # torch runs it without us.
    theirs = network(1).to(cuda)
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    for name in ("0", "2"):
        theirs.get_submodule(name).weight = nn.Parameter(state.pop(f"{name}.weight"), requires_grad=False)
    theirs.load_state_dict(state, strict=False)
    # torch multiplies with CUTLASS on Ampere and Ada only.
    if not cutlass or torch.cuda.get_device_capability(cuda)[0] == 8:
        torch.testing.assert_close(theirs(x), expected, rtol=1e-2, atol=1e-2)
    again = densify(load_packed(tmp_path / "model.pt", network(2).to(cuda))).state_dict()
    for key, value in dense.items():
        assert torch.equal(again[key], value), key
