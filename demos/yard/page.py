"""The page: the shared memory lap by lap, by robot, and the answers."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory.exchange.times import format_time
from sparse_core.common.files import write_file
from yard.world import CUT, ROBOTS, ROUNDS, TROLLEY

_PAGE = Path(__file__).with_name("page.html")


def write_page(file: Path, done: dict[str, Any], figures: dict[str, Any], questions: Sequence[str]) -> None:
    """Write the page; it needs nothing from elsewhere."""
    data = {
        "robots": list(ROBOTS),
        "rounds": ROUNDS,
        "cut": [CUT.start, CUT.stop],
        "trolley": TROLLEY,
        "store": done["kind"],
        "figures": figures,
        "laps": [_lap(row) for row in done["laps"]],
    }
    rows = []
    for who, answers in (*done["own"].items(), ("all together", done["shared"])):
        cells = "".join(f"<td>{html.escape(answer)}</td>" for answer in answers)
        rows.append(f"<tr><th>{html.escape(who)}</th>{cells}</tr>")
    head = "".join(f"<th>{html.escape(question)}</th>" for question in questions)
    text = _PAGE.read_text(encoding="utf-8")
    text = text.replace("<!--answers-->", f"<tr><th></th>{head}</tr>{''.join(rows)}")
    # No end of a script within a script.
    text = text.replace("/*data*/null", json.dumps(data).replace("</", "<\\/"))
    write_file(file, text)


def _lap(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "lap": row["lap"],
        "merged": row["merged"],
        "robots": [
            {"own": told["own"], "sent": told.get("sent"), "seconds": told.get("sync_s")}
            for told in row["told"]
        ],
        "memories": [
            {
                "label": memory["label"],
                "x": round(memory["position"][0], 2),
                "y": round(memory["position"][1], 2),
                "by": {name: share[2] for name, share in memory["payload"]["seen_by"].items()},
                "state": memory.get("state", "present"),
                "last": format_time(memory.get("last_seen_ns") or memory["time_ns"]),
            }
            for memory in row["memories"]
        ],
    }
