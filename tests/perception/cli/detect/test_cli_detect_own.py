"""``perceive detect`` on a folder of one's own data: its scans are read as its description says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from own_scene import describe_folder

Perceive = Callable[..., Any]


def test_scans_are_read_as_described(perceive: Perceive, tiny_weights: Path, tmp_path: Path) -> None:
    plain = describe_folder(tmp_path)
    options = ("--weights", tiny_weights, "--score", 0.0, "--json")
    expected = perceive("detect", plain / "scans", *options)
    assert expected.status == 0
    for path in (plain / "scans").iterdir():
        table = np.fromfile(path, "<f4").reshape(-1, 4) * np.float32([1024, 1024, 1024, 1])
        table.tofile(path)
    (plain / "dataset.yaml").write_text(
        f"scans: {{path: scans, scale: {1 / 1024}}}\nlabels: {{path: labels}}\n"
    )
    # The folder itself does as well as that of the scans.
    for where in (plain, plain / "scans", plain / "scans/a1.bin"):
        found = perceive("detect", where, *options)
        assert found.status == 0
        for one, other in zip(found.output.splitlines(), expected.output.splitlines(), strict=False):
            assert json.loads(one)["boxes"] == json.loads(other)["boxes"]
    # What is asked for counts more than what is described.
    raw = perceive("detect", plain / "scans/a1.bin", *options, "--scale", 1 / 2048)
    assert json.loads(raw.output)["boxes"] != json.loads(expected.output.splitlines()[0])["boxes"]
