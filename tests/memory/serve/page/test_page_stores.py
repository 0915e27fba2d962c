"""The page over other stores: merged objects, unknown places, no memories, many, a token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_steps import GUARD_MS, START, ask, count_of, expect, scene

from memory.store import MemoryStore
from memory.types import Memory


def street(folder: Path) -> None:
    """Merged cars, a cyclist and the places that the robot was at."""
    drive = [
        Memory(
            time_ns=START + row * 10**9, position=(-20.0 + 2.0 * row, 0.0, 0.0), kind="place", label="stop"
        )
        for row in range(20)
    ]
    car = [
        Memory(
            time_ns=START + row * 10**9, position=(0.1 * row, 8.0, 0.0), yaw=0.5, label="Car",
            payload={"size_m": [4.2, 1.8, 1.5]}, embedding=[1.0, 0.0, 0.0],  # type: ignore[arg-type]
        )
        for row in range(3)
    ]  # fmt: skip
    cyclist = Memory(time_ns=START, position=(-10.0, 15.0, 0.0), label="Cyclist")
    with MemoryStore.open(folder, dim=3) as store:
        store.add([*drive, *car, cyclist])
        store.consolidate(now_ns=START + 3600 * 10**9)


#: How many pixels of the marks are others than when this was called last.
CHANGED = """() => {
  const canvas = document.querySelector(".leaflet-overlay-pane canvas");
  const whole = new OffscreenCanvas(canvas.width, canvas.height);
  const copy = whole.getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  const before = window.marksBefore ?? data;
  window.marksBefore = data;
  return data.filter((value, at) => Math.abs(value - before[at]) > 64).length;
}"""


@pytest.mark.slow
def test_classes_boxes_the_path_and_labels_that_go_away(
    visit: Any, shoot: Any, tmp_path: Path, served: Any
) -> None:
    street(tmp_path / "street")
    address = served(tmp_path / "street").address.rstrip("/")
    page = visit(address)
    expect(page.locator("#classes")).to_contain_text("Cyclist")
    glyphs = page.locator("#classes svg > *")
    looks = glyphs.evaluate_all("all => all.map((mark) => [mark.tagName, getComputedStyle(mark).fill])")
    assert len({tag for tag, _ in looks}) > 1
    assert len({fill for _, fill in looks}) == 3
    page.wait_for_timeout(600)
    assert page.evaluate(CHANGED) == 0
    shoot(page, "street")
    # A filter leaves few marks, which have their labels beside them; then these have to be gone again.
    page.evaluate("document.getElementById('filters').open = true")
    page.click("#filter-labels >> text=Cyclist")
    count_of(page, "1 memory")
    page.wait_for_timeout(300)
    page.evaluate("() => { window.marksFirst = window.marksBefore; }")
    assert page.evaluate(CHANGED) > 500
    page.click("#filters-clear")
    page.wait_for_timeout(600)
    page.evaluate("() => { window.marksBefore = window.marksFirst; }")
    assert page.evaluate(CHANGED) < 20
    # What was merged is told by buttons.
    page.evaluate("document.getElementById('filters').open = false")
    page.evaluate("location.hash = 'memory=25'")
    page.locator("#card .facts").wait_for()
    assert "[object" not in page.inner_text("#card")
    page.click("#card >> text=#21")
    expect(page.locator("#card")).to_contain_text("merged into another")
    # On a phone what a mark says lies over legend and buttons, within the map.
    phone = visit(address, viewport={"width": 390, "height": 844}, has_touch=True)
    phone.evaluate("document.querySelector('.tip').hidden = false")
    levels = [
        int(phone.evaluate(f"getComputedStyle(document.querySelector('{one}')).zIndex"))
        for one in (".tip", ".legends", ".map-tools")
    ]
    assert levels[0] > max(levels[1:])
    assert phone.evaluate("getComputedStyle(document.querySelector('.map')).zIndex") == "0"
    parts = httpx.get(f"{address}/api/path").json()["parts"]
    assert [len(part) for part in parts] == [20]
    assert parts[0][0][1:] == [-20.0, 0.0]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_memory_at_no_known_place_is_listed_and_not_drawn(
    visit: Any, shoot: Any, tmp_path: Path, width: int, served: Any
) -> None:
    given = [
        Memory(time_ns=START, label="Letter", embedding=[1.0, 0.0, 0.0]),  # type: ignore[arg-type]
        Memory(time_ns=START, label="Car", position=(4.0, 3.0, 0.0), embedding=[1.0, 0.1, 0.0]),  # type: ignore[arg-type]
        Memory(time_ns=START, label="Bike", position=(-9.0, 8.0, 0.0)),
    ]
    with MemoryStore.open(tmp_path / "store", dim=3) as store:
        store.add(given)
        moved = store.repose([1], [(2.0, 1.0, 0.0)], [0.0])
    address = served(tmp_path / "store").address.rstrip("/")
    page = visit(address, viewport={"width": width, "height": 800})
    count_of(page, "3 memories")
    letter = page.locator('#list [data-id="1"]')
    expect(letter.locator(".row-more")).to_have_text("2.0, 1.0 m · seen once")
    # It loses the place while the page looks.
    httpx.post(f"{address}/api/undo", json={"generation": moved}).raise_for_status()
    expect(letter.locator(".row-more")).to_have_text("place unknown · seen once")
    page.select_option("#order", "closest")
    assert page.locator("#list .row-name").all_inner_texts()[2] == "Letter"
    shoot(page, f"unplaced-list-{width}")
    # A part of the map where nothing is: the list still has what no part shows.
    page.locator("#map").focus()
    for _ in range(4):
        page.keyboard.press("+")
        page.wait_for_timeout(350)
    count_of(page, "0 of 3 memories in view, 1 with no known place")
    assert page.locator("#list .row-name").all_inner_texts() == ["Letter"]
    before = page.evaluate(CHANGED)
    letter.click()
    facts = page.locator("#card .facts").first
    facts.wait_for()
    assert facts.locator("dd").all_inner_texts()[2] == "unknown"
    assert page.locator("#card >> text=Show on the map").count() == 0
    assert (before, page.evaluate(CHANGED)) == (0, 0), "the map neither moves nor draws it"
    shoot(page, f"unplaced-card-{width}")
    page.click("#card >> text=Forget …")
    assert page.inner_text("#forget-what") == "Letter, memory #1, place unknown"
    page.keyboard.press("Escape")
    page.click("#card >> text=Similar memories")
    expect(page.locator("#list .row-name").first).to_have_text("Letter")
    assert "an unknown place" in ask(page, "where is the letter?")
    expect(page.locator("#list .row-more")).to_have_text("place unknown · seen once")
    shoot(page, f"unplaced-answer-{width}")
    page.click("#answer-clear")
    httpx.post(f"{address}/api/forget", json={"ids": [2, 3]}).raise_for_status()
    count_of(page, "1 memory")
    expect(page.locator("#map-state")).to_contain_text("these memories are unknown")
    page.click("#fit")
    page.reload()
    page.locator("#list .row").first.wait_for()
    shoot(page, f"unplaced-only-{width}")


@pytest.mark.slow
def test_a_token_is_asked_for(visit: Any, tmp_path: Path, shoot: Any, served: Any) -> None:
    folder = tmp_path / "guarded"
    with MemoryStore.open(folder, dim=3) as store:
        store.add(scene()[:3])
    address = served(folder, "--token", "open sesame", "--readonly").address.rstrip("/")
    page = visit(address, ready="#access")
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#access-problem")).to_contain_text("Wrong token")
    shoot(page, "token")
    page.fill("#token", "open sesame")
    page.keyboard.press("Enter")
    count_of(page, "3 memories")
    assert page.locator("#access").is_hidden()
    expect(page.locator("#live-text")).to_have_text("Live")
    page.reload()
    count_of(page, "3 memories")
    # Served for reading only: nothing that changes the store is offered.
    page.locator("#list .row").first.click()
    page.locator("#card .facts").wait_for()
    assert page.locator("#card >> text=Forget").count() == 0


@pytest.mark.slow
def test_an_empty_store_and_a_service_that_went_away(visit: Any, tmp_path: Path, served: Any) -> None:
    folder = tmp_path / "empty"
    MemoryStore.open(folder, dim=3).close()
    process = served(folder)
    address = process.address.rstrip("/")
    page = visit(address, ready="#list .empty")
    expect(page.locator("#list")).to_contain_text("No memories yet")
    assert page.is_disabled("#time-from")
    process.end()
    expect(page.locator("#live-text")).to_have_text("Not connected", timeout=GUARD_MS)
    page.fill("#question", "where is the mug")
    page.keyboard.press("Enter")
    expect(page.locator("#answer-text")).to_have_text("The service does not answer.")


COUNTING = """
() => {
  const seen = (window.seen = { long: [], arcs: [], frames: [] });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) seen.long.push(entry.duration);
  }).observe({ type: "longtask", buffered: false });
  let arcs = 0;
  const arc = CanvasRenderingContext2D.prototype.arc;
  CanvasRenderingContext2D.prototype.arc = function (...given) { arcs += 1; return arc.apply(this, given); };
  let before = performance.now();
  const frame = (now) => {
    seen.frames.push(now - before);
    seen.arcs.push(arcs);
    arcs = 0;
    before = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
"""
#: Milliseconds that this machine takes now for what a browser cannot do without: to order as many numbers.
SORTING = """
() => {
  const times = [];
  for (let run = 0; run < 5; run += 1) {
    const numbers = Array.from({ length: 100000 }, (_, at) => (at * 7919) % 100003);
    const start = performance.now();
    numbers.sort((a, b) => a - b);
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b)[2];
}
"""


def handle(page: Any) -> None:
    """What people do for a while: move the map, go closer, drag the time, type."""
    box = page.locator("#map").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for _ in range(3):
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x - 150, y + 90, steps=15)
        page.mouse.up()
        page.mouse.wheel(0, -240)
        page.wait_for_timeout(300)
    page.click("#fit")
    for name, key in (("time-from", "ArrowRight"), ("time-to", "ArrowLeft")):
        page.locator(f"#{name}").focus()
        for _ in range(40):
            page.keyboard.press(key)
    page.wait_for_timeout(300)


@pytest.mark.slow
def test_a_hundred_thousand_memories_do_not_make_it_stutter(
    visit: Any, tmp_path: Path, shoot: Any, served: Any
) -> None:
    folder, rows = tmp_path / "large", 100_000
    with MemoryStore.open(folder, dim=3) as store:
        for start in range(0, rows, 10_000):
            store.add([
                Memory(
                    time_ns=START + row * 10**9, label=f"thing {row % 12}", importance=row % 97 / 97,
                    position=((row * 7919) % 100_003 / 200.0, (row * 104_729) % 100_019 / 250.0, 0.0),
                )
                for row in range(start, start + 10_000)
            ])  # fmt: skip
    address = served(folder).address.rstrip("/")
    page = visit(address)
    count_of(page, "100,000 memories")
    page.evaluate(COUNTING)
    handle(page)
    seen = page.evaluate("window.seen")
    sorting = page.evaluate(SORTING)
    frames = sorted(seen["frames"])
    figures = {
        "frames": len(frames),
        "frame_ms_median": round(frames[len(frames) // 2], 1),
        "frame_ms_p95": round(frames[int(len(frames) * 0.95)], 1),
        "long_tasks": len(seen["long"]),
        "longest_task_ms": max(seen["long"], default=0),
        "sorting_ms": round(sorting, 1),
        "most_marks": max(seen["arcs"]),
        "rows_in_list": page.locator("#list .row").count(),
    }
    shoot(page, "large")
    print(json.dumps(figures))
    # However many memories there are, what is drawn and listed is bounded.
    assert 0 < figures["most_marks"] <= 2_000
    assert figures["rows_in_list"] <= 40
    # Nothing holds the page for longer than a few times what it takes to order the memories once.
    assert figures["longest_task_ms"] < 100.0 + 6.0 * sorting, figures
    page.click("#list .row")
    page.locator("#card .facts").wait_for()


def test_the_activity_names_areas_trust_and_merges(visit: Any, tmp_path: Path, served: Any) -> None:
    same = {"label": "Car", "position": (4.0, 3.0, 0.0), "embedding": [1.0, 0.0, 0.0]}
    with MemoryStore.open(tmp_path / "store", dim=3) as store:
        store.add([Memory(time_ns=START, **same), Memory(time_ns=START + 10**12, **same)])  # type: ignore[arg-type]
        store.add([Memory(time_ns=START, caption="no class", position=(0.0, 0.0, 0.0))])
        store.consolidate()
        store.set_area("yard", box=(0.0, 0.0, 5.0, 5.0))
        store.trust("one", 0.5)
    page = visit(served(tmp_path / "store").address.rstrip("/"))
    expect(page.locator("#classes")).to_contain_text("no label")
    page.click("#tab-activity")
    for words in ("Set area yard", "Set the trust of one to 0.5", "Merged 2 memories"):
        expect(page.locator("#log")).to_contain_text(words)
