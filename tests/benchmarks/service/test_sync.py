"""The benchmark of sending to a shared store: a short run of all its sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_a_short_run_has_all_sides(load: Any, tmp_path: Path) -> None:
    for name in ("psycopg", "pg0", "fastapi"):
        pytest.importorskip(name)
    tmp_path.chmod(0o755)
    out = tmp_path / "sync.json"
    assert load("service.sync").main(["--rows", "40", "--turns", "1", "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    assert [case["side"] for case in values["cases"]] == ["folder", "server", "service"]
    rates = {"new_per_s", "changed_per_s", "gone_per_s", "pulled_per_s"}
    for case in values["cases"]:
        assert set(case) == {"side", *rates}
        assert min(case[rate] for rate in rates) > 0
