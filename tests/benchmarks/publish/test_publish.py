"""Published tables hold what the result files say, and the check finds it when they do not."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest

from benchmarks.publish import __main__ as publish
from benchmarks.publish import pages

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    for file in pages.FILES:
        target = tmp_path / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, target)
    return tmp_path


def _change_a_digit(path: Path, block: str) -> None:
    """Another last digit in a block, or a digit in one that waits for its result."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(f"<!-- {block}:begin -->\n")
    inside, end, after = rest.partition(f"<!-- {block}:end -->")
    if inside:
        at = max(index for index, letter in enumerate(inside) if letter in "0123456789")
        inside = inside[:at] + str((int(inside[at]) + 1) % 10) + inside[at + 1 :]
    else:
        inside = "1\n"
    path.write_text(before + begin + inside + end + after, encoding="utf-8")


def test_tree_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert publish.main(["--check"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{file}: unchanged" for file in pages.FILES]


def test_changed_digit_is_found(
    copies: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    readme = copies / "README.md"
    _change_a_digit(readme, "summary-speed")
    wrong = readme.read_text(encoding="utf-8")
    monkeypatch.setattr(publish, "ROOT", copies)

    assert publish.main(["--check"]) == 1
    assert "README.md: changed" in capsys.readouterr().out.splitlines()
    assert readme.read_text(encoding="utf-8") == wrong
    assert pages.changed(copies) == {"README.md": (ROOT / "README.md").read_text(encoding="utf-8")}


def test_every_block_is_compared(copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The results do not change between the copies: each block is made once.
    made = {name: functools.cache(make) for name, make in pages.BLOCKS.items()}
    monkeypatch.setattr(pages, "BLOCKS", made)
    for file, blocks in pages.FILES.items():
        for block in blocks:
            shutil.copyfile(ROOT / file, copies / file)
            _change_a_digit(copies / file, block)
            assert list(pages.changed(copies)) == [file], block
        shutil.copyfile(ROOT / file, copies / file)


def test_empty_result_leaves_an_empty_block() -> None:
    text = "a\n<!-- x:begin -->\n1\n<!-- x:end -->\nb\n"
    assert pages.fill(text, {"x": lambda: ""}) == "a\n<!-- x:begin -->\n<!-- x:end -->\nb\n"
    assert pages.fill(text, {"x": lambda: r"\1"}) == "a\n<!-- x:begin -->\n\\1\n<!-- x:end -->\nb\n"


def test_missing_markers_are_an_error() -> None:
    with pytest.raises(ValueError, match="no markers for x"):
        pages.fill("<!-- x:begin -->\n", {"x": lambda: "1"})
