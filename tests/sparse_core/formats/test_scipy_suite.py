from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest


@pytest.mark.slow
def test_scipys_own_tests_pass_with_our_operators_inside(tmp_path: Path, repository: Path) -> None:
    # Not imported: its marks are unknown here.
    if importlib.util.find_spec("scipy.sparse.tests") is None:
        pytest.skip("scipy is installed without its tests")
    suite = Path(__file__).with_name("scipy_suite.py")
    report = tmp_path / "report.xml"
    # A separate configuration, because scipy's marks are not registered here.
    options = ["-c", os.devnull, f"--rootdir={tmp_path}", "-p", "no:dash", "-p", "no:cacheprovider", "-n0"]
    folders = (repository, repository / "tests/sparse_core/oracles")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", str(suite), "-q", *options, "-W", "ignore", f"--junitxml={report}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
    found = next(iter(ElementTree.parse(report).iter("testsuite")))
    assert int(found.attrib["tests"]) > 300
    answered = {item.attrib["name"]: int(item.attrib["value"]) for item in found.iter("property")}
    assert set(answered) >= {"+", "-", "*", "/", "@", "neg", "[]", "sum", "diagonal", "to_dense"}
    assert sum(answered.values()) > 5000
