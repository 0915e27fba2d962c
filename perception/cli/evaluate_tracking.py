"""``perceive eval --tracking``: KITTI's measures of tracks on result files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT
from sparse_core.table import Table, cell

CLASSES = ("Car", "Pedestrian", "Cyclist")


def add_tracking_option(parser: argparse.ArgumentParser) -> None:
    """``--tracking``."""
    parser.add_argument(
        "--tracking",
        type=Path,
        metavar="RESULTS",
        help="folder of KITTI tracking files, one a sequence, to judge by label_02/ and seqmap.txt of --data:"
        " sAMOTA, MOTA and what else AB3DMOT defines, and HOTA; takes --data, --out and --json",
    )


def run_tracking(options: argparse.Namespace) -> int:
    """Evaluate all classes that are labelled or found; print a table."""
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
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "metrics.json").write_text(json.dumps(record, indent=1) + "\n")
    if options.json:
        print(json.dumps(record))
        return 0
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
    OUTPUT.print(Table(heads, rows, title=f"{len(pairs)} sequences, percent"))
    return 0
