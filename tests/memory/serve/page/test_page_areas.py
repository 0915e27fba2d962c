"""Areas on the page: outlines and names on the map, a button per area, and changes as they happen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_steps import HOSTILE, breaches, expect, scene
from service_thread import serving

from memory.store import MemoryStore


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[str]:
    """The address of a service of the scene with three areas, in two maps."""
    with MemoryStore.open(tmp_path / "store", dim=3) as store:
        store.add(scene())
        store.set_area("bay 3", box=(-21, -11, -4, -4))
        store.set_area(HOSTILE, box=(2, -11, 18, 4))
        store.set_area("charging", places=[42], radius_m=4.0)
        with serving(store) as address:
            yield address


def test_areas_are_drawn_named_and_listed(visit: Any, yard: str, shoot: Any) -> None:
    page = visit(yard)
    listed = page.locator("#areas button")
    expect(listed).to_have_text([HOSTILE, "bay 3", "charging"])
    # On the map too, as text and never as markup.
    expect(page.locator(".area-name")).to_have_text([HOSTILE, "bay 3", "charging"])
    assert page.title() != "owned"
    assert page.locator("#map img[src='x']").count() == 0
    shoot(page, "areas")
    assert not breaches(page)


def test_a_button_moves_the_map_to_its_area(visit: Any, yard: str) -> None:
    page = visit(yard)
    page.get_by_role("button", name="charging", exact=True).click()
    # Of the memories, the view then holds the charger alone.
    expect(page.locator("#list .row-name").first).to_have_text("Charger")
    expect(page.locator("#count")).to_contain_text("in view")


def test_an_area_set_elsewhere_appears_and_goes(visit: Any, yard: str) -> None:
    page = visit(yard)
    expect(page.locator("#areas button")).to_have_count(3)
    httpx.post(f"{yard}/api/areas", json={"name": "kitchen", "box": [20, 10, 30, 20]}).raise_for_status()
    expect(page.locator("#areas button")).to_have_text([HOSTILE, "bay 3", "charging", "kitchen"])
    httpx.post(f"{yard}/api/areas/remove", json={"name": "bay 3"}).raise_for_status()
    expect(page.locator("#areas button")).to_have_text([HOSTILE, "charging", "kitchen"])
