"""Weights to a stand-in of the hub and back, by huggingface_hub itself, and what a card says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hub_server import Hub, running_hub

from perception.checkpoints import hub
from perception.checkpoints.weights import load_weights, push_to_hub, save_weights
from perception.config import DetectorConfig
from perception.errors import CheckpointError
from perception.model.network import Network


def perceive(served: Hub, cache: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python against that hub; where the hub is is read when huggingface_hub is imported."""
    settings = {
        "HF_ENDPOINT": served.address,
        "HF_HOME": str(cache),
        "HF_TOKEN": "hf_nobody",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env=os.environ | settings, capture_output=True, text=True
    )


_PUSH = "import sys; from perception.cli import main; sys.exit(main(['push', *sys.argv[1:]]))"
_LOAD = """
import sys, torch
from perception import Detector
from perception.checkpoints.weights import load_weights
own, fetched = (load_weights(name).state_dict() for name in sys.argv[1:])
assert own.keys() == fetched.keys()
assert all(torch.equal(own[name], fetched[name]) for name in own)
print(len(Detector.from_pretrained(sys.argv[2])(torch.zeros(0, 4))))
"""
_MISSING = "import sys; from perception.cli import main; sys.exit(main(['export', 'no/body']))"
#: Both settings, in processes that are forked when torch is loaded and huggingface_hub is not.
_OFFLINE = """
import os, sys, torch
from perception.cli import main
for offline in "01":
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print("of", offline, file=sys.stderr, flush=True)
        continue
    os.environ["HF_HUB_OFFLINE"] = offline
    assert "huggingface_hub" not in sys.modules
    sys.exit(main(["export", "no/body"]))
"""


@pytest.mark.slow
def test_to_the_hub_and_back(tiny_network: Network, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    weights = tmp_path / "tiny.safetensors"
    save_weights(tiny_network, weights)
    with running_hub() as served:
        pushed = perceive(
            served, tmp_path / "a", _PUSH, str(weights), "robots/tiny", "--licence", "apache-2.0"
        )
        assert pushed.returncode == 0, pushed.stderr
        assert pushed.stdout.strip() == f"{served.address}/robots/tiny"
        # As huggingface_hub says it from 1.0 on, and before.
        assert served.made[0].get("visibility") == "private" or served.made[0]["private"] is True
        files = served.repositories["robots/tiny"]
        assert sorted(name for name in files if not name.startswith(".")) == [
            "README.md", "config.json", "model.safetensors",
        ]  # fmt: skip
        assert files["model.safetensors"] == weights.read_bytes()
        loaded = perceive(served, tmp_path / "b", _LOAD, str(weights), "robots/tiny")
        assert loaded.returncode == 0, loaded.stderr
        assert loaded.stdout.strip() == "0"
        missing = perceive(served, tmp_path / "b", _MISSING)
        assert missing.returncode == 2
        assert f"the hub ({served.address}) failed: " in missing.stderr
        assert "check the name, and HF_TOKEN if the repository is private" in missing.stderr


def test_a_hub_that_cannot_be_asked(tmp_path: Path) -> None:
    """The cause, what to do about it, and how to name a file instead."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    with running_hub() as served:
        closed = served.address
    settings = {"HF_ENDPOINT": closed, "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _OFFLINE],
        env=os.environ | settings | {"NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["2", "2"], done.stderr
    reached, refused, _ = done.stderr.replace("of 1", "of 0").split("of 0\n")
    for remark, advice in ((reached, "check the network"), (refused, "unset it")):
        assert f"no file 'no/body', and the hub ({closed}) " in remark
        assert advice in remark
        assert "for a folder of hub files FOLDER/model.safetensors" in remark


def test_card(tiny_config: DetectorConfig) -> None:
    card = hub.model_card(tiny_config, "robots/tiny", licence="cc-by-nc-sa-4.0")
    _, metadata, text = card.split("---\n", 2)
    values = yaml.safe_load(metadata)
    assert values["license"] == "cc-by-nc-sa-4.0"
    assert values["pipeline_tag"] == "object-detection"
    assert 'from_pretrained("robots/tiny")' in text
    assert "| Classes | Car, Pedestrian |" in text
    assert "x 0 to 16 m, y -8 to 8 m, z -3 to 1 m" in text


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("robots/tiny", True), ("a.b/c-d_1", True), ("tiny", False), ("a/b/c", False), ("../x", False),
     ("runs/last.safetensors", False), ("/abs", False)],
)  # fmt: skip
def test_names_of_repositories(name: str, is_one: bool) -> None:
    assert hub.names_repository(name) is is_one


def test_without_huggingface_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_network: Network
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"sparsight\[hub\]"):
        load_weights("robots/tiny")
    weights = tmp_path / "tiny.safetensors"
    save_weights(tiny_network, weights)
    with pytest.raises(ImportError, match=r"sparsight\[hub\]"):
        push_to_hub(weights, "robots/tiny")
    with pytest.raises(ValueError, match="organisation/name"):
        push_to_hub(weights, "tiny")
    # A folder of that name is a mistyped path.
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="no weights 'runs/last'"):
        load_weights("runs/last")
