"""Build the documentation as a site that works offline: `make docs`, or

    python docs/website/build.py                # into build/site/VERSION; open build/site/index.html
    python docs/website/build.py --out FOLDER   # keeps the sites of other versions in it

Pages come from the Markdown files in the order of docs/README.md, the reference from docstrings.
The exit status is 1 if a link is dead or a page loads something from another host.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sparse_core import __version__
from website.links import faults
from website.navigation import as_toml, navigation
from website.pages import write_pages
from website.places import BUILD, ROOT, SITE
from website.reference import write_reference
from website.versions import list_versions

#: References in docstrings, as rendered pages show them.
_ROLE = re.compile(r":(?:class|meth|func|mod|attr|data|exc|obj):<code>~?([^<]+)</code>")
_HERE = Path(__file__).resolve().parent
_CONFIG = """
[project]
site_name = "Sparsight"
copyright = "Sparsight {version}"
site_description = "Sparse 3D perception and long-term memory for robots"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
nav = {nav}
extra_css = ["assets/site.css"]
extra_javascript = [{{path = "assets/iframe-worker.js"}}, {{path = "assets/version-switch.js", defer = true}}]

[project.theme]
font = false
language = "en"
features = [
  "navigation.tabs", "navigation.top", "navigation.footer",
  "search.highlight", "content.code.copy", "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Switch to dark mode"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Switch to light mode"

[project.extra]
generator = false
polyfills = ["assets/iframe-worker.js"]

[project.plugins.offline]
[project.plugins.search]

[project.plugins.mkdocstrings.handlers.python]
paths = ["{root}"]

[project.plugins.mkdocstrings.handlers.python.options]
docstring_style = "google"
show_source = false
show_root_full_path = false
show_labels = false
show_if_no_docstring = false
show_signature_annotations = true
separate_signature = true
members_order = "source"
merge_init_into_class = true
heading_level = 2
filters = ["!^_"]
"""


def build(target: Path) -> list[str]:
    """Build the site of this version.

    Args:
        target: folder to replace.

    Returns:
        One line per fault.

    Raises:
        RuntimeError: the generator is not installed or failed; has its output.
        FileNotFoundError: a page links to a missing file.
    """
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = BUILD / "pages"
    write_pages(pages)
    sections = navigation(write_reference(pages / "reference"))
    for name in ("site.css", "iframe-worker.js", "version-switch.js"):
        (pages / "assets").mkdir(exist_ok=True)
        shutil.copyfile(_HERE / name, pages / "assets" / name)
    config = BUILD / "zensical.toml"
    settings = _CONFIG.format(nav=as_toml(sections), root=ROOT.as_posix(), version=__version__)
    config.write_text(settings, encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--clean", "--config-file", str(config)],
            cwd=BUILD, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError as error:
        raise RuntimeError(f"could not start zensical: {error}. Install it: pip install '.[docs]'") from error
    if done.returncode or not (BUILD / "site" / "index.html").is_file():
        raise RuntimeError(
            f"zensical failed. If it is missing: pip install '.[docs]'\n{done.stdout}\n{done.stderr}"
        )
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(BUILD / "site", target)
    for page in (target / "reference").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(_ROLE.sub(r"<code>\1</code>", text), encoding="utf-8")
    return faults(target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=SITE, help="parent folder of the versions (default: build/site)"
    )
    options = parser.parse_args(arguments)
    try:
        wrong = build(options.out / __version__)
    except (RuntimeError, FileNotFoundError) as error:
        print(f"docs: {error}", file=sys.stderr)
        return 2
    for line in wrong:
        print(line, file=sys.stderr)
    versions = list_versions(options.out)
    count = len(list((options.out / __version__).rglob("*.html")))
    print(f"{count} pages of {__version__}, {len(wrong)} faults; versions: {', '.join(versions)}")
    print(f"open {options.out / 'index.html'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
