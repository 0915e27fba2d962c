"""Two machines that train together, as two `torchrun`s on this one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from perception.cli import main

ROOT = Path(__file__).resolve().parents[3]


def torchrun(folder: Path, out: str, *words: str) -> subprocess.Popen[str]:
    """Start the processes of one machine."""
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    command += [
        "-m",
        "perception.cli",
        "train",
        "few.yaml",
        "--data",
        "data",
        "--out",
        out,
        "--device",
        "cpu",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_machines_train_what_two_processes_of_one_do(tmp_path: Path) -> None:
    assert main(["simulate", "--out", str(tmp_path / "data"), "--frames", "6", "--hold-out", "2"]) == 0
    config = yaml.safe_load((ROOT / "perception/configs/smoke.yaml").read_text())
    (tmp_path / "few.yaml").write_text(yaml.safe_dump({**config, "steps": 4, "checkpoint_every": 4}))
    port = free_port()
    nodes = [
        torchrun(
            tmp_path, "nodes", "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1",
            "--master-addr=127.0.0.1", f"--master-port={port}",
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [node.communicate(timeout=600)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    one = torchrun(tmp_path, "one", "--nproc-per-node=2", f"--master-port={free_port()}")
    told, _ = one.communicate(timeout=600)
    assert one.returncode == 0, told
    weights = [
        torch.load(tmp_path / name / "checkpoint.pt", map_location="cpu", weights_only=False)
        for name in ("nodes", "one")
    ]
    flat = [dict(tensors(each)) for each in weights]
    assert len(flat[0]) > 20
    assert flat[0].keys() == flat[1].keys()
    for name, tensor in flat[0].items():
        assert torch.equal(tensor, flat[1][name]), name


def tensors(value: object, name: str = "") -> list[tuple[str, torch.Tensor]]:
    """Everything that is a tensor of floating point in nested mappings."""
    if isinstance(value, torch.Tensor):
        return [(name, value)] if value.is_floating_point() else []
    if isinstance(value, dict):
        return [pair for key, each in value.items() for pair in tensors(each, f"{name}.{key}")]
    return []
