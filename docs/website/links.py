"""Whether all that pages refer to is there, and nothing of it is fetched from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser fetches by itself when a page is opened.
_FETCHED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}
_FETCHED_LINKS = {"stylesheet", "preload", "preconnect", "icon", "modulepreload"}


class _Page(HTMLParser):
    """Names of places in a page, what it leads to, and what it fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag in."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            self.targets.append(values["href"])
        self.fetched += [values[name] for kind, name in _FETCHED if tag == kind and values.get(name)]
        if tag == "link" and _FETCHED_LINKS & set(values.get("rel", "").split()):
            self.fetched.append(values.get("href", ""))


def faults(site: Path) -> list[str]:
    """What is wrong with a built site, a line each: dead links, missing anchors, files from elsewhere.

    Args:
        site: folder with pages.
    """
    pages: dict[Path, _Page] = {}
    for file in sorted(site.rglob("*.html")):
        page = _Page()
        page.feed(file.read_text(encoding="utf-8"))
        pages[file.resolve()] = page
    found = []
    for file, page in pages.items():
        if file.name == "404.html":  # Its links are those of a server's root.
            continue
        name = file.relative_to(site.resolve()).as_posix()
        found += [f"{name}: fetches {url}" for url in page.fetched if urlsplit(url).netloc]
        for url in dict.fromkeys([*page.targets, *page.fetched]):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.exists():
                found.append(f"{name}: no {url}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name}: no place {url}")
    return found
