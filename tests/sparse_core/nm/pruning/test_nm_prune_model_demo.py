from __future__ import annotations

import importlib
import io
import json
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

from sparse_core.nm.layers.files import load_packed
from sparse_core.nm.layers.sparse_linear import SparseLinear
from sparse_core.nm.linear import product

QUIET = Console(quiet=True)

PROJECT = """
import torch
from torch import nn

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(4, 8, 3)
        self.hidden = nn.Linear(8 * 4 * 4, 32)
        self.last = nn.Linear(32, 5)

    def forward(self, x):
        return self.last(torch.relu(self.hidden(torch.relu(self.convolution(x)).flatten(1))))

def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(3):
        yield torch.randn(16, 4, 6, 6, generator=generator), torch.randint(5, (16,), generator=generator)

def training_batches():
    return batches(1)

def test_batches():
    return batches(2)
"""


@pytest.fixture(scope="module")
def prune_model(repository: Path) -> Iterator[ModuleType]:
    """The demo as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(repository / "demos"))
        yield importlib.import_module("prune_model")
    for name in ("prune_model", "pruning_task"):
        del sys.modules[name]


@pytest.fixture
def pruning_task(prune_model: ModuleType) -> ModuleType:
    return sys.modules["pruning_task"]


Main = Callable[..., str]


@pytest.fixture
def main(
    prune_model: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Main:
    """Run the demo in this process; returns what it prints."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["prune_model.py", *arguments, "--out", str(tmp_path)])
        prune_model.main()
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def checkpoint(prune_model: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits' dense network, trained by the demo itself."""
    path = tmp_path_factory.mktemp("dense") / "dense.pt"
    arguments = ["--checkpoint", str(path), "--rows", "2", "--out", str(path.parent)]
    product._warn_once.cache_clear()
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()) as printed,
    ):
        warnings.simplefilter("always", product.UnpackedWarning)
        patch.setattr(sys, "argv", ["prune_model.py", *arguments])
        prune_model.main()
    for text in ("pruning\n", "conversion\n", "SparseLinear", "digits: 2:4 by magnitude", "ms, 2 rows"):
        assert text in printed.getvalue()
    assert "packed n:m weights are unpacked" in printed.getvalue()
    assert (path.parent / "comparison.png").read_bytes().startswith(b"\x89PNG")
    return path


def on_digits(main: Main, checkpoint: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        main("--checkpoint", str(checkpoint), "--rows", "2", "--json", *arguments)
    )
    return found


# Some units of the network are never active on the calibration images.
@pytest.mark.filterwarnings("ignore:.* are zero in all calibration rows")
def test_every_row_of_the_table(main: Main, checkpoint: Path) -> None:
    arguments = ("--quantise", "--method", "sparsegpt", "--rows", "1", "8")
    report = on_digits(main, checkpoint, *arguments)
    table = report["table"]
    assert list(table) == ["dense", "pruned", "sparse layers", "sparse + int8"]
    assert all(row["accuracy"] > 0.9 for row in table.values())
    assert table["pruned"]["accuracy"] == table["sparse layers"]["accuracy"]
    sizes = [row["bytes"] for row in table.values()]
    assert sizes[0] == sizes[1] > 1.8 * sizes[2] > 5 * sizes[3]
    assert all(set(row["ms"]) == {"1", "8"} and min(row["ms"].values()) > 0 for row in table.values())
    assert report["pruning"]["sparsity"] == pytest.approx(0.5, abs=0.01)
    assert [layer["name"] for layer in report["conversion"]["converted"]] == ["0", "2", "4"]
    assert Path(report["picture"]).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gradient", "wanda", "sr-ste", "distil"])
def test_each_method(main: Main, checkpoint: Path, method: str) -> None:
    report = on_digits(main, checkpoint, "--method", method)
    assert report["table"]["sparse layers"]["accuracy"] > 0.9
    assert f"2:4 by {method}" in report["title"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["magnitude", "sr-ste", "distil"])
def test_training_recovers_what_one_shot_pruning_loses(main: Main, checkpoint: Path, method: str) -> None:
    def accuracy(*arguments: str) -> float:
        found = on_digits(main, checkpoint, "--pattern", "1:4", *arguments)["table"]
        return float(found["sparse layers"]["accuracy"])

    assert accuracy("--method", method, "--fine-tune", "100") > accuracy() + 0.05


def test_blocks(main: Main, checkpoint: Path) -> None:
    report = on_digits(main, checkpoint, "--pattern", "block:16:0.6")
    assert {layer["kind"] for layer in report["conversion"]["converted"]} == {"BlockSparseLinear"}
    assert report["table"]["sparse layers"]["bytes"] < 0.5 * report["table"]["dense"]["bytes"]


def test_the_example_of_the_help_prunes_a_model_of_ones_own(
    main: Main, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main("--help")
    text = capsys.readouterr().out.split("In mine.py:")[1].split("options:")[0]
    example, usage = text.strip("\n").split("    python ")
    (tmp_path / "mine.py").write_text(textwrap.dedent(example))
    (tmp_path / "my_project.py").write_text(PROJECT)
    namespace: dict[str, Any] = {}
    exec(PROJECT, namespace)
    torch.manual_seed(0)
    network = namespace["Network"]()
    torch.save(network.state_dict(), tmp_path / "weights.pt")

    arguments = usage.split()[1:]
    arguments[arguments.index("500")] = "5"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    report = json.loads(main(*arguments, "--rows", "3", "--json"))
    for name in ("mine", "my_project"):
        sys.modules.pop(name, None)
    assert [layer["name"] for layer in report["pruning"]["layers"]] == ["convolution", "hidden", "last"]
    assert [layer["name"] for layer in report["conversion"]["converted"]] == ["hidden", "last"]
    assert "convolution" in [layer["name"] for layer in report["conversion"]["skipped"]]
    load_packed(tmp_path / "mine.safetensors", network)
    assert isinstance(network.hidden, SparseLinear)
    assert int((network.convolution.weight == 0).sum()) == network.convolution.weight.numel() // 2


def test_training_resumes_from_its_checkpoint(pruning_task: ModuleType, tmp_path: Path) -> None:
    images, path = (
        torch.randn(40, 8, generator=torch.Generator().manual_seed(0)),
        tmp_path / "new" / "dense.pt",
    )

    def train(path: Path | None, interrupt: int | None = None) -> tuple[nn.Module, list[int]]:
        torch.manual_seed(1)
        model, steps = nn.Linear(8, 3), []

        def loss(step: int) -> torch.Tensor:
            if step == interrupt:
                raise KeyboardInterrupt
            steps.append(step)
            return model(images[step % 5 :: 5]).square().mean()

        pruning_task.fit(model, loss, 2 * pruning_task.SAVE_EVERY + 7, 1e-2, QUIET, path)
        return model, steps

    whole, _ = train(None)
    with pytest.raises(KeyboardInterrupt):
        train(path, interrupt=pruning_task.SAVE_EVERY + 5)
    rest, steps = train(path)
    assert steps[0] == pruning_task.SAVE_EVERY
    assert torch.equal(rest.weight, whole.weight)
    loaded, steps = train(path)
    assert steps == []
    assert torch.equal(loaded.weight, whole.weight)
    assert [file.name for file in path.parent.iterdir()] == ["dense.pt"]


def test_a_damaged_checkpoint_is_named(pruning_task: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "dense.pt"
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"dense\.pt: damaged, or not of this demo"):
        pruning_task.digits_task("cpu", path, QUIET)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "no such file"),
        ("def other(): pass", "no function 'task'"),
        ("def task(): return 3", r"return \(model, batches, evaluate\)"),
        ("from torch import nn\ndef task(): return nn.Linear(4, 4), [], len", "0 batches"),
        (
            "import torch\ndef task(): return torch.nn.Linear(4, 4), [torch.ones(2, 4)], len, []",
            "1 batches, 0 labels",
        ),
        (
            "import torch\ndef task(): return torch.nn.LSTM(4, 4), [torch.ones(2, 4)], len",
            "a tensor of logits",
        ),
    ],
)
def test_what_a_function_must_return(
    pruning_task: ModuleType,
    tmp_path: Path,
    source: str | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    if source is not None:
        (tmp_path / "mine.py").write_text(source)
    with pytest.raises(ValueError, match=message):
        pruning_task.own_task(f"{tmp_path / 'mine.py'}:task", "cpu")


def test_labels_are_the_models_own_answers_unless_they_are_given(
    pruning_task: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "batches = [{'input': torch.eye(3)}]\n"
        "def task(): return torch.nn.Identity(), batches, len\n"
        "def labelled(): return torch.nn.Identity(), batches, len, [torch.tensor([2, 2, 2])]\n"
    )
    for function, labels in (("task", [0, 1, 2]), ("labelled", [2, 2, 2])):
        task = pruning_task.own_task(f"{tmp_path / 'mine.py'}:{function}", "cpu")
        assert task.labels[0].tolist() == labels


def test_without_scikit_learn_it_says_what_to_install(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match=r"^prune_model: the digits need scikit-learn") as stopped:
        main()
    for remedy in ("pip install 'sparsight[prune]'", "pip install 'sparsight[prune]'", "--model"):
        assert remedy in str(stopped.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pattern", "24"), "a pattern is written n:m"),
        (("--pattern", "block:5"), "block size must be"),
        (("--pattern", "block:16", "--quantise"), "need an n:m pattern"),
        (("--pattern", "block:16", "--method", "sparsegpt"), "need an n:m pattern"),
        (("--method", "sr-ste", "--fine-tune", "3"), "sr-ste needs --fine-tune of at least 10"),
        (("--rows", "0"), "--rows of at least 1"),
        (("--model", "mine.py:task", "--checkpoint", "dense.pt"), "--checkpoint is for the digits"),
    ],
)
def test_options_that_make_no_sense(
    main: Main, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(*arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_a_model_without_a_matching_layer_is_one_line(main: Main, checkpoint: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        main("--checkpoint", str(checkpoint), "--select", "attention")
    assert str(stopped.value).startswith("prune_model: no layer matches 2:4 and select='attention'")
    assert "\n" not in str(stopped.value)
