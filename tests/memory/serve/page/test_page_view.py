"""What the page shows: memories, answers, cards, filters, the map and the store."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from page_steps import HOSTILE, ask, breaches, count_of, expect


def test_the_requests_are_described_offline(
    visit: Callable[..., Any], service: str, shoot: Callable[[Any, str], None]
) -> None:
    page = visit(path="/docs", ready="#requests details")
    schema = httpx.get(service + "/openapi.json").json()
    count = sum(len(methods) for methods in schema["paths"].values())
    assert page.locator("#requests details").count() == count
    assert page.inner_text("#said") == f"{count} requests"
    page.fill("#find", "radius_m")
    shown = page.locator("#requests details:visible summary code").all_inner_texts()
    assert shown == ["/api/query", "/api/ask", "/api/areas", "/api/areas"]
    page.locator("summary", has_text="/api/query").click()
    row = page.locator("#post-api-query tr", has=page.get_by_text("k", exact=True)).first
    assert row.locator("td").all_inner_texts() == ["k", "integer (1 to 1000)", "default 10"]
    assert "429" in page.inner_text("#post-api-query")
    assert not breaches(page)
    shoot(page, "requests")


def test_it_shows_the_store_and_answers(visit: Any, shoot: Any) -> None:
    page = visit()
    count_of(page, "43 memories")
    assert page.locator("#list .row").count() == 40
    page.click("#more")
    assert page.locator("#list .row").count() == 43
    assert page.inner_text("#live-text") == "Live"
    assert ask(page, "where is the red mug?").startswith("red mug was last seen on 2026-01-08")
    assert page.inner_text("#list .row-name") == "Mug"
    assert page.inner_text("#answer-understood").startswith("Understood as where something was last seen")
    shoot(page, "answer")
    assert "called 'unicorn'" in ask(page, "where is the unicorn")
    assert "question is empty" in ask(page, "???")
    page.click("#answer-clear")
    assert page.locator("#answer").is_hidden()
    count_of(page, "43 memories")


def test_an_answer_cleared_while_the_map_still_moves_to_it(visit: Any) -> None:
    page = visit()
    count_of(page, "43 memories")
    page.evaluate("""() => {
        const answer = document.getElementById("answer");
        new MutationObserver(() => {
            if (answer.hidden || answer.hasAttribute("aria-busy")) return;
            setTimeout(() => {
                document.getElementById("answer-clear").click();
                document.body.dataset.cleared = "once";
            }, 50);
        }).observe(answer, { attributes: true });
    }""")
    page.fill("#question", "where is the red mug?")
    page.keyboard.press("Enter")
    page.locator("body[data-cleared]").wait_for()
    assert page.locator("#answer").is_hidden()
    page.wait_for_timeout(1000)
    count_of(page, "43 memories")


def test_a_card_with_evidence_why_and_history(visit: Any, shoot: Any) -> None:
    page = visit()
    ask(page, "where is the mug")
    page.click("#list .row")
    card = page.locator("#card[aria-labelledby=card-title]:not([aria-busy])")
    expect(card).to_contain_text("Why it was kept")
    for text in (
        "red mug",
        "1.00, 22.00, 0.90 m",
        "2026-01-08",
        "detector/test",
        '"size_m"',
        "scans/0001.bin",
    ):
        expect(card).to_contain_text(text)
    # An address of the web can be followed, and tells the other side nothing; a path can be copied.
    assert card.locator("img, iframe").count() == 0
    link = card.locator("a")
    assert (link.count(), link.get_attribute("href")) == (1, "https://example.org/x.png")
    assert link.get_attribute("rel") == "noopener noreferrer nofollow"
    expect(card.locator("text=Copy")).to_have_attribute("aria-label", "Copy scans/0001.bin")
    # It has no vector that could be compared.
    assert card.locator("text=Similar memories").count() == 0
    assert page.url.endswith("#memory=41")
    shoot(page, "card")
    page.keyboard.press("Escape")
    assert card.is_hidden()
    assert page.evaluate("document.activeElement.dataset.id") == "41"
    other = visit(path="/#memory=41", ready="#card .facts")
    assert other.inner_text("#card-title") == "Mug"
    other.evaluate("location.hash = 'memory=2'")
    expect(other.locator("#card-title")).to_have_text("Car")
    expect(other.locator("#card >> text=Similar memories")).to_be_visible()
    other.evaluate("location.hash = ''")
    expect(other.locator("#card")).to_be_hidden()


def test_filters_and_the_time_slider_change_what_is_shown(visit: Any) -> None:
    page = visit()
    page.evaluate("document.getElementById('filters').open = true")
    page.click("#filter-labels >> text=Car")
    count_of(page, "40 memories")
    page.click("#filter-states >> text=gone")
    count_of(page, "8 memories")
    page.click("#filters-clear")
    count_of(page, "43 memories")
    page.locator("#time-from").focus()
    page.keyboard.press("End")
    # Seen at the last moment: the mug alone, whose stretch reaches it.
    count_of(page, "1 of 43 memories in view")
    assert "2026-01-08" in page.get_attribute("#time-from", "aria-valuetext")
    page.keyboard.press("Home")
    count_of(page, "43 memories")
    page.click("[data-back='86400']")
    assert page.inner_text("#time-range").startswith("2026-01-07")
    page.click("[data-back='']")
    assert page.inner_text("#time-range") == "at any time"


@pytest.mark.slow
def test_the_map_moves_and_opens_a_memory(visit: Any) -> None:
    page = visit()
    page.locator("#map").focus()
    for _ in range(4):
        page.keyboard.press("+")
        page.wait_for_timeout(350)
    expect(page.locator("#count")).to_contain_text("of 43 memories in view")
    page.click("#fit")
    count_of(page, "43 memories")
    ask(page, "where is the mug")
    page.wait_for_timeout(500)
    box = page.locator("#map").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#card")).to_contain_text("Mug")


def test_no_number_of_the_grid_lies_on_the_scale_bar(visit: Any) -> None:
    page = visit()
    page.evaluate("""() => {
        window.rows = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
            const number = this.canvas.matches(".grid") && x === 4;
            if (number && this.textBaseline === "bottom") window.rows.push(y);
            return write.call(this, text, x, y);
        };
    }""")
    box, bar = (page.locator(name).bounding_box() for name in ("#map", ".leaflet-control-scale"))
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 240, steps=120)
    page.mouse.up()
    rows = page.evaluate("window.rows")
    assert len(rows) > 100
    assert max(rows) <= bar["y"] - box["y"]


def test_tiers_and_health(visit: Any, shoot: Any) -> None:
    page = visit()
    page.click("#tab-store")
    expect(page.locator("#health")).to_contain_text("reading and writing")
    expect(page.locator("#health")).to_contain_text("40 vectors")
    page.click("text=Check the files")
    expect(page.locator("#health")).to_contain_text("No damage in 43 memories")
    shoot(page, "store")


def test_what_a_store_holds_is_only_text(visit: Any) -> None:
    page = visit(path="/#memory=43", ready="#card .facts")
    assert page.inner_text("#card-title") == HOSTILE
    assert page.locator("#card img, #card script").count() == 0
    ask(page, "memory 43")
    page.click("#answer-clear")
    page.evaluate("document.getElementById('filters').open = true")
    page.keyboard.press("Escape")
    page.click("#filter-labels >> text=onerror")
    count_of(page, "1 memory")
    box = page.locator("#map").bounding_box()
    page.click("#fit")
    # Until the map has come to rest, the mark is elsewhere.
    for step in itertools.count():
        page.mouse.move(box["x"] + box["width"] / 2 + step % 2, box["y"] + box["height"] / 2)
        page.wait_for_timeout(100)
        if page.locator(".tip").is_visible() and "<img src=x" in page.inner_text(".tip"):
            break
    assert page.locator(".tip img, main script, #list img, #classes img").count() == 0
    page.goto(page.url.split("#")[0] + "#memory=43")
    page.locator("#card .facts").wait_for()
    assert page.locator("#card a").count() == 0
    assert page.title() == "recall: a robot's memory"
