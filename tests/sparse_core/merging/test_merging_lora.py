"""LoRA adapters of PEFT added to models as they are read."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sparse_core.merging import merge_files, parse_recipe
from sparse_core.merging.files.models import open_model

CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "alpha_pattern": {"layers.0.mlp": 4}}


def base() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {
        "embed.weight": torch.randn(10, 4),
        "layers.0.mlp.weight": torch.randn(6, 4),
        "layers.1.mlp.weight": torch.randn(6, 4).half(),
        "head.weight": torch.randn(10, 6),
        "norm.weight": torch.randn(6),
    }


def adapter() -> dict[str, Tensor]:
    torch.manual_seed(1)
    found = {"base_model.model.head.weight": torch.randn(10, 6)}
    for layer in (0, 1):
        found[f"base_model.model.layers.{layer}.mlp.lora_A.weight"] = torch.randn(2, 4)
        found[f"base_model.model.layers.{layer}.mlp.lora_B.weight"] = torch.randn(6, 2)
    found["base_model.model.embed.lora_embedding_A"] = torch.randn(2, 10)
    found["base_model.model.embed.lora_embedding_B"] = torch.randn(4, 2)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(base(), tmp_path / "base.safetensors")
    write(tmp_path / "lora", adapter(), CONFIG)
    return tmp_path


def write(folder: Path, tensors: dict[str, Tensor], config: Any) -> None:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("stabilised", [False, True])
def test_an_adapter_is_added_by_its_formula(folder: Path, stabilised: bool) -> None:
    write(folder / "lora", adapter(), {**CONFIG, "use_rslora": stabilised})
    model = open_model(f"{folder / 'base.safetensors'}+{folder / 'lora'}")
    before, factors = base(), adapter()
    rank = math.sqrt(2) if stabilised else 2
    for layer, alpha in ((0, 4), (1, 6)):
        name = f"layers.{layer}.mlp"
        down, up = (factors[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
        expected = before[f"{name}.weight"].float() + alpha / rank * up @ down
        torch.testing.assert_close(model.read(f"{name}.weight"), expected)
    down, up = (factors[f"base_model.model.embed.lora_embedding_{part}"] for part in "AB")
    torch.testing.assert_close(model.read("embed.weight"), before["embed.weight"] + 6 / rank * (up @ down).T)
    assert torch.equal(model.read("head.weight"), factors["base_model.model.head.weight"])
    assert torch.equal(model.read("norm.weight"), before["norm.weight"])


@pytest.mark.parametrize("form", ["text", "mapping"])
def test_recipes_take_models_with_adapters(folder: Path, form: str) -> None:
    file, lora = str(folder / "base.safetensors"), str(folder / "lora")
    model: Any = f"{file}+{lora}" if form == "text" else {"model": {"path": file}, "lora": {"path": lora}}
    recipe = parse_recipe(
        {
            "merge_method": "task_arithmetic",
            "base_model": file,
            "models": [{"model": model, "parameters": {"weight": 0.5}}],
        }
    )
    report = merge_files(recipe, folder / "out.safetensors")
    assert report.models == [f"{file}+{lora}"]
    found, before, adapted = load_file(folder / "out.safetensors"), base(), open_model(f"{file}+{lora}")
    for name, value in before.items():
        expected = value.float() + 0.5 * (adapted.read(name).float() - value.float())
        torch.testing.assert_close(found[name], expected.to(value.dtype))
    with pytest.raises(ValueError, match=r"is or holds the model .*lora that is read"):
        merge_files(recipe, folder / "lora", overwrite=True)


@pytest.mark.parametrize(
    ("tensors", "config", "message"),
    [
        ({}, {"peft_type": "IA3"}, "peft_type: expected LORA, got 'IA3'"),
        ({}, [], "peft_type: expected LORA, got 'list'"),
        ({}, {"use_dora": True}, "use_dora is not supported"),
        ({}, {"lora_alpha": None}, "lora_alpha: expected a number, got None"),
        (
            {"base_model.model.x.lora_A.weight": (2, 4)},
            {},
            "has no counterpart base_model.model.x.lora_B.weight",
        ),
        ({"base_model.model.norm.lora_magnitude": (6,)}, {}, "does not belong to a PEFT LoRA"),
        ({"unknown.weight": (6,)}, {}, "does not belong to a PEFT LoRA"),
        ({"base_model.model.other.weight": (6,)}, {}, "changes 'other.weight', which .* does not have"),
        ({"base_model.model.norm.weight": (5,)}, {}, r"gives 'norm.weight' the shape \(5,\)"),
        ({"base_model.model.layers.0.mlp.lora_A.weight": (3, 4)}, {}, "do not multiply"),
        ({"base_model.model.layers.0.mlp.lora_A.weight": (2, 5)}, {}, r"the shape \(6, 5\)"),
    ],
)
def test_adapters_that_do_not_fit_are_named(
    tensors: dict[str, tuple[int, ...]], config: Any, message: str, folder: Path
) -> None:
    changed = {**adapter(), **{name: torch.zeros(shape) for name, shape in tensors.items()}}
    write(folder / "lora", changed, {**CONFIG, **config} if isinstance(config, dict) else config)
    with pytest.raises(ValueError, match=message):
        open_model(f"{folder / 'base.safetensors'}+{folder / 'lora'}")


def test_missing_and_damaged_files(folder: Path) -> None:
    file = folder / "base.safetensors"
    with pytest.raises(FileNotFoundError, match=r"adapter_config\.json: no such file"):
        open_model(f"{file}+{folder / 'absent'}")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_model(f"{folder / 'nowhere'}+{folder / 'lora'}")
    (folder / "lora/adapter_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"adapter_config\.json: not valid JSON"):
        open_model(f"{file}+{folder / 'lora'}")
    save_file(base(), folder / "a+b.safetensors")
    assert open_model(folder / "a+b.safetensors").read("norm.weight").shape == (6,)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.mlp = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
        self.head = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.mlp(self.embed(x)))


@pytest.mark.slow
@pytest.mark.parametrize("stabilised", [False, True])
def test_models_are_those_that_peft_merges(stabilised: bool, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft = pytest.importorskip("peft", reason="peft is not installed", exc_type=ImportError)
        torch.manual_seed(0)
        net = Net()
        save_file(net.state_dict(), tmp_path / "base.safetensors")
        config = peft.LoraConfig(
            r=3,
            lora_alpha=5,
            target_modules=["embed", "mlp.0", "mlp.1"],
            modules_to_save=["head"],
            use_rslora=stabilised,
            rank_pattern={"mlp.1": 2},
            alpha_pattern={"mlp.1": 7},
        )
        adapted = peft.get_peft_model(net, config)
        with torch.no_grad():
            for parameter in adapted.parameters():
                if parameter.requires_grad:
                    parameter.normal_()
        adapted.save_pretrained(tmp_path / "lora")
        merged = adapted.merge_and_unload()
    model = open_model(f"{tmp_path / 'base.safetensors'}+{tmp_path / 'lora'}")
    for name, expected in merged.state_dict().items():
        torch.testing.assert_close(model.read(name), expected, rtol=0, atol=2e-6)
