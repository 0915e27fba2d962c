"""The benchmark of block-sparse attention: cells, comparison with float64, aims, published tables."""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sparse_core.attention import bigbird, sparse_attention

ROOT = Path(__file__).resolve().parents[3]
Load = Callable[[str], types.ModuleType]


def _row(length: int, target: float, over: float, **others: Any) -> dict[str, Any]:
    """A measured cell with a speed-up over dense."""
    dense = 100.0 * length
    row = {
        "key": f"random-{target:g}-{length}",
        "pattern": "random",
        "target": target,
        "length": length,
        "dim": 64,
        "block_size": 128,
        "dtype": "bfloat16",
        "gradient": False,
        "density": target,
        "block_density": target,
        "agrees": True,
        "microseconds": {name: {"median": dense} for name in ("cuDNN", "flash")}
        | {"ours": {"median": dense / over}},
        "tflop_s": {"cuDNN": 400.0, "flash": 400.0, "ours": 400.0 * over * target},
        "over_dense": {"median": over},
        "over_flash": {"median": over},
        "over_flex": None,
        "over_fa4": None,
    }
    return row | others


def _selected(length: int, over: float) -> dict[str, Any]:
    row = _row(length, 0.1, over, wall_over_dense={"median": over / 2})
    row["microseconds"] |= {"selection": {"median": 10.0}, "selection and attention": {"median": 50.0}}
    return row


def test_result_holds_every_part_and_all_sides_agree(load: Load, tmp_path: Path) -> None:
    out, png = tmp_path / "attention.json", tmp_path / "attention.png"
    arguments = ["--quick", "--rounds", "1", "--layers", "1", "--threads", "1", "--out", str(out)]
    arguments += ["--png", str(png), "--only", "random-0.1-512-*", "top-k-*", "selection-0.1-512-*"]
    bench = load("attention.sparse_attention")
    assert bench.main([*arguments, "changing-*", "encoder", "gathered-shared-*"]) == 0
    values = json.loads(out.read_text())
    assert (values["schema"], values["benchmark"], values["settings"]["device"]) == (
        1,
        "sparse_attention",
        "cpu",
    )
    assert str(ROOT) not in out.read_text()
    assert [row["key"] for row in values["cases"]] == [
        "random-0.1-512-64-64-float32-forward",
        "random-0.1-512-64-64-float32-both",
        "top-k-0.1-1024-64-64-float32-forward",
    ]
    for row in values["cases"]:
        assert row["agrees"]
        assert row["errors"].keys() == row["microseconds"].keys() == {"ours", "torch"}
        work = 4 * row["dim"] * row["density"] * row["length"] ** 2 * row["heads"] * row["batch"]
        work *= 3.5 if row["gradient"] else 1
        rate = work / row["microseconds"]["ours"]["median"] / 1e6
        assert row["tflop_s"]["ours"] == pytest.approx(rate, rel=0.01, abs=1e-3)
        ratio = row["microseconds"]["torch"]["median"] / row["microseconds"]["ours"]["median"]
        assert row["over_dense"]["median"] == pytest.approx(ratio, rel=0.01, abs=2e-3)
    (selected,) = values["selection"]
    assert selected["agrees"]
    assert {"torch", "selection and attention", "selection"} <= selected["microseconds"].keys()
    (changing,) = values["changing"]
    assert changing["agrees"]
    assert changing["errors"].keys() == {"ours"}
    assert changing["microseconds"].keys() == {"ours", "torch"}
    assert values["encoder"]["layers"] == 1
    assert values["encoder"]["agrees"]
    assert values["encoder"]["over_dense"].keys() == {
        "50% sparse",
        "75% sparse",
        "90% sparse",
        "one block each",
    }
    assert [(row["shared"], row["gradient"], row["agrees"]) for row in values["gathered"]] == [
        (True, False, True),
        (True, True, True),
    ]
    drawn = png.read_bytes()
    assert len(drawn) > 4_000
    again = tmp_path / "again.png"
    assert bench.main(["--draw-from", str(out), "--png", str(again)]) == 0
    assert again.read_bytes() == drawn


def test_a_spent_budget_is_a_note_and_a_failure_ends_with_an_error(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = load("attention.sparse_attention")
    out = tmp_path / "attention.json"
    arguments = ["--quick", "--rounds", "1", "--threads", "1", "--out", str(out)]
    assert bench.main([*arguments, "--only", "random-0.1-512-*", "--budget-s", "1e-9"]) == 0
    values = json.loads(out.read_text())
    assert values["cases"] == []
    assert "left out" in values["notes"][0]
    assert "random-0.1-512-64-64-float32-both" in values["notes"][0]

    def fail(*_: object) -> dict[str, Any]:
        raise RuntimeError("no such kernel\nmore")

    monkeypatch.setattr(bench, "measure_cell", fail)
    assert bench.main([*arguments, "--only", "random-0.1-512-*-forward"]) == 1
    (note,) = json.loads(out.read_text())["notes"]
    assert note == "failed: random-0.1-512-64-64-float32-forward: RuntimeError: no such kernel"


def test_wrong_rows_are_found(load: Load) -> None:
    exact = load("attention.exact")
    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = (torch.randn(2, 3, 200, 16, generator=generator) for _ in range(4))
    q.requires_grad_()
    pattern = bigbird(200, window=9, count=3, random=1, block_size=32, heads=3)
    out = sparse_attention(q, k, v, pattern)
    (dq,) = torch.autograd.grad(out, q, grad)
    given = (q, k, v, grad)
    assert exact.error_of_rows([out, dq], *given, pattern, 32) < 1e-5
    assert exact.error_of_rows([out, dq], *given, None, 32) > 0.1
    # The last row of the last block row.
    for results in ([out.detach().clone(), dq], [out, dq.clone()]):
        changed = results[0] if results[0] is not out else results[1]
        changed[1, 1, 199, 3] = float("nan")
        assert exact.error_of_rows(results, *given, pattern, 32) == float("inf")


@pytest.mark.parametrize("target", [1.0, 0.5, 0.1, 0.05])
def test_random_patterns_come_as_close_to_the_density_as_blocks_allow(load: Load, target: float) -> None:
    cells = load("attention.cells")
    pattern = cells.random_pattern(4096, target, 128, torch.device("cpu"), 0).validate()
    assert pattern.blocks == max(32, round(target * 32 * 32))
    assert pattern.density == pytest.approx(target, abs=0.5 / 32**2)
    lengths = pattern.row_lengths()
    assert int(lengths.max()) - int(lengths.min()) <= 1
    assert int(lengths.min()) >= 1


def test_aims_are_the_least_of_their_cases(load: Load) -> None:
    bars = load("attention.bars").bars
    cases = [
        _row(4096, 0.1, 6.5, over_flex={"median": 1.9}),
        _row(4096, 0.1, 6.1, key="worse"),
        _row(4096, 0.1, 2.0, block_size=64),
        _row(4096, 0.1, 1.0, pattern="bigbird"),
        _row(16384, 0.1, 8.0, gradient=True),
        _row(65536, 0.1, 7.0, agrees=False),
        _row(1024, 1.0, 0.9, over_flex={"median": 0.5}),
    ]
    found = bars(cases, [_selected(1024, 0.5), _selected(4096, 2.0)], None)
    assert found["sparse_4096_forward"] == {"least": 6.1, "case": "worse", "cases": 2}
    assert found["sparse_long_forward"]["least"] == 7.0
    assert found["sparse_long_both"] == {"least": 8.0, "case": "random-0.1-16384", "cases": 1}
    # A density of one is no aim against FlexAttention, and any other none against flash.
    assert found["over_flex_forward"]["least"] == 1.9
    assert found["over_flex_both"] is None
    assert found["over_flash_forward"] == {"least": 0.9, "case": "random-1-1024", "cases": 1}
    assert found["disagreeing"] == ["random-0.1-65536"]
    assert found["break_even"]["0.1"]["device"] == {"length": 2048, "found": "between"}
    assert found["break_even"]["0.1"]["wall"]["length"] == 4096


def test_break_even_is_where_selection_wins_for_good(load: Load) -> None:
    break_even = load("attention.bars").break_even

    def rows(*gains: float) -> list[dict[str, Any]]:
        return [_selected(1024 << index, gain) for index, gain in enumerate(gains)]

    assert break_even(rows(0.5, 2.0)[::-1], "over_dense")["length"] == pytest.approx(1448, abs=1)
    assert break_even(rows(1.5, 2.0), "over_dense") == {"length": 1024, "found": "below"}
    assert break_even(rows(2.0, 0.5), "over_dense") == {"length": None, "found": "never"}
    assert break_even(rows(2.0, 0.5, 2.0), "over_dense")["length"] == pytest.approx(2896, abs=1)
    assert break_even([], "over_dense") == {"length": None, "found": "never"}
