from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from safetensors import safe_open
from safetensors.torch import save_file
from token_masks import Masked, masked, random_mask

from sparse_core.attention.patterns.builders import bigbird, full
from sparse_core.attention.patterns.files import save_pattern
from sparse_core.attention.patterns.masks import from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern


@settings(max_examples=30)
@given(case=masked())
def test_patterns_come_back(case: Masked, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("patterns") / "one.safetensors"
    pattern = case.pattern()
    assert save_pattern(pattern, path) == path
    loaded = BlockPattern.load(path)
    assert loaded == pattern
    for name in ("row_ptr", "columns", "partial", "token_masks"):
        assert torch.equal(getattr(loaded, name), getattr(pattern, name))


def test_methods(tmp_path: Path) -> None:
    for pattern in (bigbird(5000, heads=2), full(100, 16)):
        path = pattern.save(str(tmp_path / "pattern.safetensors"))
        assert BlockPattern.load(path) == pattern
        assert BlockPattern.load(str(path), device="cpu") == pattern
    assert [file.name for file in tmp_path.iterdir()] == ["pattern.safetensors"]


def test_masks_take_a_bit_a_position(tmp_path: Path) -> None:
    pattern = from_token_mask(torch.rand(512, 512, generator=torch.Generator().manual_seed(0)) < 0.5)
    size = save_pattern(pattern, tmp_path / "p.safetensors").stat().st_size
    assert 512 * 512 // 8 < size < 512 * 512 // 8 + 2000


def saved(tmp_path: Path, **changes: object) -> Path:
    """A file in which header fields or tensors are replaced, or left out by None."""
    path = from_token_mask(random_mask(70, 90, 16, heads=2, seed=1), 16).save(tmp_path / "p.safetensors")
    with safe_open(str(path), framework="pt") as stored:
        header = dict(stored.metadata())
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    for name, value in changes.items():
        kept: dict[str, object] = tensors if name in tensors else header
        if value is None:
            del kept[name]
        else:
            kept[name] = value
    save_file(tensors, path, metadata=header)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "format is 'other', not 'sparsight-block-pattern'"),
        ({"format": None}, "format is None"),
        ({"version": "2"}, "version is '2', this release reads '1'"),
        ({"query_length": None}, "query_length is None, expected a number"),
        ({"key_length": "-90"}, "key_length is '-90', expected a number"),
        ({"block_size": "32"}, "token_masks must have shape"),
        ({"query_length": "90"}, "row_ptr must have shape"),
        ({"key_length": "20"}, "expected 0 to 1"),
        ({"columns": None}, "columns is missing"),
        ({"columns": torch.zeros(3, dtype=torch.int32)}, "partial must have the shape of columns"),
        ({"row_ptr": torch.zeros(2, 6, dtype=torch.int32)}, "row_ptr must end with"),
        ({"row_ptr": torch.zeros(2, 6)}, "row_ptr must be int32"),
        ({"token_masks": torch.zeros(1, 16, 16, dtype=torch.bool)}, "token_masks must be uint8"),
        ({"token_masks": torch.zeros(1, 32, dtype=torch.uint8)}, "expected -1"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = saved(tmp_path, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        BlockPattern.load(path)
    assert str(path) in str(caught.value)


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    for length in (0, 5, 100, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="damaged, or not a safetensors file"):
            BlockPattern.load(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        BlockPattern.load(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="a folder, not a file"):
        BlockPattern.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="create it first"):
        full(64).save(tmp_path / "missing" / "p")


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    broken = full(64)
    broken.columns = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        save_pattern(broken, path)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OSError):
        save_pattern(full(64), folder)
    assert path.read_bytes() == content
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "p.safetensors"]
