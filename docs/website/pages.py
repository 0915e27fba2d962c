"""Copy the Markdown of the repository to the site and rewrite its links."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from website.places import ROOT

#: Pages with another name on the site.
_NAMES = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "docs/benchmarks/README.md": "benchmarks/index.md",
    "benchmarks/README.md": "benchmarks/method.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
_COPIED = {".png", ".webp", ".gif", ".svg", ".jpg", ".json", ".pdf"}
_LANGUAGES = {".py": "python", ".cpp": "cpp", ".cu": "cpp", ".yaml": "yaml", ".toml": "toml"}
_CODE = re.compile(r"^(`{3,}).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)
#: A list directly below a paragraph: GitHub renders a list, the generator needs a blank line.
_LIST = re.compile(r"^((?![ \t]|[-*] |\d+\. |#|\||>)[^\n]+\n)(?=[-*] )", re.MULTILINE)
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s]+)(\))")


def page_name(source: Path) -> Path:
    """Return the path of a file on the site, relative to the root of the site.

    Args:
        source: relative to the repository.
    """
    name = source.as_posix()
    if name in _NAMES:
        return Path(_NAMES[name])
    if source.suffix == ".md":
        return Path(name.removeprefix("docs/")) if name.startswith("docs/") else Path("more") / source.name
    if source.suffix in _COPIED:
        return Path(name.removeprefix("docs/")) if name.startswith("docs/") else Path("files") / source
    return Path("source") / f"{name}.md"


def write_pages(target: Path) -> set[Path]:
    """Write all pages and all files that they link to.

    Args:
        target: empty folder.

    Returns:
        Paths of the written files, relative to the repository.

    Raises:
        FileNotFoundError: a page links to a missing file; names both.
    """
    waiting = [Path(name) for name in _NAMES]
    waiting += sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md"))
    taken: set[Path] = set()
    while waiting:
        source = waiting.pop(0)
        if source in taken:
            continue
        taken.add(source)
        waiting += _write(source, target / page_name(source))
    return taken


def _write(source: Path, file: Path) -> list[Path]:
    """Write one file; return the paths that it links to."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in _COPIED:
        shutil.copyfile(ROOT / source, file)
        return []
    if source.suffix == ".md":
        found: list[Path] = []
        text = (ROOT / source).read_text(encoding="utf-8")
        file.write_text(_relinked(text, source, found), encoding="utf-8")
        return found
    file.write_text(_shown(source), encoding="utf-8")
    return []


def _shown(source: Path) -> str:
    """Return a page that shows a source file or lists a folder."""
    path = ROOT / source
    if path.is_dir():
        names = sorted(one.name + "/" * one.is_dir() for one in path.iterdir() if one.name[0] not in "_.")
        return f"# {source.as_posix()}/\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = path.read_text(encoding="utf-8")
    fence = "`" * max(3, 1 + max((len(found) for found in re.findall("`+", text)), default=0))
    return (
        f"# {source.as_posix()}\n\n{fence}{_LANGUAGES.get(source.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"
    )


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply a change to the parts of a Markdown text outside code."""
    parts, at = [], 0
    for code in _CODE.finditer(text):
        parts += [change(text[at : code.start()]), code.group()]
        at = code.end()
    return "".join([*parts, change(text[at:])])


def links(text: str) -> Iterator[str]:
    """Yield the link targets of a Markdown text."""
    found: list[str] = []
    outside_code(_plain(text), lambda part: found.extend(link[1] for link in _LINK.findall(part)) or part)
    yield from found


def _plain(text: str) -> str:
    """Hide code marks inside link texts, which would split the link."""
    return re.sub(r"\[`([^`\n\]]*)`\]\(", lambda found: f"[\0{found[1]}\0](", text)


def _relinked(text: str, source: Path, found: list[Path]) -> str:
    here = page_name(source).parent

    def changed(link: re.Match[str]) -> str:
        target, mark, anchor = link[2].partition("#")
        if not target or re.match(r"\w+:", target):
            return link[0]
        path = Path(os.path.normpath(source.parent / target))
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{source} links to {target}, which does not exist. Correct the link.")
        found.append(path)
        return link[1] + Path(os.path.relpath(page_name(path), here)).as_posix() + mark + anchor + link[3]

    text = outside_code(_plain(text), lambda part: _LINK.sub(changed, part)).replace("\0", "`")
    return outside_code(text, lambda part: _LIST.sub(r"\1\n", part))
