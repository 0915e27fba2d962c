"""The name of the processor, from the system's file or without it."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from sparse_core.common import machine


def test_the_model_is_the_first_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "_FACTS", facts)
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert machine.processor_name() == platform.machine()
    facts.write_bytes(b"vendor_id\t: Some\xff\nmodel name\t: Some: 9000\nmodel name\t: Other\n")
    assert machine.processor_name() == "Some: 9000"
    facts.write_text("Hardware\t: another system\n")
    assert machine.processor_name() == platform.machine()
