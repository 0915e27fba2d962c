"""The benchmark of precisions: a short run without other libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.mark.slow
def test_sides_share_one_run(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("calls.precisions")

    def peers(seed: int, folder: Path) -> dict[str, dict[str, Any]]:
        return {"Peer": {"int8": lambda: sum(range(100_000))}}

    monkeypatch.setattr(module, "peers_of", peers)
    out = tmp_path / "precisions.json"
    assert module.main(["--quick", "--rounds", "2", "--threads", "1", "--out", str(out)]) == 0
    sides = {side["side"]: side for side in json.loads(out.read_text())["sides"]}
    assert {"float32", "int8", "int8, 2:4 weights", "Peer, int8, network alone"} <= sides.keys()
    assert sides["float32"]["over_float32"] == sides["int8"]["over_int8"] == 1.0
    assert all(side["median_ms"] > 0 for side in sides.values())


def test_the_process_clock_is_that_of_the_processor(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timing = load("lib.timing")
    clocks = {"process_time": iter([1.0, 1.25]), "perf_counter": iter([5.0, 7.0])}
    for name, ticks in clocks.items():
        monkeypatch.setattr(timing.time, name, ticks.__next__)
    cpu = torch.device("cpu")
    assert timing.time_once(lambda: None, cpu, "process") == 250.0
    assert timing.time_once(lambda: None, cpu) == 2000.0
