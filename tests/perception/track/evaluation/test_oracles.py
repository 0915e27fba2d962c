"""The same figures as the programs that define them, where those are installed.

``pip install eval-ab-3d-mot trackeval``; the first one brings pure-ab-3d-mot, munkres, filterpy,
rich-argparse and association-quality-clavia.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.data.kitti.tracking import read_sequence_lengths
from perception.track.evaluation import clear_measures, hota_measures, load_sequences

Write = Callable[[Path, int], tuple[Path, Path]]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("label", ["car", "pedestrian"])
def test_clear_measures_are_those_of_ab3dmot(
    seed: int, label: str, write_sequences: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("eval_ab_3d_mot", reason="the package eval-ab-3d-mot is not installed")
    monkeypatch.setattr(np, "float", float, raising=False)
    labels, results = write_sequences(tmp_path / "data", seed)
    expected = _ab3dmot(labels, results, label, tmp_path, monkeypatch)
    found = clear_measures(load_sequences(labels, results), label).to_dict()
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("label", ["car", "pedestrian"])
def test_hota_is_that_of_trackeval(seed: int, label: str, write_sequences: Write, tmp_path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trackeval = pytest.importorskip("trackeval", reason="the package trackeval is not installed")
    labels, results = write_sequences(tmp_path / "data", seed)
    shutil.copy(labels / "seqmap.txt", labels / "evaluate_tracking.seqmap.training")
    shutil.copytree(results, tmp_path / "trackers" / "ours" / "data")
    places = {"GT_FOLDER": str(labels), "TRACKERS_FOLDER": str(tmp_path / "trackers")}
    quiet = dict.fromkeys(("PRINT_RESULTS", "OUTPUT_SUMMARY", "OUTPUT_DETAILED", "PLOT_CURVES"), False)
    with contextlib.redirect_stdout(io.StringIO()):
        data = trackeval.datasets.Kitti2DBox({**places, "CLASSES_TO_EVAL": [label], "PRINT_CONFIG": False})
        run = trackeval.Evaluator({**quiet, "PRINT_CONFIG": False, "BREAK_ON_ERROR": True})
        every, _ = run.evaluate([data], [trackeval.metrics.HOTA()])
    expected = every["Kitti2DBox"]["ours"]["COMBINED_SEQ"][label]["HOTA"]
    found = hota_measures(load_sequences(labels, results), label).to_dict()
    names = ["HOTA", "DetA", "AssA", "DetRe", "DetPr", "AssRe", "AssPr", "LocA"]
    wanted = {name.lower(): float(expected[name].mean()) for name in names}
    assert found == pytest.approx(wanted, abs=1e-9)


def _ab3dmot(
    labels: Path, results: Path, label: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """All that the program reports, by our names."""
    from eval_ab_3d_mot import evaluate_and_report as report
    from eval_ab_3d_mot.core.tracking_evaluation import TrackingEvaluation

    averages: dict[str, Any] = {}

    class Stat(report.Stat):  # type: ignore[misc]
        def output(self) -> None:
            super().output()
            averages.update(samota=self.sAMOTA, amota=self.amota, amotp=self.amotp)

    monkeypatch.setattr(report, "Stat", Stat)
    shutil.copytree(labels / "label_02", scratch / "truth" / "label")
    shutil.copytree(results, scratch / "found" / "ours" / "data_0")
    lengths = read_sequence_lengths(labels / "seqmap.txt")
    roots = {"ann_root": str(scratch / "truth"), "res_root": str(scratch / "found")}
    with contextlib.redirect_stdout(io.StringIO()):
        run = TrackingEvaluation("ours", lengths, cls=label, **roots)
        run.load_data(False)
        run.load_data(True)
        report.evaluate_and_report(run, "ours", str(scratch / "summary.txt"), False)
    names = {
        "mota": "MOTA", "motp": "MOTP", "recall": "recall", "precision": "precision", "f1": "F1",
        "mostly_tracked": "MT", "partly_tracked": "PT", "mostly_lost": "ML", "id_switches": "id_switches",
        "fragments": "fragments", "true_positives": "tp", "false_positives": "fp", "false_negatives": "fn",
        "labels": "n_gt",
    }  # fmt: skip
    return averages | {ours: getattr(run, theirs) for ours, theirs in names.items()}
