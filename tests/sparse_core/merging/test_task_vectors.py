"""Task vectors: arithmetic, and their files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, safe_open

from sparse_core.merging.files.encoding import (
    decode_positions,
    decode_values,
    encode_positions,
    encode_values,
)
from sparse_core.merging.files.vector_files import load_task_vector, save_task_vector
from sparse_core.merging.task_vector import TaskVector


def state(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {"a.weight": torch.randn(60, 70), "a.bias": torch.randn(60), "count": torch.tensor(seed)}


def test_arithmetic() -> None:
    base, first, second = state(0), state(1), state(2)
    a, b = TaskVector.between(base, first), TaskVector.between(base, second)
    torch.testing.assert_close(a.apply(base)["a.weight"], first["a.weight"])
    mixed = (a + 2 * b - b / 2).apply(base, 0.5)["a.bias"]
    expected = base["a.bias"] + 0.5 * (
        first["a.bias"] - base["a.bias"] + 1.5 * (second["a.bias"] - base["a.bias"])
    )
    torch.testing.assert_close(mixed, expected)
    torch.testing.assert_close((-a).apply(first)["a.weight"], base["a.weight"])
    assert int(a.apply(base)["count"]) == 0
    assert list(a) == ["a.weight", "a.bias"]
    assert (len(a), a.numel, a.nnz, a.density) == (2, 4260, 4260, 1.0)


def test_other_tensors_are_refused() -> None:
    base, tuned = state(0), state(1)
    vector = TaskVector.between(base, tuned)
    with pytest.raises(ValueError, match=r"1 tensors missing \(first: 'a.bias'\)"):
        TaskVector.between(base, {name: tuned[name] for name in ("a.weight", "count")})
    with pytest.raises(ValueError, match=r"1 that the base does not have \(first: 'extra'\)"):
        TaskVector.between(base, {**tuned, "extra": torch.ones(1)})
    with pytest.raises(ValueError, match=r"'a.bias' has shape \(3,\), the base has \(60,\)"):
        TaskVector.between(base, {**tuned, "a.bias": torch.ones(3)})
    with pytest.raises(ValueError, match=r"'a.bias' of the base or the tuned model holds NaN"):
        TaskVector.between(base, {**tuned, "a.bias": torch.full((60,), torch.nan)})
    with pytest.raises(ValueError, match="the task vector has other tensors"):
        vector.apply({"a.weight": base["a.weight"]})
    with pytest.raises(ValueError, match="the second task vector has other tensors"):
        vector + TaskVector({"a.bias": torch.ones(60)})
    with pytest.raises(TypeError, match="'x' is int, expected a tensor"):
        TaskVector.between({"x": 3}, {"x": 3})  # type: ignore[dict-item]


@settings(max_examples=80)
@given(st.integers(0, 400), st.sampled_from([0.0, 0.003, 0.05, 0.3, 0.8, 1.0]), st.integers(0, 99))
def test_positions_come_back(count: int, density: float, seed: int) -> None:
    positions = np.flatnonzero(np.random.default_rng(seed).random(count) < density)
    code, data = encode_positions(positions, count)
    assert (decode_positions(code, data, len(positions), count) == positions).all()
    assert data.nbytes <= -(-count // 8)


def test_the_smallest_form_is_chosen() -> None:
    generator = np.random.default_rng(0)
    forms = {}
    for density in (0.001, 0.1, 0.5, 1.0):
        code, data = encode_positions(np.flatnonzero(generator.random(100_000) < density), 100_000)
        forms[density] = (code, data.nbytes)
    assert {density: code for density, (code, _) in forms.items()} == {
        0.001: "gaps8",
        0.1: "gaps4",
        0.5: "bitmap",
        1.0: "all",
    }
    # The entropy of 10 % is 0.469 bits a number.
    assert forms[0.1][1] < 0.55 * 100_000 / 8


@pytest.mark.parametrize(
    ("code", "step"), [("int8", 1 / 127), ("int4", 1 / 7), ("float16", 2**-10), ("float32", 0.0)]
)
def test_values_are_within_half_a_step(code: str, step: float) -> None:
    torch.manual_seed(0)
    values = torch.randn(1001) * torch.logspace(-12, 2, 1001)
    values[3] = 0
    found = decode_values(encode_values(values, code, 64), code, 64, 1001)  # type: ignore[arg-type]
    padded = torch.nn.functional.pad(values, (0, 23)).view(-1, 64)
    largest = padded.abs().amax(1).repeat_interleave(64)[:1001]
    assert bool(((found - values).abs() <= 0.5001 * step * largest).all())
    assert float(found[3]) == 0


@pytest.mark.parametrize(("values", "share"), [("int4", 0.065), ("int8", 0.09), ("float16", 0.14)])
def test_a_tenth_takes_at_most_a_fifth_of_the_bytes(tmp_path: Path, values: str, share: float) -> None:
    """Measured against a dense vector of 16 bits a number, with all that the file holds."""
    torch.manual_seed(0)
    vector = TaskVector({f"layer.{index}": torch.randn(400, 500) for index in range(4)}).trim(0.1)
    report = save_task_vector(vector, tmp_path / "v.safetensors", values=values)  # type: ignore[arg-type]
    dense_16 = report.dense_float32 / 2
    assert report.nbytes == (tmp_path / "v.safetensors").stat().st_size <= share * dense_16 < 0.2 * dense_16
    assert report.entries == vector.nnz == 80_000
    loaded = load_task_vector(tmp_path / "v.safetensors")
    for name, delta in vector.deltas.items():
        assert float((loaded.deltas[name] - delta).norm() / delta.norm()) < {"int4": 0.12, "int8": 0.01}.get(
            values, 1e-3
        )


def test_float32_is_exact_and_other_programs_can_read_the_file(tmp_path: Path) -> None:
    vector = TaskVector(
        {
            "a": torch.randn(33, 5).double().float().trunc(),
            "b": torch.zeros(7).bfloat16(),
            "none": torch.empty(0, 2),
            "scalar": torch.tensor(2.5),
        }
    )
    file = tmp_path / "v.safetensors"
    save_task_vector(vector, file, values="float32")
    loaded = load_task_vector(file)
    for name, delta in vector.deltas.items():
        assert loaded.deltas[name].dtype == delta.dtype
        assert torch.equal(loaded.deltas[name], delta)
    assert set(load_file(file)) == {
        f"{name}.{part}" for name in vector for part in ("values", "scale", "positions")
    }
    with safe_open(file, "pt") as stored:
        assert stored.metadata()["format"] == "sparsight-task-vector"


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "v.safetensors"
    save_task_vector(TaskVector({"a": torch.randn(100, 10)}).trim(0.1), file)
    raw = file.read_bytes()
    for end in (0, 5, 60, len(raw) - 1):
        file.write_bytes(raw[:end])
        with pytest.raises(ValueError, match=r"v\.safetensors: (truncated|damaged)"):
            load_task_vector(file)
    for old, new, message in (
        (b'"sparsight-task-vector"', b'"sparsight-task-vectors', "damaged header"),
        (b"sparsight-task-vector", b"sparsight-task-vectur", "format is 'sparsight-task-vectur'"),
        (b'"version":"1"', b'"version":"2"', "version is '2'"),
        (b'\\"entries\\":100', b'\\"entries\\":101', "tensor 'a' is damaged"),
        (b'\\"gaps4\\"', b'\\"gaps5\\"', "unknown form of positions 'gaps5'"),
        (b'\\"shape\\":[100,10]', b'\\"shape\\":[100,11]', None),
        (b'\\"shape\\":[100,10]', b'\\"shape\\":[100,01]', "'tensors' is missing or damaged"),
    ):
        assert raw.count(old) == 1, old
        file.write_bytes(raw.replace(old, new))
        if message is not None:
            with pytest.raises(ValueError, match=message):
                load_task_vector(file)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_task_vector(tmp_path / "absent.safetensors")


def test_nothing_is_left_when_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'b' of the task vector holds NaN"):
        save_task_vector(
            TaskVector({"a": torch.ones(9), "b": torch.full((2,), torch.nan)}), tmp_path / "v.safetensors"
        )
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="create it first"):
        save_task_vector(TaskVector({"a": torch.ones(9)}), tmp_path / "no" / "v.safetensors")
    with pytest.raises(ValueError, match="values must be one of int4"):
        save_task_vector(TaskVector({"a": torch.ones(9)}), tmp_path / "v", values="int2")  # type: ignore[arg-type]
    assert json.dumps(TaskVector({}).density) == "0.0"
