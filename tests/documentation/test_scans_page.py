"""The page of formats names all that are read, and its description of sensors is one."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from pathlib import Path

import numpy as np

from perception.cli.scans.options import add_scan_options
from perception.io import SUPPORTED_SUFFIXES
from perception.io.recordings.bags import BAG_SUFFIXES
from perception.io.rig import read_rig
from perception.io.sensors.pcap import PCAP_SUFFIXES
from perception.scans import ScanTransform

PAGE = (Path(__file__).resolve().parents[2] / "docs/scans.md").read_text(encoding="utf-8")


def test_every_suffix_and_option_is_named() -> None:
    for suffix in (*SUPPORTED_SUFFIXES, *BAG_SUFFIXES, *PCAP_SUFFIXES):
        assert f"| `{suffix}`" in PAGE or f", `{suffix}`" in PAGE, suffix
    parser = argparse.ArgumentParser()
    add_scan_options(parser)
    options = re.findall(r"--[a-z-]+", parser.format_help())
    assert all(f"`{option}`" in PAGE or f" {option} " in PAGE for option in options if option != "--help")
    for entry in fields(ScanTransform):
        assert f"| `{entry.name}` |" in PAGE, entry.name


def test_the_sensors_of_the_page_are_read(tmp_path: Path) -> None:
    (found,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "rig.yaml").write_text(found)
    rig = read_rig(tmp_path / "rig.yaml")
    assert [sensor.name for sensor in rig.sensors] == ["front", "rear"]
    assert (rig.tolerance_s, rig.sensor_height_m, rig.frame) == (0.05, 0.0, "base_link")
    assert rig.sensors[1].transform.scale == 0.001
    # Five degrees down: what is ahead of the sensor is below it.
    ahead = rig.sensors[0].common_from_sensor @ np.array([10.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(
        ahead[:3], [0.9 + 10 * np.cos(np.radians(5)), 0, 1.2 - 10 * np.sin(np.radians(5))]
    )
