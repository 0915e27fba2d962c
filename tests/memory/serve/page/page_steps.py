"""What people do with the page, and the store that it shows in these tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory.types import Memory

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
expect = playwright.expect
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
AXE = Path(__file__).parents[1] / "axe" / "axe.min.js"
#: Milliseconds after which a test that hangs ends.
GUARD_MS = 300_000
DAY = 86_400 * 10**9
START = 1_767_600_000 * 10**9
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def scene() -> list[Memory]:
    """A yard: forty cars on four days, a mug, a charger, and a label that wants to be markup."""
    cars = [
        Memory(
            time_ns=START + row % 4 * DAY,
            position=(5.0 * (row % 8) - 20.0, 5.0 * (row // 8) - 10.0, 0.0),
            label="Car",
            caption=f"car number {row}",
            state="gone" if row % 5 == 0 else "present",
            importance=row / 40,
            embedding=[1.0, row / 40, 0.0],  # type: ignore[arg-type]
        )
        for row in range(40)
    ]
    mug = Memory(
        time_ns=START + 3 * DAY + 10**9, position=(1.0, 22.0, 0.9), label="Mug", caption="red mug",
        payload={"size_m": [0.1, 0.1, 0.1]}, evidence="scans/0001.bin\nhttps://example.org/x.png",
        provenance="detector/test", count=3, first_seen_ns=START, last_seen_ns=START + 3 * DAY + 10**9,
    )  # fmt: skip
    charger = Memory(time_ns=START, position=(-22.0, 20.0, 0.0), label="Charger", kind="place", marked=True)
    hostile = Memory(
        time_ns=START + DAY, position=(24.0, -16.0, 0.0), label=HOSTILE, caption=HOSTILE, evidence=HOSTILE,
        provenance=HOSTILE, payload={HOSTILE: HOSTILE},
    )  # fmt: skip
    return [*cars, mug, charger, hostile]


def ask(page: Any, text: str) -> str:
    page.fill("#question", text)
    page.keyboard.press("Enter")
    page.locator("#answer:not([aria-busy])").wait_for()
    return page.inner_text("#answer-text")


def count_of(page: Any, text: str) -> None:
    expect(page.locator("#count")).to_have_text(text)


def breaches(page: Any) -> list[str]:
    """What axe finds against WCAG 2.2 AA."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("(rules) => axe.run(document, {runOnly: rules})", RULES)
    return [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
