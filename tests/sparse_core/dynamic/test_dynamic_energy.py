"""EnergyMeter on folders as Linux lays them out, and on a real GPU."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from sparse_core.dynamic import JOULES, BudgetWarning, EnergyMeter, LatencyController, measure_levels
from sparse_core.errors import EnergyUnavailableError


def domain(root: Path, number: str, name: str, energy_uj: int, range_uj: int = 10_000_000) -> Path:
    """A domain of RAPL, and the file of its counter."""
    folder = root / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder / "energy_uj"


def test_packages_and_memory_are_summed_once(tmp_path: Path) -> None:
    first, second = domain(tmp_path, "0", "package-0", 5), domain(tmp_path, "1", "package-1", 7)
    memory, cores = domain(tmp_path, "0:1", "dram", 100), domain(tmp_path, "0:0", "core", 0)
    platform = domain(tmp_path, "2", "psys", 0)
    (tmp_path / "intel-rapl").mkdir()
    meter = EnergyMeter("cpu", root=tmp_path)
    assert meter.sources == ("package-0", "dram", "package-1")
    assert meter() == 0
    for file in (first, second, memory, cores, platform):
        file.write_text(f"{int(file.read_text()) + 1_500_000}\n")
    assert meter() == pytest.approx(4.5)
    assert meter() == pytest.approx(4.5)


def test_a_counter_that_begins_anew(tmp_path: Path) -> None:
    file = domain(tmp_path, "0", "package-0", 9_000_000)
    meter = EnergyMeter("cpu", root=tmp_path)
    told = []
    for energy_uj in (9_999_999, 500_000, 9_500_000, 0):
        file.write_text(str(energy_uj))
        told.append(meter())
    assert told == pytest.approx([0.999999, 1.5, 10.5, 11.0])


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        EnergyUnavailableError, match=r"has no intel-rapl:\*/energy_uj.* module intel_rapl_msr"
    ):
        EnergyMeter("cpu", root=tmp_path / "none")
    domain(tmp_path, "0", "psys", 1)
    with pytest.raises(EnergyUnavailableError, match="of a package"):
        EnergyMeter("cpu", root=tmp_path)
    file = domain(tmp_path, "1", "package-0", 1)
    meter = EnergyMeter("cpu", root=tmp_path)
    file.write_text("much")
    with pytest.raises(EnergyUnavailableError, match=r"from .*intel-rapl:1/energy_uj: .*'much'"):
        meter()
    file.unlink()
    with pytest.raises(EnergyUnavailableError, match=r"intel-rapl:1/energy_uj: there is no such file"):
        meter()
    with pytest.raises(EnergyUnavailableError, match="no energy counter exists for device 'meta'"):
        EnergyMeter("meta")


def test_a_counter_of_the_root_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = domain(tmp_path, "0", "package-0", 1)

    def read(self: Path, *arguments: object) -> str:
        if self == file:
            raise PermissionError(13, "Permission denied", str(self))
        return self.read_bytes().decode()

    # Root, who runs many tests, may read everything.
    monkeypatch.setattr(Path, "read_text", read)
    with pytest.raises(EnergyUnavailableError, match=r"only root may; .*sudo chmod a\+r .*energy_uj"):
        EnergyMeter("cpu", root=tmp_path)


def test_levels_by_joules(tmp_path: Path) -> None:
    file = domain(tmp_path, "0", "package-0", 9_900_000)

    def use(energy_uj: int) -> None:
        file.write_text(str((int(file.read_text()) + energy_uj) % 10_000_000))

    meter = EnergyMeter("cpu", root=tmp_path)
    levels = {"all": lambda: use(400_000), "half": lambda: use(150_000)}
    found = measure_levels(levels, repeats=3, warm_up=1, clock=meter)
    assert found == pytest.approx({"all": 0.4, "half": 0.15})
    controller = LatencyController(found, 0.3, quantity=JOULES)
    assert controller.choose() == "half"
    controller.set_budget(0.1)
    with pytest.warns(BudgetWarning, match=r"meets 0.1 J: the most frugal, 'half', .* to take 0.15 J"):
        controller.choose()
    with pytest.raises(ValueError, match="budget_j must be positive"):
        controller.set_budget(0)
    with pytest.raises(ValueError, match="joules of level 'a'"):
        LatencyController({"a": -1.0}, 1.0, quantity=JOULES)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_uses_energy() -> None:
    meter = EnergyMeter("cuda")
    assert meter.sources == (torch.cuda.get_device_name(),)
    matrix = torch.randn(4096, 4096, device="cuda")

    def watts(work: bool) -> float:
        before, begin = meter(), time.perf_counter()
        while time.perf_counter() - begin < meter.least_s:
            if work:
                for _ in range(20):
                    matrix @ matrix
            torch.cuda.synchronize()
            time.sleep(0 if work else 0.01)
        return (meter() - before) / (time.perf_counter() - begin)

    idle, busy = watts(False), watts(True)
    assert 5 < idle < 400
    assert idle < busy < 1500
