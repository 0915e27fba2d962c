"""``perceive eval --tracking``: evaluate tracking results by KITTI's or nuScenes' metrics."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT
from sparse_core.common.files import write_file
from sparse_core.common.table import Table, cell

CLASSES = ("Car", "Pedestrian", "Cyclist")


def add_tracking_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--tracking``."""
    parser.add_argument(
        "--tracking",
        type=Path,
        metavar="RESULTS",
        help="evaluate tracks with --data: folder of KITTI tracking files (sAMOTA, MOTA, HOTA), or nuScenes"
        " result file (AMOTA)",
    )


def run_tracking(options: argparse.Namespace) -> int:
    """Evaluate all classes in labels or results, and print a table."""
    judge = _nuscenes if options.tracking.suffix == ".json" else _kitti
    record, table = judge(options)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_file(options.out / "metrics.json", json.dumps(record, indent=1) + "\n")
    if options.json:
        print(json.dumps(record))
    else:
        OUTPUT.print(table)
    return 0


def _kitti(options: argparse.Namespace) -> tuple[dict[str, Any], Table]:
    from perception.track.evaluation import clear_measures, hota_measures, load_sequences

    pairs = load_sequences(options.data, options.tracking)
    there = {
        name.lower()
        for pair in pairs
        for rows in (pair.labels, pair.results)
        for name in set(rows.type.tolist())
    }
    record: dict[str, Any] = {
        label: clear_measures(pairs, label).to_dict() | hota_measures(pairs, label).to_dict()
        for label in CLASSES
        if label.lower() in there
    }
    heads = (
        "class",
        "sAMOTA",
        "AMOTA",
        "AMOTP",
        "MOTA",
        "MOTP",
        "switches",
        "fragments",
        "HOTA",
        "DetA",
        "AssA",
    )
    rows = [
        (
            label,
            *(cell(100 * found[name], ".2f") for name in ("samota", "amota", "amotp", "mota", "motp")),
            str(found["id_switches"]),
            str(found["fragments"]),
            *(cell(100 * found[name], ".2f") for name in ("hota", "deta", "assa")),
        )
        for label, found in record.items()
    ]
    return record, Table(heads, rows, title=f"{len(pairs)} sequences, percent")


def _nuscenes(options: argparse.Namespace) -> tuple[dict[str, Any], Table]:
    from perception.data import open_data_set
    from perception.track.nuscenes import judge_results

    split = None if options.split == "all" else options.split
    data_set = open_data_set(options.data, split, having="labels")
    found = judge_results(data_set, options.tracking, missing_results=options.missing)
    # The benchmark's overall figure is the mean over classes.
    labels = sum(figures["labels"] for figures in found.classes.values() if figures["labels"] > 0)
    heads = ("class", "AMOTA", "AMOTP m", "MOTA", "MOTP m", "recall", "switches", "fragments", "labels")
    rows = [
        (
            label,
            *(
                cell(scale * figures[name], ".2f")
                for name, scale in (
                    ("amota", 100),
                    ("amotp", 1),
                    ("mota", 100),
                    ("motp", 1),
                    ("recall", 100),
                )
            ),
            *(cell(figures[name], ".0f") for name in ("id_switches", "fragments", "labels")),
        )
        for label, figures in (*found.classes.items(), ("all", found.figures | {"labels": labels}))
    ]
    title = f"{found.scenes} scenes, {found.frames} frames; shares in percent"
    return found.to_dict(), Table(heads, rows, title=title, ends=[len(rows) - 2])
