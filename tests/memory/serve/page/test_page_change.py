"""What changes while the page looks: memories that are forgotten, marked, added and moved."""

from __future__ import annotations

from typing import Any

import httpx
from page_steps import DAY, START, ask, count_of, expect


def test_forgetting_asks_and_is_undone(visit: Any, shoot: Any, service: str) -> None:
    page = visit()
    ask(page, "where is the charger")
    expect(page.locator("#list .row").first).to_contain_text("Charger")
    page.click("#list .row")
    page.click("#card >> text=Forget …")
    assert "Charger, memory #42, at (-22.0, 20.0) m" in page.inner_text("#forget-what")
    shoot(page, "forget")
    page.keyboard.press("Escape")
    expect(page.locator("#forget")).to_be_hidden()
    assert page.locator("#card").is_visible()
    assert httpx.get(f"{service}/api/memories/42").status_code == 200
    page.click("#card >> text=Forget …")
    page.fill("#forget-reason", "moved to the hall")
    page.click("#forget-do")
    page.click("#answer-clear")
    count_of(page, "42 memories")
    assert httpx.get(f"{service}/api/memories/42").status_code == 404
    page.click("#tab-activity")
    expect(page.locator("#undo-last-what")).to_contain_text("moved to the hall")
    page.click("#undo-last")
    expect(page.locator("#undo-last-what")).to_contain_text("nothing to undo")
    page.click("#tab-memories")
    count_of(page, "43 memories")
    assert httpx.get(f"{service}/api/memories/42").status_code == 200
    expect(page.locator("#toast")).to_contain_text("was undone")


def test_marking_and_what_others_do_appear_at_once(visit: Any, service: str) -> None:
    page = visit()
    ask(page, "where is the mug")
    page.click("#list .row")
    page.select_option("#card select", "gone")
    expect(page.locator("#card .facts")).to_contain_text("gone")
    assert httpx.get(f"{service}/api/memories/41").json()["state"] == "gone"
    page.click("#toast >> text=Undo")
    expect(page.locator("#card .facts")).to_contain_text("there")
    page.keyboard.press("Escape")
    page.click("#answer-clear")
    record = {"time_ns": START + 4 * DAY, "label": "Ladder", "x": 3, "y": 3}
    ids = httpx.post(f"{service}/api/memories", json={"memories": [record]}).json()["ids"]
    expect(page.locator("#list")).to_contain_text("Ladder")
    httpx.post(f"{service}/api/forget", json={"ids": ids})
    count_of(page, "43 memories")


def test_what_is_pressed_stays_until_it_is_let_go(visit: Any, service: str) -> None:
    """A memory comes between press and release: the row is opened all the same, then the list is filled."""
    page = visit()
    row = page.locator('#list [data-id="8"]')
    row.scroll_into_view_if_needed()
    row.hover()
    page.mouse.down()
    record = {"time_ns": START + 5 * DAY, "label": "Ladder", "x": 3, "y": 3}
    ids = httpx.post(f"{service}/api/memories", json={"memories": [record]}).json()["ids"]
    count_of(page, "44 memories")
    page.mouse.up()
    page.locator("#card .facts").wait_for()
    assert page.url.endswith("#memory=8")
    expect(page.locator("#list")).to_contain_text("Ladder")
    httpx.post(f"{service}/api/forget", json={"ids": ids})
    expect(page.locator("#list")).not_to_contain_text("Ladder")
