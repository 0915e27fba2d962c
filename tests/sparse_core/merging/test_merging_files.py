"""Merging on disk: the same as in memory, in little memory, and nothing half-written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sparse_core.merging import disk as streaming
from sparse_core.merging.api import merge
from sparse_core.merging.cli import main
from sparse_core.merging.disk import make_task_vector, merge_files
from sparse_core.merging.files.models import INDEX_NAME, open_model
from sparse_core.merging.files.tensor_files import TensorFileReader, TensorFileWriter
from sparse_core.merging.methods import find_method
from sparse_core.merging.recipes.recipe import parse_recipe
from sparse_core.merging.task_vector import TaskVector

State = dict[str, torch.Tensor]


def state(seed: int, dtype: torch.dtype = torch.float32) -> State:
    generator = torch.Generator().manual_seed(seed)
    made = {
        f"layers.{layer}.{name}": torch.randn(shape, generator=generator).to(dtype)
        for layer in range(3)
        for name, shape in (("attn.weight", (40, 30)), ("mlp.weight", (50, 40)), ("mlp.bias", (50,)))
    }
    return {
        "embed.weight": torch.randn(20, 10, generator=generator).to(dtype),
        **made,
        "steps": torch.tensor([seed]),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models ``base``, ``a`` and ``b``: a file, a folder, and a folder of shards."""
    save_file(state(0), tmp_path / "base.safetensors", metadata={"format": "pt"})
    (tmp_path / "a").mkdir()
    save_file(state(1), tmp_path / "a/model.safetensors")
    sharded = state(2)
    (tmp_path / "b").mkdir()
    names = list(sharded)
    weight_map = {}
    for number, part in enumerate((names[:4], names[4:])):
        file = f"part-{number}.safetensors"
        save_file({name: sharded[name] for name in part}, tmp_path / "b" / file)
        weight_map.update(dict.fromkeys(part, file))
    (tmp_path / "b" / INDEX_NAME).write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def recipe_values(folder: Path, method: str = "ties", **parameters: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "merge_method": method,
        "base_model": str(folder / "base.safetensors"),
        "models": [{"model": str(folder / name)} for name in ("a", "b")],
        "parameters": {"weight": 0.6, "density": 0.3, **parameters},
    }
    if method == "slerp":
        values["models"].pop()
        values["parameters"] = {"t": 0.3}
    if method in ("linear", "karcher"):
        # It would be a model like the others.
        del values["base_model"]
    return values


def load_folder(path: Path) -> State:
    return {name: value for file in path.glob("*.safetensors") for name, value in load_file(file).items()}


@pytest.mark.parametrize(
    "method",
    [
        "task_arithmetic",
        "ties",
        "dare_linear",
        "dare_ties",
        "breadcrumbs",
        "breadcrumbs_ties",
        "della",
        "linear",
        "slerp",
        "nuslerp",
        "model_stock",
        "karcher",
        "sce",
    ],
)
def test_files_give_what_memory_gives(folder: Path, method: str) -> None:
    recipe = parse_recipe(recipe_values(folder, method, seed=4))
    report = merge_files(recipe, folder / "out", max_shard_bytes=12_000)
    base, tuned = state(0), [state(1), state(2)][: 1 if method == "slerp" else 2]
    weight = 0.3 if method == "slerp" else 0.6
    vectors = [TaskVector.between(base, model) for model in tuned]
    # Recipes mean what they mean to mergekit, which rescales DARE in another way than its authors.
    rescale = "l1" if method.startswith("dare") else None
    density = 0.3 if "density" in find_method(method).parameters else 1.0
    expected = merge(base, vectors, method, weight, density, 4, rescale=rescale)
    found = load_folder(folder / "out")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        same = 1 if method in ("linear", "karcher") and name == "steps" else None
        torch.testing.assert_close(
            found[name], value if same is None else torch.tensor([same]), rtol=0, atol=2e-6
        )
    index = json.loads((folder / "out" / INDEX_NAME).read_text())
    assert set(index["weight_map"]) == set(expected)
    assert (
        set(index["weight_map"].values())
        == set(report.files)
        == {file.name for file in (folder / "out").glob("*.safetensors")}
    )
    assert len(report.files) > 2
    for file in report.files:
        with safe_open(folder / "out" / file, "pt") as stored:
            names = list(stored.keys())
            assert len(names) == 1 or sum(stored.get_tensor(name).nbytes for name in names) <= 12_000
    assert index["metadata"]["total_size"] == report.nbytes == sum(value.nbytes for value in found.values())


def test_filters_gradients_types_and_companions(folder: Path) -> None:
    (folder / "base").mkdir()
    save_file(state(0), folder / "base/model.safetensors")
    (folder / "base/config.json").write_text("{}")
    (folder / "base/notes.md").write_text("")
    values = recipe_values(folder, "task_arithmetic")
    values["base_model"] = str(folder / "base")
    values["models"][0]["parameters"] = {"weight": [{"filter": "mlp", "value": [0, 1]}, {"value": 0.25}]}
    values["models"][1]["parameters"] = {"weight": 0}
    values["dtype"] = "float16"
    report = merge_files(parse_recipe(values), folder / "out")
    assert sorted(file.name for file in (folder / "out").iterdir()) == ["config.json", "model.safetensors"]
    found, base, tuned = load_folder(folder / "out"), state(0), state(1)
    for name, share in (
        ("layers.0.mlp.weight", 0.0),
        ("layers.1.mlp.bias", 0.5),
        ("layers.2.mlp.weight", 1.0),
        ("layers.2.attn.weight", 0.25),
        ("embed.weight", 0.25),
    ):
        torch.testing.assert_close(
            found[name], torch.lerp(base[name], tuned[name], share).half(), rtol=0, atol=2e-3
        )
    assert (report.tensors, report.copied, report.layers) == (11, 1, 3)
    assert found["steps"].dtype == torch.int64


def test_task_vector_files_take_the_place_of_models(folder: Path) -> None:
    report = make_task_vector(
        folder / "base.safetensors", folder / "a", folder / "v.safetensors", density=0.3
    )
    assert report.entries == sum(
        int(0.3 * value.numel()) for name, value in state(0).items() if name != "steps"
    )
    values = recipe_values(folder)
    values["models"][0]["model"] = str(folder / "v.safetensors")
    merge_files(parse_recipe(values), folder / "out.safetensors")
    expected = merge(
        state(0), [TaskVector.between(state(0), state(seed)) for seed in (1, 2)], "ties", 0.6, 0.3
    )
    found = load_file(folder / "out.safetensors")
    for name, value in expected.items():
        # int8 is off by half of 1/127 of the largest in the group.
        torch.testing.assert_close(found[name], value, rtol=0, atol=0.05)
    values["merge_method"] = "linear"
    with pytest.raises(ValueError, match="linear takes whole models"):
        merge_files(parse_recipe(values), folder / "other.safetensors")


@pytest.mark.parametrize("out", ["out", "out.safetensors"])
def test_nothing_is_left_when_a_merge_fails(folder: Path, out: str) -> None:
    broken = state(1)
    broken["layers.2.mlp.weight"][3, 4] = torch.nan
    save_file(broken, folder / "a/model.safetensors")
    before = sorted(folder.rglob("*"))
    with pytest.raises(ValueError, match=r"a: tensor 'layers.2.mlp.weight' holds NaN or infinity"):
        merge_files(parse_recipe(recipe_values(folder)), folder / out)
    for method in ("task_arithmetic", "dare_ties", "linear", "slerp"):
        with pytest.raises(ValueError, match=r"'layers.2.mlp.weight',? holds NaN"):
            merge_files(parse_recipe(recipe_values(folder, method)), folder / out)
    assert sorted(folder.rglob("*")) == before


def test_numbers_too_large_for_the_type(folder: Path) -> None:
    values = {**recipe_values(folder, "task_arithmetic", weight=1e6), "dtype": "float16"}
    with pytest.raises(ValueError, match="more than float16 holds"):
        merge_files(parse_recipe(values), folder / "out")


def test_other_tensors_and_shapes_are_named(folder: Path) -> None:
    other = state(1)
    del other["layers.1.mlp.bias"]
    save_file(other, folder / "a/model.safetensors")
    with pytest.raises(ValueError, match=r"a has other tensors than .*base.safetensors: 1 tensors missing"):
        merge_files(parse_recipe(recipe_values(folder)), folder / "out")
    save_file({**state(1), "layers.1.mlp.bias": torch.ones(3)}, folder / "a/model.safetensors")
    with pytest.raises(ValueError, match=r"a has other .*: tensor 'layers.1.mlp.bias' has shape \(3,\)"):
        merge_files(parse_recipe(recipe_values(folder)), folder / "out")
    assert not (folder / "out").exists()


def test_damaged_and_absent_models(folder: Path) -> None:
    file = folder / "a/model.safetensors"
    raw = file.read_bytes()
    for end in (0, 7, 100, len(raw) - 1):
        file.write_bytes(raw[:end])
        with pytest.raises(ValueError, match=r"model\.safetensors: truncated"):
            open_model(folder / "a")
    file.write_bytes(raw.replace(b'"F32"', b'"F99"', 1))
    with pytest.raises(ValueError, match=r"damaged header: tensor 'embed.weight': dtype"):
        open_model(file)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"no \*\.safetensors"):
        open_model(folder / "a")
    (folder / "a/pytorch_model.bin").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="save them as safetensors first"):
        open_model(folder / "a")
    with pytest.raises(ValueError, match="pickled weights"):
        open_model(folder / "a/pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match="download them first"):
        open_model("organisation/model-7b")
    (folder / "b/part-1.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"part-1\.safetensors: no such file"):
        open_model(folder / "b")
    (folder / "b" / INDEX_NAME).write_text('{"weight_map": {"x": "../a/model.safetensors"}}')
    with pytest.raises(ValueError, match="is not a file in the index's folder"):
        open_model(folder / "b")
    (folder / "b" / INDEX_NAME).write_text("{}")
    with pytest.raises(ValueError, match="weight_map is missing or damaged"):
        open_model(folder / "b")


def test_targets_are_not_overwritten_by_default(folder: Path) -> None:
    recipe = parse_recipe(recipe_values(folder))
    merge_files(recipe, folder / "out")
    (folder / "out/old.txt").write_text("")
    with pytest.raises(FileExistsError, match="exists"):
        merge_files(recipe, folder / "out")
    merge_files(recipe, folder / "out", overwrite=True)
    assert [file.name for file in (folder / "out").iterdir()] == ["model.safetensors"]
    for out in ("a", "base.safetensors", "a/model.safetensors"):
        with pytest.raises((ValueError, FileExistsError)):
            merge_files(recipe, folder / out, overwrite=out != "a/model.safetensors")
    with pytest.raises(FileNotFoundError, match="create it first"):
        merge_files(recipe, folder / "no/out")
    with pytest.raises(ValueError, match="no output path"):
        merge_files(recipe)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_dry_run_reads_headers_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TensorFileReader, "read", lambda self, name: pytest.fail("a tensor was read"))
    report = merge_files(parse_recipe(recipe_values(folder)), folder / "out", dry_run=True)
    assert not report.written
    assert not (folder / "out").exists()
    assert "would write" in str(report)


def test_layer_ranges_must_cover_the_model(folder: Path) -> None:
    values = recipe_values(folder)
    sources = [{**entry, "layer_range": [0, 3]} for entry in values.pop("models")]
    values["slices"] = [{"sources": sources}]
    merge_files(parse_recipe(values), folder / "out", dry_run=True)
    for entry in sources:
        entry["layer_range"] = [0, 2]
    with pytest.raises(ValueError, match="not all of the 3 layers"):
        merge_files(parse_recipe(values), folder / "out", dry_run=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types_on_disk_stay(tmp_path: Path, dtype: torch.dtype) -> None:
    for seed, name in enumerate(("base", "a", "b")):
        save_file(state(seed, dtype), tmp_path / f"{name}.safetensors")
    values = recipe_values(tmp_path)
    for entry in values["models"]:
        entry["model"] += ".safetensors"
    merge_files(parse_recipe(values), tmp_path / "out.safetensors")
    vectors = [TaskVector.between(state(0, dtype), state(seed, dtype)) for seed in (1, 2)]
    expected = merge(state(0, dtype), vectors, "ties", 0.6, 0.3)
    found = load_file(tmp_path / "out.safetensors")
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_files_that_others_wrote_unaligned_are_read(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    header = header.ljust(len(header) + (1 - len(header)) % 4)
    raw = len(header).to_bytes(8, "little") + header + torch.tensor([1.5, -2.0]).numpy().tobytes()
    (tmp_path / "x.safetensors").write_bytes(raw)
    reader = TensorFileReader(tmp_path / "x.safetensors")
    assert reader.tensors["a"].offset % 4 == 1
    assert reader.read("a").tolist() == [1.5, -2.0]


def test_writer_refuses_what_the_format_cannot_hold(tmp_path: Path) -> None:
    with TensorFileWriter(tmp_path / "x", ["a", "b"]) as writer:
        writer.add("a", torch.ones(1, dtype=torch.int8))
        with pytest.raises(ValueError, match="must be written before narrower ones"):
            writer.add("b", torch.ones(1))
        with pytest.raises(ValueError, match="was written already"):
            writer.add("a", torch.ones(1))
        with pytest.raises(ValueError, match="complex64"):
            writer.add("b", torch.ones(1, dtype=torch.complex64))


PEAK = """
import sys
from pathlib import Path
from sparse_core.merging.recipes.recipe import load_recipe
from sparse_core.merging.disk import merge_files

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

recipe = load_recipe(sys.argv[1])
merge_files(recipe, sys.argv[2])  # loads what is loaded once
Path("/proc/self/clear_refs").write_text("5")
before = peak()
merge_files(recipe, sys.argv[2], max_shard_bytes=20_000_000, overwrite=True)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure")
def test_memory_is_bounded_by_the_largest_tensor(tmp_path: Path, repository: Path) -> None:
    """Models of 16 tensors of 3 MB: one tensor of each model and the result, not the 48 MB of a model."""
    size, models = 750_000, ("base", "a", "b")
    for seed, name in enumerate(models):
        generator = torch.Generator().manual_seed(seed)
        tensors = {f"layers.{layer}.w": torch.randn(size, generator=generator) for layer in range(16)}
        save_file(tensors, tmp_path / f"{name}.safetensors")
    values = recipe_values(tmp_path)
    for entry in values["models"]:
        entry["model"] += ".safetensors"
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    done = subprocess.run(
        [sys.executable, "-c", PEAK, tmp_path / "recipe.yaml", tmp_path / "out"],
        capture_output=True,
        text=True,
        cwd=repository,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # The mapped tensors count although the system may drop them: 4 of 3 MB, and pieces. A shard has six.
    assert int(done.stdout) < 7 * 4 * size
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == 3


def test_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump({**recipe_values(folder, int8_mask=True), "out": str(folder / "out")}))
    assert main([str(file), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] is False
    assert main([str(file), "--max-shard", "0.012M"]) == 0
    printed = capsys.readouterr()
    assert "parameters" in printed.out
    assert printed.out.count("int8_mask is ignored") == 1
    assert main([str(file)]) == 2
    assert "exists" in capsys.readouterr().err
    vector = str(folder / "v.safetensors")
    assert (
        main(
            ["--task-vector", str(folder / "base.safetensors"), str(folder / "a"), "--out", vector, "--json"]
        )
        == 0
    )
    assert (
        json.loads(capsys.readouterr().out)["entries"]
        == make_task_vector(
            folder / "base.safetensors", folder / "a", folder / "w.safetensors", density=0.1
        ).entries
    )
    file.write_text("merge_method: teis\nmodels: []\n")
    assert main([str(file)]) == 2
    assert (
        "recipe.yaml: merge_method: unknown method 'teis' (did you mean 'ties'?)" in capsys.readouterr().err
    )
    for arguments in (
        [],
        [str(file), "--max-shard", "5X"],
        [str(file), "--threads", "0"],
        [str(file), "--seed", "-1"],
    ):
        with pytest.raises(SystemExit):
            main(arguments)
    capsys.readouterr()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_leaves_nothing(
    number: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe_values(folder)))
    before, handler, real = sorted(folder.iterdir()), signal.getsignal(signal.SIGTERM), streaming.merge_one

    def stopped(*arguments: Any, **options: Any) -> torch.Tensor:
        signal.raise_signal(number)
        return real(*arguments, **options)

    monkeypatch.setattr(streaming, "merge_one", stopped)
    for out in ("out", "out.safetensors"):
        assert main([str(file), "--out", str(folder / out)]) == 130
        assert "interrupted; nothing was written" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before
    assert signal.getsignal(signal.SIGTERM) == handler


def test_models_are_written_as_safetensors_only(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"name a folder or a \*\.safetensors file"):
        merge_files(parse_recipe(recipe_values(folder)), folder / "merged.bin")


def test_seed_of_the_command_decides(folder: Path) -> None:
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe_values(folder, "dare_linear")))
    found = []
    for number, seed in enumerate((1, 1, 2)):
        out = folder / f"{number}.safetensors"
        assert main([str(file), "--out", str(out), "--seed", str(seed), "--json"]) == 0
        found.append(load_file(out)["embed.weight"])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
