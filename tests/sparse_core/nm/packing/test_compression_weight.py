"""Weights: which values are kept, what comes back, and how many bytes it takes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.nm.masks import nm_mask
from sparse_core.nm.packing.coding import Coding
from sparse_core.nm.packing.compress import compress
from sparse_core.nm.packing.matrix_view import MatrixView
from sparse_core.nm.packing.report import describe_weight
from sparse_core.nm.pattern import TWO_FOUR, NMPattern

CODINGS = ("float32", "float16", "bfloat16", "int8", "int4", "int8/6", "int4/6", "codebook16", "codebook5")


def weight_of(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=60)
@given(
    pattern=st.sampled_from(
        [TWO_FOUR, NMPattern(1, 4), NMPattern(2, 8), NMPattern(3, 4), NMPattern(5, 16), NMPattern(4, 4), None]
    ),
    coding=st.sampled_from(CODINGS),
    index=st.sampled_from(["combinatorial", "slots"]),
    out=st.integers(1, 6),
    columns=st.integers(4, 40),
)
def test_what_is_kept_comes_back(
    pattern: NMPattern | None, coding: str, index: str, out: int, columns: int
) -> None:
    weight = weight_of(out, columns)
    if coding.startswith("codebook"):
        weight = weight.repeat(16, 1)
    found = compress(weight, pattern, coding, index=index, pad=True)  # type: ignore[arg-type]
    found.check()
    restored = found.to_dense()
    m = pattern.m if pattern else 1
    padded = torch.nn.functional.pad(weight, (0, -columns % m))
    mask = (
        nm_mask(padded, pattern.n, m)[:, :columns] if pattern else torch.ones_like(weight, dtype=torch.bool)
    )
    assert bool((restored[~mask] == 0).all())
    if coding == "float32":
        assert torch.equal(restored, weight * mask)
    elif coding in ("float16", "bfloat16"):
        assert torch.equal(restored, (weight * mask).to(getattr(torch, coding)).float())
    else:
        limit = {"int8": 0.02, "int4": 0.45, "code": 1.2}[coding[:4]]
        assert float((restored - weight * mask).abs().max()) <= limit * float(weight.abs().max())
    rows = [found.rows(start, start + 3) for start in range(0, len(weight), 3)]
    assert torch.equal(torch.cat(rows), restored)


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((6, 8, 3, 3), "rows"),
        ((6, 8, 3, 3), "channels_last"),
        ((8, 6, 2, 2), "transposed"),
        ((6, 3, 3, 8), "rows"),
        ((6, 3, 3, 3, 4), "rows"),
    ],
)
def test_layouts_are_their_own_inverse(shape: tuple[int, ...], layout: str) -> None:
    weight = weight_of(*shape)
    view = MatrixView(shape, layout)  # type: ignore[arg-type]
    assert torch.equal(view.from_matrix(view.to_matrix(weight)), weight)
    found = compress(weight, TWO_FOUR, "float32", layout=layout)  # type: ignore[arg-type]
    assert found.to_dense().shape == shape
    assert int((found.to_dense() != 0).sum()) == weight.numel() // 2
    if layout == "channels_last":
        assert torch.equal(found.to_dense() != 0, nm_mask(weight, 2, 4, conv_layout="channels_last"))
    if layout == "transposed":
        groups = found.to_dense().permute(1, 2, 3, 0).reshape(-1, 2, 4)
        assert bool(((groups != 0).sum(dim=2) == 2).all())


def test_bytes_are_those_of_theory() -> None:
    weight = weight_of(64, 256)
    found = compress(weight, TWO_FOUR, "int4")
    report = describe_weight("layer", weight, found)
    groups = 64 * 64
    assert report.value_bytes == 64 * 128 * 4 // 8
    assert report.index_bytes == groups * 3 // 8
    assert report.scale_bytes == 64 * 4
    assert report.stored_bytes == found.nbytes
    assert report.theory_bytes == pytest.approx((64 * 128 * 4 + groups * 2.584962500721156 + 64 * 32) / 8)
    assert report.bits_a_weight == pytest.approx(2 + 0.75 + 0.125)
    assert report.kept_magnitude == pytest.approx(
        float((weight * nm_mask(weight, 2, 4)).abs().sum() / weight.abs().sum())
    )
    book = compress(weight, TWO_FOUR, "codebook16")
    assert book.values.nbytes == 64 * 128 * 4 // 8
    assert book.scale is None
    dense = compress(weight, None, "int8")
    assert dense.index.nbytes == 0


def test_a_mask_decides_and_packed_products_take_the_weight() -> None:
    weight = weight_of(5, 16)
    mask = nm_mask(-weight.abs(), 2, 4, weight_of(5, 16, seed=1))
    found = compress(weight, TWO_FOUR, "float32", mask=mask)
    assert torch.equal(found.to_dense(), weight * mask)
    assert torch.equal(found.to_packed().to_dense(), weight * mask)
    whole = compress(weight, TWO_FOUR, "int8", mask=mask)
    assert whole.scale is not None
    packed = whole.to_packed(torch.int8)
    assert torch.equal(packed.to_dense() * whole.scale, whole.to_dense())


def test_bad_input_is_named() -> None:
    weight = weight_of(3, 8)
    broken = weight.clone()
    broken[1, 5] = float("nan")
    with pytest.raises(ValueError, match=r"neck.up holds NaN .* 1 of 24 \(the first at row 1, column 5\)"):
        compress(broken, name="neck.up")
    with pytest.raises(ValueError, match=r"of head is 7, which is not divisible by m=4: pass pad=True"):
        compress(weight[:, :7], name="head")
    with pytest.raises(ValueError, match="head: a codebook of 16 entries is larger than the 12 values"):
        compress(weight, coding="codebook16", name="head")
    with pytest.raises(ValueError, match="do not fit float16: use float32"):
        compress(weight * 1e6, coding="float16")
    with pytest.raises(TypeError, match="floating point"):
        compress(weight.int())
    with pytest.raises(ValueError, match="mask of weight is not 2:4"):
        compress(weight, mask=torch.ones_like(weight, dtype=torch.bool))
    with pytest.raises(ValueError, match="two or more dimensions"):
        compress(weight[0])
    for text in ("int5", "codebook0", "codebookx", "int4/0", "int8/x", ""):
        with pytest.raises(ValueError, match=r"is not a coding|1 to 256 entries"):
            Coding.parse(text)
