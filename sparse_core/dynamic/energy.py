"""Energy of a device in joules, from hardware counters: RAPL for CPUs, NVML for NVIDIA GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch

from sparse_core.errors import EnergyUnavailableError

#: Linux folder with the counters of CPU packages (Intel's RAPL; AMD's have the same names).
POWERCAP = Path("/sys/class/powercap")
#: Counted domains: packages, and memory outside of them. Cores and graphics are parts of a package, and the
#: platform ("psys") includes all of them.
_COUNTED = ("package", "dram")
#: Seconds of work after which a counter is precise enough to be divided by frames.
_RAPL_LEAST_S, _NVML_LEAST_S = 0.01, 1.0
_NVML = "libnvidia-ml.so.1"


class EnergyMeter:
    """Cumulative energy of a device in joules; only differences are meaningful.

    The counters include all programs on the device and its idle power.

    Args:
        device: a CPU: all its packages and their memory; a CUDA device: that GPU alone.
        root: folder with the CPU counters; by default ``/sys/class/powercap``.

    Attributes:
        sources: names of the counters.
        least_s: seconds of work that a difference should cover. CPU counters move about every millisecond,
            GPU counters a few times per second.

    Raises:
        EnergyUnavailableError: no counter can be read; the message gives the reason and the fix.
    """

    def __init__(self, device: str | torch.device = "cpu", *, root: str | Path | None = None) -> None:
        chosen = torch.device(device)
        self._counters: list[Callable[[], float]]
        self.sources: tuple[str, ...]
        if chosen.type == "cuda":
            self._counters, self.sources = [_nvml_counter(chosen)], (torch.cuda.get_device_name(chosen),)
            self.least_s = _NVML_LEAST_S
        elif chosen.type == "cpu":
            domains = _domains(Path(POWERCAP if root is None else root))
            self._counters, self.sources = [domain.read_j for domain in domains], tuple(map(str, domains))
            self.least_s = _RAPL_LEAST_S
        else:
            raise EnergyUnavailableError(f"no energy counter exists for device {str(chosen)!r}")

    def __call__(self) -> float:
        """Return the joules so far; never less than before."""
        return sum(read() for read in self._counters)


class _Domain:
    """A counter of microjoules that wraps around.

    Args:
        folder: holds ``name``, ``energy_uj`` and ``max_energy_range_uj``.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "energy_uj"
        self._name = (folder / "name").read_text().strip()
        self._range_uj = _number(folder / "max_energy_range_uj")
        self._last_uj = _number(self._file)
        self._total_uj = 0

    def __str__(self) -> str:
        return self._name

    def read_j(self) -> float:
        """Return the joules since the counter was first read."""
        now_uj = _number(self._file)
        risen_uj = now_uj - self._last_uj
        self._total_uj += risen_uj if risen_uj >= 0 else risen_uj + self._range_uj
        self._last_uj = now_uj
        return self._total_uj / 1e6


def _domains(root: Path) -> list[_Domain]:
    folders = [
        folder
        for folder in sorted(root.glob("intel-rapl:*"))
        if (folder / "name").is_file() and (folder / "name").read_text().startswith(_COUNTED)
    ]
    if not folders:
        raise EnergyUnavailableError(
            f"the energy of this CPU cannot be read: {root} has no intel-rapl:*/energy_uj of a"
            " package. Load the Linux module intel_rapl_msr; virtual machines have no energy counters"
        )
    return [_Domain(folder) for folder in folders]


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except PermissionError:
        reason = f"only root may; run as root, or let others: sudo chmod a+r {file}"
    except FileNotFoundError:
        reason = "there is no such file"
    except (OSError, ValueError) as error:
        reason = str(error)
    raise EnergyUnavailableError(f"the energy of this CPU cannot be read from {file}: {reason}")


def _nvml_counter(device: torch.device) -> Callable[[], float]:
    """Return a function that reads the joules of a GPU since its driver was loaded (NVML)."""
    try:
        library = ctypes.CDLL(_NVML)
    except OSError as error:
        raise EnergyUnavailableError(
            f"the energy of {device} cannot be read: {_NVML}, a part of NVIDIA's driver, is missing: {error}"
        ) from None
    library.nvmlErrorString.restype = ctypes.c_char_p

    def called(name: str, *arguments: object) -> None:
        status = getattr(library, name)(*arguments)
        if status:
            told = library.nvmlErrorString(status).decode()
            raise EnergyUnavailableError(f"the energy of {device} cannot be read: {name}: {told}")

    handle, total_mj = ctypes.c_void_p(), ctypes.c_ulonglong()
    called("nvmlInit_v2")
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    called("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))

    def read_j() -> float:
        called("nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(total_mj))
        return total_mj.value / 1e3

    # An unreadable counter fails here and not at the first frame.
    read_j()
    return read_j
