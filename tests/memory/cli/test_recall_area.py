"""``recall area`` and ``--area``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.memory.cli.conftest import Outcome


def test_an_area_is_set_listed_asked_for_and_removed(recall: Callable[..., Outcome], store: Path) -> None:
    assert recall("area", store, "desk", "--box", 0, 1, 3, 3, "--map", "default").status == 0
    assert recall("area", store, "bay 3", "--places", 1, "--radius", 1).status == 0
    listed = recall("area", store, "--json").json["areas"]
    assert [(area["name"], area["memories"]) for area in listed] == [("bay 3", 1), ("desk", 1)]
    assert "desk in map default: 4 corners, 1 memory" in recall("area", store).output
    hits = recall("query", store, "--area", "Desk", "--json").json["hits"]
    assert [hit["memory"]["id"] for hit in hits] == [2]
    assert recall("area", store, "desk", "--remove").status == 0
    refused = recall("query", store, "--area", "desk")
    assert refused.status == 2
    assert "no area is called 'desk'. Areas: bay 3" in refused.remarks


def test_missing_parts_are_refused(recall: Callable[..., Outcome], store: Path) -> None:
    for arguments, message in (
        (("--box", 0, 0, 1, 1), "give the name of the area"),
        (("desk",), "give one of --polygon, --box and --places, or --remove"),
        (("desk", "--box", 0, 0, 1, 1, "--remove"), "or --remove"),
        (("desk", "--box", 0, 0, 1, 1, "--radius", 1), "--radius needs --places"),
        (("desk", "--box", 0, 0, 1, 1), "give --map MAP; the maps are default, yard"),
    ):
        refused = recall("area", store, *arguments)
        assert (refused.status, message in refused.remarks) == (2, True), refused
