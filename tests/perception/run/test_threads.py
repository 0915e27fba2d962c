"""Frames on a CPU have the same bits whatever the number of threads and whatever other programs do."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from perception import Detector
from perception.train.data.frames import TrainingFrame
from sparse_core.common import workers

ROOT = Path(__file__).parents[3]
Street = Callable[[int], TrainingFrame]
#: By instruction set: what the libraries of a frame read, and whether this CPU has it.
SETS: dict[str, tuple[dict[str, str], Callable[[], bool]]] = {
    "AVX2": (
        {
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "OPENBLAS_CORETYPE": "Haswell",
        },
        torch.cpu._is_avx2_supported,
    ),
    "AVX-512": (
        {
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
            "ATEN_CPU_CAPABILITY": "avx512",
            "MKL_ENABLE_INSTRUCTIONS": "AVX512",
            "OPENBLAS_CORETYPE": "SkylakeX",
        },
        torch.cpu._is_avx512_supported,
    ),
    "VNNI": (
        {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "MKL_ENABLE_INSTRUCTIONS": "AVX512_E1"},
        torch.cpu._is_vnni_supported,
    ),
    "AMX": (
        {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX", "MKL_ENABLE_INSTRUCTIONS": "AVX512_E4"},
        torch.cpu._is_amx_tile_supported,
    ),
    "own": ({}, lambda: True),
}
#: Operations that only make or view memory; how much memory a layer takes depends on the threads.
_MEMORY = ("aten.empty", "aten.slice", "aten.view", "aten.new_empty", "aten.zero_", "aten.detach")


@pytest.fixture(scope="module")
def scans(street: Street, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two scans in a file, a simulated one and, where there is real data, one of KITTI."""
    made = {"street": street(0).points}
    data = Path(os.environ.get("SPARSIGHT_DATA", ROOT.parent / "shared" / "data"))
    real = data / "kitti" / "training" / "velodyne_reduced" / "000000.bin"
    if real.is_file():
        made["kitti"] = np.fromfile(real, dtype="<f4").reshape(-1, 4)
    path = tmp_path_factory.mktemp("scans") / "scans.npz"
    np.savez(path, **made)
    return path


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SETS)
def test_one_to_four_threads_give_the_same_bits(name: str, scans: Path) -> None:
    environment, has = SETS[name]
    if not has():
        pytest.skip(f"this CPU has no {name}")
    done = subprocess.run(
        [
            sys.executable,
            Path(__file__).with_name("frame_digests.py"),
            scans,
            "few" if environment else "every",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {way: len(set(digests)) for way, digests in found.items()} == dict.fromkeys(found, 1)
    assert found["sparse"][0] != found["dense"][0]


@pytest.fixture(scope="module")
def detectors() -> dict[str, Detector]:
    near = (0.0, -7.68, -3.0, 16.64, 7.68, 1.0)
    names = {"sparse": "pointpillars-kitti", "dense": "pointpillars-kitti-dense"}
    return {
        kind: Detector.from_pretrained(name).with_range(near).with_score_threshold(0.0)
        for kind, name in names.items()
    }


def test_helpers_that_get_no_core_change_no_bit(
    detectors: dict[str, Detector],
    street: Street,
    threads: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads(2)
    points = street(0).points
    helped = [detector(points) for detector in detectors.values()]
    monkeypatch.setattr(workers._SharedJob, "help", lambda _: None)
    alone = [detector(points) for detector in detectors.values()]
    for one, other in zip(helped, alone, strict=True):
        assert np.array_equal(one.boxes, other.boxes)
        assert np.array_equal(one.scores, other.scores)
    assert all(len(one.boxes) for one in helped)


class Recorder(TorchDispatchMode):
    """Counts operations with the shapes of what they read, and the numbers of threads of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: collections.Counter[tuple[Any, ...]] = collections.Counter()
        self.threads: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not str(func).startswith(_MEMORY):
            shapes = [tuple(part.shape) for part in tree_leaves(args) if isinstance(part, Tensor)]
            self.operations[(str(func), *shapes)] += 1
            self.threads.add(torch.get_num_threads())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_no_operation_depends_on_the_number_of_threads(
    kind: str,
    detectors: dict[str, Detector],
    street: Street,
    threads: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points, detector = street(0).points, detectors[kind]
    enter = workers._Modes.enter

    def operations(count: int) -> collections.Counter[tuple[Any, ...]]:
        threads(count)
        detector(points)
        recorders: list[Recorder] = []

        @contextlib.contextmanager
        def entered(modes: workers._Modes) -> Iterator[None]:
            recorders.append(recorder := Recorder())
            with enter(modes), recorder:
                yield

        with monkeypatch.context() as patch:
            patch.setattr(workers._Modes, "enter", entered)
            # In a worker also where there is one thread, so that all is recorded.
            workers.run_on_worker(lambda: detector._eager([torch.from_numpy(points)]), count)
        assert set().union(*(recorder.threads for recorder in recorders)) == {1}
        return sum((recorder.operations for recorder in recorders), collections.Counter())

    threads(2)
    first = operations(2)
    assert any("conv2d" in name if kind == "dense" else "addmm" in name for name, *_ in first)
    assert all(operations(count) == first for count in (3, 4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_default_type_of_torch_changes_no_bit(
    dtype: torch.dtype, detectors: dict[str, Detector], street: Street
) -> None:
    points = street(0).points
    expected = {kind: detector(points) for kind, detector in detectors.items()}
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        found = {kind: detector(points) for kind, detector in detectors.items()}
        loaded = Detector.from_pretrained("pointpillars-kitti").network
    finally:
        torch.set_default_dtype(before)
    for kind, one in found.items():
        assert np.array_equal(one.boxes, expected[kind].boxes)
        assert np.array_equal(one.scores, expected[kind].scores)
    assert {value.dtype for value in loaded.parameters()} == {torch.float32}
