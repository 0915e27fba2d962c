"""The page for everybody: keyboard, phone, light and dark, screen readers, and the rules of axe."""

from __future__ import annotations

from typing import Any

import pytest
from page_steps import ask, breaches, expect


def test_with_the_keyboard_alone(visit: Any) -> None:
    page = visit()
    page.keyboard.press("/")
    page.keyboard.type("where is the mug")
    page.keyboard.press("Enter")
    page.locator("#answer:not([aria-busy])").wait_for()
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        if page.evaluate("document.activeElement.classList.contains('row')"):
            break
    # On the way: the map, the slider, the tabs; in the order in which they stand.
    order = [
        seen.index(name) for name in ("theme", "map", "time-from", "time-to", "tab-memories", "answer-clear")
    ]
    assert order == sorted(order)
    page.keyboard.press("Enter")
    expect(page.locator("#card")).to_contain_text("Why it was kept")
    assert page.evaluate("document.activeElement.id") == "card-title"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.id") == "41"
    page.locator("#tab-memories").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-activity", "aria-selected") == "true"
    assert page.locator("#activity").is_visible()
    page.keyboard.press("End")
    assert page.locator("#store").is_visible()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_on_a_phone_nothing_is_wider_than_the_screen(visit: Any, shoot: Any, scheme: str) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "color_scheme": scheme}
    page = visit(**phone)

    def fits() -> bool:
        return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))

    assert fits()
    shoot(page, f"phone-{scheme}")
    ask(page, "summarise")
    assert fits()
    page.locator("#list .row").first.click()
    page.locator("#card .facts").wait_for()
    assert fits()
    shoot(page, f"phone-card-{scheme}")
    page.click("#card .close")
    for tab in ("activity", "store"):
        page.click(f"#tab-{tab}")
        page.locator(f"#{tab}").wait_for()
        assert fits(), tab


def test_light_and_dark(visit: Any, shoot: Any) -> None:
    page = visit(color_scheme="dark")

    def ground() -> int:
        found = page.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
        )
        return sum(found)

    assert ground() < 120
    shoot(page, "dark")
    page.click("#theme")
    assert ground() > 600
    page.reload()
    page.locator("#list .row").first.wait_for()
    assert ground() > 600
    assert page.get_attribute("#theme", "aria-pressed") == "false"


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing(visit: Any, scheme: str) -> None:
    page = visit(color_scheme=scheme, reduced_motion="reduce")
    page.evaluate("document.getElementById('filters').open = true")
    ask(page, "what is near the mug")
    assert breaches(page) == []
    page.locator("#list .row").first.click()
    page.locator("#card .facts").wait_for()
    assert breaches(page) == []
    page.click("#card >> text=Forget …")
    assert breaches(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    for tab in ("activity", "store"):
        page.click(f"#tab-{tab}")
        page.wait_for_timeout(200)
        assert breaches(page) == []


def test_what_a_screen_reader_is_told(visit: Any) -> None:
    page = visit()
    tree = page.locator("body").aria_snapshot()
    for part in (
        "- banner:", "- search:", "- main:", 'application "Map of memories, in metres"',
        'tab "Memories" [selected]', 'slider "Seen from"', 'list "Memories that the map shows"',
        'searchbox "Ask a question"',
    ):  # fmt: skip
        assert part in tree, part
    assert page.get_attribute("#count", "role") == page.get_attribute("#answer-text", "role") == "status"
