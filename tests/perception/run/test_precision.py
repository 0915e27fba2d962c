"""The precision that features of a frame have, and where it cannot be."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from perception import Detector
from perception.cli.console import add_precision_option
from perception.model.network import Network
from perception.run import precision
from perception.run.precision import PRECISIONS, usable_precision
from perception.stages.byte_outputs import byte_outputs
from perception.train.data.frames import TrainingFrame
from sparse_core.kernels import native

Street = Callable[[int], TrainingFrame]
CPU = torch.device("cpu")


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of bfloat16 are there, or slow ones in their place."""
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)


@pytest.mark.usefixtures("able")
def test_what_is_asked_for_is_what_runs(tiny_network: Network) -> None:
    assert usable_precision(None, tiny_network, CPU, graphs=False) == "float32"
    assert usable_precision(None, tiny_network, CPU, graphs=True) == "float16"
    for name in PRECISIONS.keys() - {"int8"}:
        assert usable_precision(name, tiny_network, CPU, graphs=True) == name
    for wanted in ("float32", "bfloat16"):
        assert usable_precision(wanted, tiny_network, CPU, graphs=False) == wanted
        assert Detector(tiny_network, precision=wanted).precision == wanted
    moved = Detector(tiny_network, precision="bfloat16").with_range((0, -16, -3, 32, 16, 1))
    assert moved.precision == "bfloat16"


@pytest.mark.usefixtures("able")
def test_where_it_cannot_be(tiny_network: Network) -> None:
    with pytest.raises(ValueError, match="precision='float16' is not supported here: without CUDA graphs"):
        Detector(tiny_network, precision="float16")
    with pytest.raises(ValueError, match="without CUDA graphs frames run in float32"):
        usable_precision("bfloat16", tiny_network, torch.device("cuda"), graphs=False)
    for changes in ({"kind": "dense"}, {"dilating": False}, {"impl": "reference"}):
        config = replace(tiny_network.config.backbone, **changes)
        other = Network(replace(tiny_network.config, backbone=config)).eval()
        with pytest.raises(ValueError, match="bfloat16 needs a sparse network"):
            Detector(other, precision="bfloat16")


def test_int8_needs_ranges_a_cpu_and_a_library(
    tiny_network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="these weights have no int8 ranges, which perceive quantise"):
        Detector(tiny_network, precision="int8")
    tiny_network.ranges = {name: 1.0 for name, _ in byte_outputs(tiny_network)}
    monkeypatch.setattr(native, "available", lambda _: True)
    assert Detector(tiny_network, precision="int8").precision == "int8"
    for graphs in (True, False):
        with pytest.raises(ValueError, match="int8 runs on a CPU only"):
            usable_precision("int8", tiny_network, torch.device("cuda"), graphs=graphs)
    dense = Network(
        replace(tiny_network.config, backbone=replace(tiny_network.config.backbone, kind="dense"))
    )
    with pytest.raises(ValueError, match="on a CPU int8 needs a sparse network"):
        Detector(dense.eval(), precision="int8")
    monkeypatch.setattr(native, "available", lambda _: False)
    with pytest.raises(ValueError, match=r"int8 needs a C\+\+ compiler"):
        Detector(tiny_network, precision="int8")


def test_a_processor_without_bfloat16_is_named(
    tiny_network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    with pytest.raises(ValueError, match=r"this CPU cannot multiply bfloat16 \(AVX512-BF16 or AMX\)"):
        Detector(tiny_network, precision="bfloat16")
    assert Detector(tiny_network).precision == "float32"
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert Detector(tiny_network, precision="bfloat16").precision == "bfloat16"


@pytest.mark.usefixtures("able", "one_thread")
def test_frames_that_do_not_take_the_planned_path_are_refused(tiny_network: Network, street: Street) -> None:
    detector = Detector(tiny_network, precision="bfloat16")
    detector(street(0).points)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(ValueError, match="precision='bfloat16' needs a CPU without autocast"),
    ):
        detector(street(0).points)
    tiny_network.neck.out.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="own folded layers without hooks"):
        detector(street(0).points)


def test_commands_know_the_same_precisions() -> None:
    parser = ArgumentParser()
    add_precision_option(parser)
    assert parser.parse_args([]).precision is None
    assert parser.parse_args(["--precision", "bfloat16"]).precision == "bfloat16"
    assert set(parser._actions[-1].choices or ()) == set(PRECISIONS)
