"""Find dead links, and files that pages load from other hosts."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes that a browser loads when it opens a page.
_FETCHED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}
_FETCHED_LINKS = {"stylesheet", "preload", "preconnect", "icon", "modulepreload"}


class _Page(HTMLParser):
    """Anchors, links and loaded files of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect anchors and links of a tag."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            self.targets.append(values["href"])
        self.fetched += [values[name] for kind, name in _FETCHED if tag == kind and values.get(name)]
        if tag == "link" and _FETCHED_LINKS & set(values.get("rel", "").split()):
            self.fetched.append(values.get("href", ""))


def faults(site: Path) -> list[str]:
    """Return one line per dead link, missing anchor and file from another host.

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
        if file.name == "404.html":  # Its links are relative to the root of a server.
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
