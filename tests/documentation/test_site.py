"""The site has all pages in order, every public name, and no dead links."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Website(NamedTuple):
    """Modules of docs/website."""

    build: ModuleType
    links: ModuleType
    navigation: ModuleType
    pages: ModuleType
    reference: ModuleType
    versions: ModuleType


@pytest.fixture(scope="module")
def website() -> Iterator[Website]:
    sys.path.insert(0, str(ROOT / "docs"))
    import website.build
    import website.links
    import website.navigation
    import website.pages
    import website.reference
    import website.versions

    yield Website(
        website.build,
        website.links,
        website.navigation,
        website.pages,
        website.reference,
        website.versions,
    )
    sys.path.remove(str(ROOT / "docs"))


def test_every_module_with_a_list_of_names_is_described(website: Website) -> None:
    described = [module.name for module in website.reference.modules()]
    assert len(described) == len(set(described))
    listing = set()
    for package in website.reference.PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if re.search(r"^__all__[^=]*=\s*\[\s*[^\]\s]", path.read_text(), flags=re.MULTILINE):
                parts = path.relative_to(ROOT).with_suffix("").parts
                listing.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    assert listing - set(described) == set(), "a row in docs/stability.md for each"
    assert [name for name in described if not website.reference.source_file(name).is_file()] == []


def test_what_pages_import_is_public(website: Website) -> None:
    """Except for docs/adding.md, which extends the project."""
    promised = {module.name for module in website.reference.modules() if module.promised}
    inner = {}
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
        found = set(
            re.findall(r"^\s*from ((?:sparse_core|perception|memory)[\w.]*) import", text, re.MULTILINE)
        )
        if found - promised and page.name != "adding.md":
            inner[page.name] = found - promised
    assert inner == {}


def test_pages_of_the_reference_ask_for_every_name(website: Website) -> None:
    module = website.reference.Module("sparse_core.linalg", "", True)
    text = website.reference._page(module)
    names = website.reference.public_names("sparse_core.linalg")
    assert {"cg", "AlgebraicMultigrid"} <= set(names)
    for name in names:
        # In the module's list, or separate if a submodule has the same name.
        assert f"        - {name}\n" in text or f'<a id="sparse_core.linalg.{name}"></a>' in text
    assert "::: sparse_core.linalg.krylov.cg.cg\n" in text
    values = website.reference._page(website.reference.Module("sparse_core.dynamic", "", False))
    assert "## JOULES" in values
    assert "May change in any version" in values


def test_pages_take_along_what_they_lead_to(website: Website, tmp_path: Path) -> None:
    taken = website.pages.write_pages(tmp_path)
    docs = {path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")}
    assert docs <= taken
    dead = []
    for page in tmp_path.rglob("*.md"):
        for link in website.pages.links(page.read_text(encoding="utf-8")):
            file = link.partition("#")[0]
            if file and not re.match(r"\w+:", file) and not (page.parent / file).exists():
                dead.append(f"{page.relative_to(tmp_path)}: {link}")
    assert dead == []
    shown = (tmp_path / "source/perception/registry.py.md").read_text()
    assert (ROOT / "perception/registry.py").read_text().rstrip() in shown
    # Pictures and code stay unchanged.
    assert "](images/kitti-validation.png)" in (tmp_path / "index.md").read_text()
    assert "[tutorial](tutorial.md)" in (tmp_path / "index.md").read_text()


def test_every_page_has_its_place(website: Website) -> None:
    def files(entries: object) -> Iterator[str]:
        for _, what in entries:  # type: ignore[attr-defined]
            yield from [what] if isinstance(what, str) else files(what)

    sections = website.navigation.navigation({"memory": [("memory", "reference/memory.md")]})
    found = list(files(sections))
    assert len(found) == len(set(found))
    pages = {path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")}
    assert {website.pages.page_name(page).as_posix() for page in pages} <= set(found)
    assert dict(sections)["Reference"][-1] == ("memory", [("memory", "reference/memory.md")])
    assert website.navigation.as_toml([("a", "b.md"), ("c", [('d"', "e.md")])]) == (
        '[{"a" = "b.md"}, {"c" = [{"d\\"" = "e.md"}]}]'
    )


def test_faults_are_found(website: Website, tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<h2 id="x">x</h2>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#x"></a><a href="b.html#y"></a><a href="c.html"></a><a href="#z"></a>'
        '<a href="https://example.org/fine"></a><img src="https://example.org/i.png">'
        '<script src="d.js"></script>'
        '<link rel="stylesheet" href="//example.org/s.css"><link rel="canonical" href="https://example.org/">'
    )
    assert website.links.faults(tmp_path) == [
        "a.html: fetches https://example.org/i.png",
        "a.html: fetches //example.org/s.css",
        "a.html: no place b.html#y",
        "a.html: no c.html",
        "a.html: no place #z",
        "a.html: no d.js",
    ]


def make_version(site: Path, version: str, *pages: str) -> None:
    for page in pages:
        path = site / version / page
        path.parent.mkdir(parents=True, exist_ok=True)
        base = "." if "/" not in page else ".."
        config = f'<script id="__config" type="application/json">{{"base": "{base}"}}</script>'
        script = f'<script src="{base}/version-switch.js" defer></script>'
        path.write_text(f"<h1>{version}</h1><div class=md-header__title></div>{config}{script}")
    (site / version / "version-switch.js").write_text((ROOT / "docs/website/version-switch.js").read_text())


def test_versions_are_listed_and_the_newest_is_first(website: Website, tmp_path: Path) -> None:
    for version in ("0.9.1", "0.10.0rc1", "0.10.0", "0.2.0"):
        make_version(tmp_path, version, "index.html")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/index.html").write_text("of an earlier layout")
    assert website.versions.list_versions(tmp_path) == ["0.10.0", "0.10.0rc1", "0.9.1", "0.2.0"]
    assert 'url=0.10.0/index.html"' in (tmp_path / "index.html").read_text()
    assert website.links.faults(tmp_path) == []


def test_the_switch_goes_to_the_same_page_from_a_disk(website: Website, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("needs Chromium on the PATH")
    make_version(tmp_path, "0.1.0", "index.html", "reference/memory.html")
    make_version(tmp_path, "0.2.0", "index.html", "reference/memory.html", "fleet.html")
    website.versions.list_versions(tmp_path)
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page()
        page.goto((tmp_path / "0.2.0/reference/memory.html").as_uri())
        switch = page.get_by_label("Version of these pages")
        assert switch.input_value() == "0.2.0"
        switch.select_option("0.1.0")
        page.wait_for_url("**/0.1.0/reference/memory.html")
        page.goto((tmp_path / "0.2.0/fleet.html").as_uri())
        switch.select_option("0.1.0")
        page.wait_for_url("**/0.1.0/index.html")
        assert page.inner_text("h1") == "0.1.0"
        browser.close()


@pytest.mark.slow
def test_the_site_is_built_whole(website: Website, tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    pytest.importorskip("mkdocstrings_handlers.python", reason="the extra docs is not installed")
    site = tmp_path / "site"
    assert website.build.build(site) == []
    missing = []
    for module in website.reference.modules():
        text = (site / "reference" / f"{module.name}.html").read_text(encoding="utf-8")
        places = set(re.findall(r'id="([^"]+)"', text))
        names = [f"{module.name}.{name}" for name in website.reference.public_names(module.name)]
        missing += [name for name in names if name not in places]
        assert not re.search(r":(?:class|meth|func):<code>", text), module.name
    assert missing == []
    assert "rotated_nms" in (site / "search.js").read_text(encoding="utf-8")
