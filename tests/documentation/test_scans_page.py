"""The rig of sensors in docs/scans.md can be read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from perception.io.rig import read_rig

PAGE = (Path(__file__).resolve().parents[2] / "docs/scans.md").read_text(encoding="utf-8")


def test_the_sensors_of_the_page_are_read(tmp_path: Path) -> None:
    (found,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "rig.yaml").write_text(found)
    rig = read_rig(tmp_path / "rig.yaml")
    assert [sensor.name for sensor in rig.sensors] == ["front", "rear"]
    assert (rig.tolerance_s, rig.sensor_height_m, rig.frame) == (0.05, 0.0, "base_link")
    assert rig.sensors[1].transform.scale == 0.001
    # The sensor looks five degrees down, so points ahead of it are lower.
    ahead = rig.sensors[0].common_from_sensor @ np.array([10.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(
        ahead[:3], [0.9 + 10 * np.cos(np.radians(5)), 0, 1.2 - 10 * np.sin(np.radians(5))]
    )
