"""The page in headless Chromium.

Screenshots go to the folder that ``RECALL_PAGE_SHOTS`` names, else to pytest's temporary folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_steps import GUARD_MS, expect, playwright, scene
from service_thread import serving

from memory.store import MemoryStore

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service of the scene."""
    with MemoryStore.open(tmp_path_factory.mktemp("page") / "store", dim=3) as store:
        store.add(scene())
        with serving(store) as address:
            yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium on the PATH")
    expect.set_options(timeout=GUARD_MS)
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any, service: str) -> Iterator[Callable[..., Any]]:
    """Open the page; nothing may go wrong in it, and nothing be asked of another host."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def complain(said: Any) -> None:
        # Chromium tells of every answer that is not 200; the page has to, too, which the tests look at.
        if said.type in ("error", "warning") and not said.text.startswith("Failed to load resource"):
            complaints.append(said.text)

    def go(address: str = service, *, path: str = "/", ready: str = "#list .row", **named: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | named))
        context.set_default_timeout(GUARD_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("console", lambda said: complain(said))
        page.on(
            "request", lambda asked: asked.url.startswith(address) or complaints.append(f"asked {asked.url}")
        )
        page.goto(address + path)
        page.locator(ready).first.wait_for()
        return page

    yield go
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture
def shoot(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[Any, str], None]:
    folder = Path(os.environ.get("RECALL_PAGE_SHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def take(page: Any, name: str) -> None:
        page.screenshot(path=folder / f"{name}.png")
        assert (folder / f"{name}.png").stat().st_size > 5_000

    return take
