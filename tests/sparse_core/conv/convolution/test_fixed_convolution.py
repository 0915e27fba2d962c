from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from sparse_core.conv import (
    ConvolutionConfig,
    SparseTensor,
    convolution_tuning,
    fixed_convolution,
    pack_weight,
    sparse_convolution,
)
from sparse_core.conv.convolution import choice, tuned
from sparse_core.conv.convolution.plan import Shape, candidates, default_config, fits, refinements
from sparse_core.errors import ImplementationError
from sparse_core.kernels.choices import key_of

Sparse = Callable[..., SparseTensor]
CASE = choice.ConvolutionCase("a GPU", "torch.float16", 64, 32, 9, 4096)
CONFIG = ConvolutionConfig("preloaded", 32, 32, 64, 4, 5)


def table_of(inputs: SparseTensor) -> Tensor:
    """(taps, rows) int32 with -1 for missing inputs of a submanifold 3x3 layer."""
    return inputs.submanifold_table((3, 3)).rows.int()


@pytest.mark.parametrize("capacity", [0, 13])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_equals_the_convolution_over_a_map(random_sparse: Sparse, capacity: int, dtype: torch.dtype) -> None:
    inputs = random_sparse((9, 10), 6, dtype=dtype)
    weight = torch.randn(5, 3, 3, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    bias, residual = torch.randn(5), torch.randn(len(inputs) + capacity, 5).to(dtype)
    table = functional.pad(table_of(inputs), (0, capacity), value=2**31 - 1)
    spare = torch.full((capacity, 6), float("nan"), dtype=dtype)
    count = torch.tensor([len(inputs)], dtype=torch.int32)
    found = fixed_convolution(
        torch.cat([inputs.features, spare]), pack_weight(weight), table, count, bias=bias, residual=residual,
        relu=True,
    )  # fmt: skip
    assert (found.shape, found.dtype) == ((len(inputs) + capacity, 5), dtype)
    wide = sparse_convolution(inputs.features.double(), weight.double(), inputs.submanifold_table((3, 3)))
    expected = torch.relu(wide + bias.double() + residual[: len(inputs)].double())
    tolerance = {torch.float64: 1e-7, torch.float32: 1e-5, torch.float16: 2e-2}[dtype]
    torch.testing.assert_close(found[: len(inputs)].double(), expected, rtol=tolerance, atol=tolerance)


def test_dense_outputs_of_a_sparse_layer(random_sparse: Sparse) -> None:
    inputs = random_sparse((7, 8), 3, batch_size=1, density=0.1)
    dense = inputs.to_dense()
    at = torch.full((9, 10), -1)
    at[1:-1, 1:-1][inputs.coordinates[:, 1].long(), inputs.coordinates[:, 2].long()] = torch.arange(
        len(inputs)
    )
    windows = [at[dy : dy + 7, dx : dx + 8].flatten() for dy in range(3) for dx in range(3)]
    table = torch.stack(windows).int()
    weight, bias = torch.randn(4, 3, 3, 3).double(), torch.ones(4).double()
    found = fixed_convolution(inputs.features, pack_weight(weight), table, bias=bias, zero_empty=True)
    expected = functional.conv2d(dense, weight.movedim(-1, 1), bias, padding=1)[0].flatten(1).T
    reached = (table >= 0).any(0)
    assert bool(reached.any())
    assert not bool(reached.all())
    torch.testing.assert_close(found[reached], expected[reached])
    assert not bool(found[~reached].any())
    plain = fixed_convolution(inputs.features, pack_weight(weight), table, bias=bias)
    torch.testing.assert_close(plain, expected)


def test_out_keeps_rows_beyond_the_count() -> None:
    out = torch.full((5, 2), 7.0)
    features, weight = torch.ones(3, 4), torch.ones(1, 4, 2)
    table = torch.tensor([[0, 1, 2, 0, -9]], dtype=torch.int32)
    count = torch.tensor([2], dtype=torch.int32)
    assert fixed_convolution(features, weight, table, count, out=out) is out
    assert out[:, 0].tolist() == [4, 4, 7, 7, 7]


def test_rows_of_the_residual_and_of_the_output_are_named() -> None:
    features, weight = torch.ones(3, 4), torch.ones(1, 4, 2)
    table = torch.tensor([[0, 1, 2, 0, 1]], dtype=torch.int32)
    count = torch.tensor([4], dtype=torch.int32)
    residual = torch.arange(14.0).view(7, 2)
    residual_rows = torch.tensor([6, -1, 0, 3, 99], dtype=torch.int32)
    added = fixed_convolution(features, weight, table, count, residual=residual, residual_rows=residual_rows)
    assert added[:4].tolist() == [[16, 17], [4, 4], [4, 5], [10, 11]]
    out = torch.full((9, 2), 7.0)
    out_rows = torch.tensor([8, 0, -1, 5, 1], dtype=torch.int32)
    found = fixed_convolution(
        features, weight, table, count, residual=residual, residual_rows=residual_rows, out=out,
        out_rows=out_rows,
    )  # fmt: skip
    assert found is out
    # The third row is not written; the last lies beyond the count.
    assert out[:, 1].tolist() == [4, 7, 7, 7, 7, 11, 7, 7, 17]


def test_no_rows_and_no_inputs() -> None:
    weight = torch.ones(9, 4, 2)
    empty = fixed_convolution(torch.ones(3, 4), weight, torch.zeros(9, 0, dtype=torch.int32))
    assert empty.shape == (0, 2)
    found = fixed_convolution(torch.ones(0, 4), weight, torch.zeros(9, 3, dtype=torch.int32))
    assert found.tolist() == [[0, 0]] * 3


def test_packed_weights_are_in_tap_order() -> None:
    weight = torch.arange(2 * 3 * 3 * 4).view(2, 3, 3, 4).float()
    packed = pack_weight(weight)
    assert packed.shape == (9, 4, 2)
    assert packed.is_contiguous()
    assert torch.equal(packed[5], weight[:, 1, 2].T)
    with pytest.raises(ValueError, match=r"\(C_out, \*kernel, C_in\)"):
        pack_weight(torch.ones(3, 4))


GOOD: dict[str, Any] = {
    "features": torch.ones(3, 4),
    "weight": torch.ones(9, 4, 2),
    "neighbours": torch.zeros(9, 5, dtype=torch.int32),
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"features": torch.ones(3, 4, 1)}, r"features must be \(N, C\)"),
        ({"features": torch.ones(3, 4, dtype=torch.int32)}, "floating point"),
        ({"weight": torch.ones(9, 2, 4)}, r"weight must be \(taps, 4, C_out\)"),
        ({"weight": torch.ones(9, 4, 2).half()}, "weight must be torch.float32"),
        ({"neighbours": torch.zeros(5, 9, dtype=torch.int32)}, r"neighbours must be \(9, rows\)"),
        ({"neighbours": torch.zeros(9, 5)}, "int32 or int64"),
        ({"count": torch.tensor(3)}, r"count must be \(1,\) int32"),
        ({"bias": torch.ones(3)}, r"bias must be \(2,\)"),
        ({"residual": torch.ones(4, 2)}, r"residual must be \(5, 2\)"),
        ({"out": torch.ones(5, 2).half()}, r"out must be \(5, 2\) torch.float32"),
        ({"out": torch.ones(2, 5).T}, "out must be contiguous"),
        ({"out_rows": torch.zeros(5, dtype=torch.int32)}, "out_rows needs out"),
        (
            {"residual": torch.ones(9, 2), "residual_rows": torch.zeros(9, dtype=torch.int32)},
            r"residual_rows must be \(5,\) int32",
        ),
        (
            {"out": torch.ones(9, 3), "out_rows": torch.zeros(5, dtype=torch.int32)},
            r"out must be \(9, 2\) torch.float32",
        ),
        ({"weight": torch.ones(9, 4, 2, device="meta")}, "weight is on meta"),
        ({"impl": "dense"}, "impl must be one of"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fixed_convolution(**{**GOOD, **wrong})


def test_no_vendor() -> None:
    with pytest.raises(ImplementationError, match="no vendor implementation"):
        fixed_convolution(**GOOD, impl="vendor")


shapes = st.builds(
    Shape,
    st.integers(1, 300_000),
    st.integers(1, 300),
    st.integers(1, 300),
    st.sampled_from([1, 4, 9, 27, 125]),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
)


@given(shapes)
def test_every_candidate_fits(shape: Shape) -> None:
    found = candidates(shape)
    assert found[0] == default_config(shape)
    assert len(set(found)) == len(found) <= 40
    for config in found:
        assert fits(config, shape), config
        for other in refinements(config, shape):
            assert fits(other, shape)
            assert other != config


def test_small_layers_have_most_taps_under_way_on_many_processors() -> None:
    for rows, channels in ((8192, 64), (4096, 128), (2048, 128)):
        shape = Shape(rows, channels, channels, 9, torch.float16)
        config = default_config(shape)
        assert fits(config, shape)
        assert config.stages * config.block_in >= 6 * min(channels, 128)
        assert rows // config.block_rows * (channels // config.block_out) >= 64


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"variant": "fast"}, "variant must be one of"),
        ({"block_rows": 24}, "block_rows must be a power of two from 16"),
        ({"block_in": 8}, "block_in must be a power of two from 16"),
        ({"warps": 3}, "warps must be"),
        ({"stages": 0}, "stages 1 to 10"),
    ],
)
def test_wrong_configs(wrong: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"variant": "pipelined", "block_rows": 16, "block_out": 16, "block_in": 16}
    with pytest.raises(ValueError, match=message):
        ConvolutionConfig(**{**given, **wrong})


def test_choices_persist(tmp_path: Path) -> None:
    with convolution_tuning("table", folder=tmp_path):
        assert choice.TUNER.lookup(CASE) is None
        choice.TUNER.remember(CASE, choice.ConvolutionChoice(CONFIG, 3.25))
        choice.TUNER.remember(CASE._replace(rows=128), choice.ConvolutionChoice(CONFIG, 1.5))
    with convolution_tuning("table", folder=tmp_path):
        assert choice.TUNER.lookup(CASE) == choice.ConvolutionChoice(CONFIG, 3.25)
    with convolution_tuning("table", folder=tmp_path / "other"):
        assert choice.TUNER.lookup(CASE) is None
    with pytest.raises(ValueError, match="mode must be"), convolution_tuning("guess"):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 0, "choices": {}}', '{"version": 1, "choices": {"a": [1]}}']
)
def test_damaged_files_are_measured_again(tmp_path: Path, text: str) -> None:
    (tmp_path / f"convolution-{choice.TUNER.version}.json").write_text(text)
    with convolution_tuning("table", folder=tmp_path):
        assert choice.TUNER.lookup(CASE) is None
        choice.TUNER.remember(CASE, choice.ConvolutionChoice(CONFIG, 3.25))
    stored = json.loads((tmp_path / f"convolution-{choice.TUNER.version}.json").read_text())
    assert list(stored["choices"]) == [key_of(CASE)] == ["a GPU|float16|64|32|9|4096"]


def test_folders_without_write_access_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with convolution_tuning("table", folder=tmp_path / "file"):
        choice.TUNER.remember(CASE, choice.ConvolutionChoice(CONFIG, 3.25))
        assert choice.TUNER.lookup(CASE) == choice.ConvolutionChoice(CONFIG, 3.25)


def test_choices_go_to_the_cache_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with convolution_tuning("table"):
        choice.TUNER.remember(CASE, choice.ConvolutionChoice(CONFIG, 3.25))
    assert (tmp_path / "cache" / "sparsight" / f"convolution-{choice.TUNER.version}.json").is_file()


def test_rows_are_rounded_to_powers_of_two() -> None:
    assert [choice.row_bucket(rows) for rows in (0, 1, 128, 129, 4096, 4097)] == [
        128,
        128,
        128,
        256,
        4096,
        8192,
    ]


def test_on_a_cpu_the_default_is_taken() -> None:
    shape = Shape(4096, 64, 64, 9, torch.float32)
    assert tuned.chosen_config(shape, torch.device("cpu")) == default_config(shape)


def test_shipped_choices_can_be_read() -> None:
    shipped = choice.TUNER.shipped
    stored = json.loads(shipped.read_text())
    assert stored["version"] == choice.TUNER.version
    assert len(choice.TUNER.read(shipped)) == len(stored["choices"])
