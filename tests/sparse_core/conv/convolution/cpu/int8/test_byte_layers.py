"""Layers of bytes: every path gives the bits of the reference."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.common.workers import run_on_worker
from sparse_core.conv.convolution.cpu.int8 import (
    ByteLayer,
    ByteScale,
    byte_layer,
    byte_rows,
    compiled,
    largest_bytes,
    pack_layer,
    padded,
    reference,
)
from sparse_core.kernels import native

needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")


class Problem(NamedTuple):
    """A layer with an input and what to add."""

    layer: ByteLayer
    rows: Tensor
    table: Tensor | None
    residual: Tensor | None

    def run(self, path: compiled.Path | None = None) -> Tensor:
        count = len(self.rows) if self.table is None else len(self.table)
        kind = torch.float32 if self.layer.floats else torch.uint8
        out = torch.full((count, self.layer.out_width), 77, dtype=kind)
        return byte_layer(self.rows, self.layer, out=out, table=self.table, residual=self.residual, path=path)

    def expected(self) -> Tensor:
        return reference.layer_rows(self.rows, self.layer, self.table, self.residual)


def problem(
    taps: int = 9,
    channels: int = 32,
    outputs: int = 48,
    count: int = 40,
    *,
    floats: bool = False,
    residual: bool = True,
    two_four: bool = False,
    seed: int = 0,
) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn((taps, channels, outputs), generator=generator)
    if two_four:
        weight[:, ::4] = 0
        weight[:, 3::4] = 0
    residual_scale = ByteScale.of(3.0, signed=True) if residual else None
    layer = pack_layer(
        weight,
        torch.randn(outputs, generator=generator),
        in_scale=ByteScale.of(2.0),
        out_scale=None if floats else ByteScale.of(4.0 * (taps * channels) ** 0.5),
        residual_scale=residual_scale,
    )
    rows = torch.randint(0, 256, (count + 1, padded(channels)), generator=generator).to(torch.uint8)
    rows[-1] = 0
    table = torch.randint(0, count + 1, (count, taps), generator=generator).int()
    table[1::3] = count
    added = torch.randint(0, 256, (count, layer.out_width), generator=generator).to(torch.uint8)
    if taps == 1:
        return Problem(layer, rows[:count], None, added if residual else None)
    return Problem(layer, rows, table, added if residual else None)


@pytest.fixture(scope="module")
def emulating(tmp_path_factory: pytest.TempPathFactory) -> native.BackgroundLibrary:
    """The library with AVX-VNNI and AMX in plain instructions, for processors without them."""
    source = compiled.PRODUCTS.source
    changed = tmp_path_factory.mktemp("emulating") / source.name
    changed.write_text(source.read_text().replace("// flags: ", "// flags: -DEMULATE ", 1))
    library = native.BackgroundLibrary(changed, compiled.PRODUCTS._functions, "")
    assert library.ready()
    return library


@pytest.fixture
def chosen_again() -> Iterator[None]:
    """The fastest path is looked for again, before and after."""
    compiled.fastest_path.cache_clear()
    yield
    compiled.fastest_path.cache_clear()


SHAPES = given(
    taps=st.sampled_from([1, 2, 9, 16]),
    channels=st.sampled_from([1, 4, 16, 20, 32, 64, 96]),
    outputs=st.sampled_from([1, 16, 30, 48, 64, 96, 112, 128]),
    count=st.integers(1, 70),
    floats=st.booleans(),
    residual=st.booleans(),
    two_four=st.booleans(),
    seed=st.integers(0, 99),
)


@needs_compiler
@settings(max_examples=60, deadline=None)
@SHAPES
def test_every_path_of_this_processor(
    taps: int,
    channels: int,
    outputs: int,
    count: int,
    floats: bool,
    residual: bool,
    two_four: bool,
    seed: int,
) -> None:
    assert compiled.PRODUCTS.ready()
    able = set(compiled.paths())
    assert "portable" in able
    asked = problem(
        taps, channels, outputs, count, floats=floats, residual=residual, two_four=two_four, seed=seed
    )
    assert (asked.layer.kept is not None) >= two_four
    if asked.layer.kept is None:
        able.discard("skipping")
    expected = asked.expected()
    for path in (*able, None):
        assert torch.equal(asked.run(path), expected)


@needs_compiler
def test_every_path_that_is_emulated(
    emulating: native.BackgroundLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "PRODUCTS", emulating)
    if "avx2" in (able := compiled.paths()):
        assert "avx_vnni" in able
    if "avx512_vnni" in able:
        assert {"amx", "skipping"} <= set(able)
    shapes = [(9, 64, 64, 33), (9, 96, 112, 70), (1, 128, 384, 32), (16, 16, 16, 1), (4, 32, 48, 65)]
    for seed, shape in enumerate(shapes):
        for floats in (False, True):
            asked = problem(*shape, floats=floats, two_four=True, seed=seed)
            expected = asked.expected()
            for path in able:
                assert torch.equal(asked.run(path), expected)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.PRODUCTS, "library", lambda: None)
    assert compiled.paths() == ()
    for asked in (problem(count=200), problem(taps=1, floats=True), problem(residual=False)):
        assert torch.equal(asked.run(), asked.expected())


@needs_compiler
def test_any_number_of_threads() -> None:
    assert compiled.PRODUCTS.ready()
    asked = problem(9, 64, 64, 5000, residual=True)
    expected = asked.expected()
    for count in (1, 2, 3):
        assert torch.equal(run_on_worker(asked.run, count), expected)


@needs_compiler
@pytest.mark.usefixtures("chosen_again")
def test_a_path_with_wrong_results_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert compiled.PRODUCTS.ready()
    right = compiled._run_example

    def wrong(path: compiled.Path, *example: object) -> Tensor:
        return right(path, *example) + (path != "portable")  # type: ignore[arg-type]

    monkeypatch.setattr(compiled, "_run_example", wrong)
    with caplog.at_level(logging.WARNING):
        assert compiled.fastest_path(two_four=False) == "portable"
    named = {record.args[0] for record in caplog.records if isinstance(record.args, tuple)}
    assert named == set(compiled.paths()) - {"portable", "skipping"}


@needs_compiler
@pytest.mark.usefixtures("chosen_again")
@pytest.mark.parametrize("skipping", [1.0, 3.0])
def test_zeros_are_skipped_where_it_pays(monkeypatch: pytest.MonkeyPatch, skipping: float) -> None:
    assert compiled.PRODUCTS.ready()
    times = {"skipping": skipping, "avx512_vnni": 2.0}
    monkeypatch.setattr(compiled, "_least_time", lambda path, *_: times[path])
    able = tuple(path for path in compiled.paths() if path != "amx")
    monkeypatch.setattr(compiled, "paths", lambda: able)
    found = compiled.fastest_path(two_four=True)
    if "skipping" in able:
        assert found == ("skipping" if skipping < 2.0 else "avx512_vnni")
    assert compiled.fastest_path(two_four=False) != "skipping"


@needs_compiler
def test_unknown_paths_are_refused() -> None:
    assert compiled.PRODUCTS.ready()
    with pytest.raises(ValueError, match="path must be one of portable"):
        problem().run("sse")  # type: ignore[arg-type]
    if "skipping" in compiled.paths():
        with pytest.raises(ValueError, match="skipping only for 2:4"):
            problem().run("skipping")


def test_a_layer_is_near_its_float_layer() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn((9, 32, 16), generator=generator)
    bias = torch.randn(16, generator=generator)
    in_scale, out_scale, residual_scale = (
        ByteScale.of(2.0),
        ByteScale.of(60.0),
        ByteScale.of(9.0, signed=True),
    )
    layer = pack_layer(weight, bias, in_scale=in_scale, out_scale=out_scale, residual_scale=residual_scale)
    rows = torch.randint(0, 256, (60, 32), generator=generator)
    table = torch.randint(0, 60, (50, 9), generator=generator)
    added = torch.randint(0, 256, (50, 16), generator=generator)
    exact = (rows * in_scale.step)[table].flatten(1) @ weight.flatten(0, 1)
    exact = torch.relu(exact + bias + (added - 128) * residual_scale.step)
    made = reference.layer_rows(rows.to(torch.uint8), layer, table.int(), added.to(torch.uint8))
    inside = exact < 60
    assert float(inside.float().mean()) > 0.4
    difference = (made * out_scale.step - exact)[inside].abs()
    # Half a step of the output, and the rounded weights.
    assert float(difference.max()) < 0.5 * out_scale.step + 0.6
    assert float(difference.mean()) < out_scale.step
    assert bool((made[exact > 61] == 255).all())


def test_integers_of_a_file_are_kept() -> None:
    integers = torch.randint(-126, 127, (9, 16, 32))
    integers[0, 0] = 127
    steps = torch.rand(32) + 0.5
    layer = pack_layer(
        integers * steps, torch.zeros(32), in_scale=ByteScale.of(1.0), out_scale=ByteScale.of(1.0)
    )
    assert torch.equal(layer.weight, integers.to(torch.int8))
    torch.testing.assert_close(layer.scale, steps)


def test_an_input_with_an_offset_is_refused() -> None:
    with pytest.raises(ValueError, match=r"in_scale\.zero must be 0"):
        pack_layer(
            torch.zeros((1, 4, 4)), torch.zeros(4), in_scale=ByteScale.of(1.0, signed=True), out_scale=None
        )


@needs_compiler
@pytest.mark.parametrize("ordered", [False, True])
def test_rows_are_rounded_to_the_nearest_bytes(monkeypatch: pytest.MonkeyPatch, ordered: bool) -> None:
    assert compiled.PRODUCTS.ready()
    generator = torch.Generator().manual_seed(0)
    values = torch.randn((7000, 20), generator=generator) * 200
    # Ties, and numbers beyond both ends.
    values[0, :6] = torch.tensor([0.5, 1.5, 2.5, -0.5, 254.5, 1e9])
    order = torch.randperm(7000, generator=generator) if ordered else None
    found = []
    for library in (compiled.PRODUCTS.library(), None):
        monkeypatch.setattr(compiled.PRODUCTS, "library", lambda library=library: library)
        out = torch.full((7000, 32), 9, dtype=torch.uint8)
        found.append(byte_rows(values, 1.0, out=out, order=order))
    assert torch.equal(*found)
    first = 0 if order is None else int((order == 0).nonzero())
    assert found[0][first, :6].tolist() == [0, 2, 2, 0, 254, 255]
    assert int(found[0][:, 20:].sum()) == 0


@needs_compiler
def test_largest_bytes_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.PRODUCTS.ready()
    rows = torch.randint(0, 256, (50, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    counts = torch.tensor([0, 20, 1, 0, 29, 0])
    made = largest_bytes(rows, counts)
    assert torch.equal(made[[1, 2, 4]], torch.stack([rows[:20].amax(0), rows[20], rows[21:].amax(0)]))
    assert int(made[[0, 3, 5]].sum()) == 0
    monkeypatch.setattr(compiled.PRODUCTS, "library", lambda: None)
    assert torch.equal(largest_bytes(rows, counts), made)
