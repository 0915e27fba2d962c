"""The files and changes of docs/adding.md work in a copy of the packages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("adding.py")


def add(page: str, copy: Path) -> list[str]:
    """Apply the page; return the files that were written or changed."""
    blocks = re.findall(r"^(New file|Changed) `(.*?)`:\n\n```(\w+)\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == page.count("```") // 2, "a block that no test sees"
    for what, name, language, text in blocks:
        path = copy / name
        assert (what, language) in {("New file", "python"), ("Changed", "diff")}
        assert path.exists() == (what == "Changed"), name
        if what == "New file":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            continue
        content = path.read_text()
        for hunk in text.split("@@\n"):
            before, after = (
                "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] in kept)
                for kept in (" -", " +")
            )
            assert content.count(before) == 1, f"{name} has no longer, or more than once: {before}"
            content = content.replace(before, after)
        path.write_text(content)
    return [name for _, name, _, _ in blocks]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository, copy = Path(__file__).parents[2], tmp_path_factory.mktemp("copy")
    for package in ("sparse_core", "perception", "memory", "tests/contract", "tests/sparse_core/oracles"):
        shutil.copytree(
            repository / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "weights")
        )
    shutil.copytree(repository / "memory/encode/weights", copy / "memory/encode/weights")
    add((repository / "docs/adding.md").read_text(), copy)
    return copy


@pytest.fixture(scope="module")
def report(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(copy), str(tmp_path_factory.mktemp("used"))],
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["packages"] == [str(copy)] * 3
    return found


def test_op_and_its_second_implementation(report: dict[str, Any]) -> None:
    op = report["op"]
    assert op["listed"]
    assert op["gradient"]
    assert op["auto"] == "reference", "the other one is run by its name only"
    assert op["wrong"].keys() == {"reference", "vendor"}
    assert all(set(sizes) == {"0", "1", "7", "33"} for sizes in op["wrong"].values())
    assert {text for sizes in op["wrong"].values() for text in sizes.values()} == {""}
    assert op["refused"]["triton"].startswith("ImplementationError: row_sums has no triton implementation")


def test_data_set(report: dict[str, Any]) -> None:
    found = report["data set"]
    assert found["class"] == "ListedDataSet"
    assert found["frames"] == [["a", 3200, ["Car"]], ["b", 3200, ["Car"]]]
    status, told = found["doctor"]
    assert (status, told["ok"]) == (0, True)
    assert told["statistics"]["boxes"] == {"Car": 2}
    assert told["statistics"]["points_per_box"]["Car"]["median"] == 200


def test_index(report: dict[str, Any]) -> None:
    found = report["index"]
    assert found["listed"]
    assert found["found"] == [7, 290] * 2, "built, and read from its file"
    assert [tier[0] for tier in found["tiers"]] == ["BackwardsIndex"] * 2
    assert all(long_term > 200 for _, _, long_term in found["tiers"])


def test_command(report: dict[str, Any]) -> None:
    status, printed = report["command"]
    assert status == 0
    assert "listed data set: boxes.json\n" in printed


def test_detector_by_name(report: dict[str, Any]) -> None:
    """The name in the configuration is enough to train, save, compress, load and run."""
    found = report["detectors"]
    assert found["done"]
    for status, backbone, pool, boxes in found["pooled"].values():
        assert (status, backbone, pool) == (0, "PooledBackbone", "mean")
        assert boxes > 0


def test_steps_by_name(report: dict[str, Any]) -> None:
    found = report["detectors"]
    assert found["stages"] == ["pillars", "encoder", "neck", "head", "proposals", "NMS"]
    assert found["stricter"] == 0
    (box,) = found["boxes"]
    assert box == pytest.approx([10, 1, -0.75, 2, 1, 1.1, 0], abs=0.05)
    assert found["scores"] == [pytest.approx(200 / 220)]


def test_the_page_links_what_it_adds_to(copy: Path) -> None:
    """Every kind of thing has its section, its table of files and its smallest example."""
    page = (Path(__file__).parents[2] / "docs/adding.md").read_text()
    sections = page.split("\n## ")[1:]
    assert [section.splitlines()[0] for section in sections] == [
        "An op", "An implementation of an op", "A data set", "A memory index", "A command", "A detector"
    ]  # fmt: skip
    for section in sections:
        assert "mallest" in section
        assert "](../" in section
        assert "New file `" in section
