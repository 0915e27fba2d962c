"""Few rows by the processor's vectors: the same sums whatever rows and threads, and what it needs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sparse_core.errors import ImplementationError
from sparse_core.kernels import native
from sparse_core.nm.linear import cpu, nm_linear, product
from sparse_core.nm.packing.packed_weight import PackedNM


@pytest.fixture(autouse=True)
def _here() -> None:
    if (reason := cpu.why_not()) is not None:
        pytest.skip(reason)


@pytest.fixture
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(native, "BUILT", Path("/nonexistent"))
    native.compiler.cache_clear()
    yield
    monkeypatch.undo()
    native.compiler.cache_clear()


def packed_weight(out: int, columns: int, seed: int = 0) -> PackedNM:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(out, columns // 4, 4, generator=generator)
    kept = torch.rand(weight.shape, generator=generator).argsort(dim=2) < 2
    return PackedNM.from_dense((weight * kept).view(out, columns))


@pytest.mark.parametrize("columns", [4, 8, 28, 32, 36, 60, 64, 132, 1024])
@pytest.mark.parametrize("out", [1, 3, 4, 21])
def test_sums_are_those_of_the_dense_product(out: int, columns: int) -> None:
    packed = packed_weight(out, columns)
    dense = packed.to_dense().double()
    bias = torch.randn(out, generator=torch.Generator().manual_seed(1))
    for rows in (1, 2, 3, 7, 16):
        x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
        y = nm_linear(x, packed, bias, activation="gelu", impl="cpu")
        plain = torch.nn.functional.gelu(x.double() @ dense.T + bias)
        size = x.double().abs() @ dense.abs().T + 1
        assert bool(((y - plain).abs() <= 4e-7 * size).all())
        assert torch.equal(nm_linear(x, packed, impl="cpu"), nm_linear(x[:, None], packed, impl="cpu")[:, 0])


def test_same_bits_whatever_rows_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_THREAD_NS", 1.0)
    packed = packed_weight(67, 260)
    x = torch.randn(13, 260)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(nm_linear(x, packed, impl="cpu"))
    finally:
        torch.set_num_threads(before)
    alone = torch.cat([nm_linear(row[None], packed, impl="cpu") for row in x])
    assert all(torch.equal(one, alone) for one in found)


def test_nothing_beyond_the_columns_is_multiplied() -> None:
    """The last vector of a row is not full: what lies behind it may be anything."""
    packed = packed_weight(5, 12)
    room = torch.full((3, 24), torch.nan)
    room[:, :12] = 1.0
    assert nm_linear(room[:, :12], packed, impl="cpu").isfinite().all()
    infinite = torch.ones(1, 12)
    infinite[0, 3] = torch.inf
    reads = packed.to_dense()[:, 3] != 0
    assert torch.equal(~nm_linear(infinite, packed, impl="cpu")[0].isfinite(), reads)


def test_gradients_are_those_of_the_reference() -> None:
    packed = packed_weight(9, 40)
    found = []
    for impl in ("cpu", "reference"):
        x = torch.linspace(-1, 1, 80).view(2, 40).requires_grad_()
        values = packed.values.clone().requires_grad_()
        bias = torch.zeros(9, requires_grad=True)
        y = nm_linear(x, packed.with_values(values), bias, activation="relu", impl=impl)  # type: ignore[arg-type]
        found.append(torch.autograd.grad(y.square().sum(), (x, values, bias)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_auto_takes_it_for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, calls = packed_weight(4, 16), []
    monkeypatch.setattr(
        product.cpu, "nm_linear", lambda x, weight, bias, activation: calls.append(len(x)) or x[:, :4]
    )
    product._warn_once.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nm_linear(torch.ones(cpu.MOST_INSTEAD_OF_UNPACKING, 16), packed)
        nm_linear(torch.ones(cpu.MOST_ROWS, 16), packed, dense=packed.to_dense())
    for rows, dense in ((cpu.MOST_ROWS, packed.to_dense()), (cpu.MOST_INSTEAD_OF_UNPACKING, None)):
        product._warn_once.cache_clear()
        with pytest.warns(product.UnpackedWarning):
            nm_linear(torch.ones(rows + 1, 16), packed, dense=dense)
    product._warn_once.cache_clear()
    assert calls == [cpu.MOST_INSTEAD_OF_UNPACKING, cpu.MOST_ROWS]


@pytest.mark.usefixtures("_no_compiler")
@pytest.mark.filterwarnings("ignore:packed n.m weights")
def test_without_a_compiler(tmp_path: Path) -> None:
    packed, x = packed_weight(4, 16), torch.ones(2, 16)
    torch.testing.assert_close(nm_linear(x, packed), x @ packed.to_dense().T)
    with pytest.raises(ImplementationError, match="needs a C\\+\\+ compiler: install g"):
        nm_linear(x, packed, impl="cpu")
    source = tmp_path / "none.cpp"
    source.write_text("int x;")
    with pytest.raises(ImplementationError, match=r"none.cpp needs a C\+\+ compiler"):
        native.load(source)


def test_other_types_are_refused() -> None:
    with pytest.raises(ImplementationError, match="impl='cpu' needs a float32 2:4 weight on a CPU"):
        nm_linear(torch.ones(1, 16).half(), packed_weight(4, 16).to(torch.float16), impl="cpu")


def test_what_a_compiler_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "wrong.cpp"
    source.write_text("this is no C++\n")
    with pytest.raises(ImplementationError, match=r"cannot compile wrong.cpp:\n.*error"):
        native.load(source)
    right = tmp_path / "right.cpp"
    right.write_text('extern "C" int answer() { return 42; }\n')
    assert native.load(right).answer() == 42
    # Only what is whole is kept.
    assert [path.suffix for path in (tmp_path / "sparsight").iterdir()] == [".so"]
