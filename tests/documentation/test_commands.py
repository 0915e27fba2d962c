"""The programs' own parsers accept every command on every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_commands import MAINS, ROOT, ShownCommand, complaint, options_of, pages, shown_commands

from memory.cli.commands import COMMANDS as RECALL
from perception.cli.commands import COMMANDS as PERCEIVE

#: Placeholders of numbers.
_NUMBERS = re.compile(r"\b(N|ID|PORT|MB)\b")


def commands() -> list[ShownCommand]:
    return [one for page in pages() for one in shown_commands(page)]


def program_of(shown: ShownCommand) -> tuple[str, list[str]] | None:
    """Return the program and its words; None for programs of others."""
    program, *words = shown.words
    words = words[: next((row for row, word in enumerate(words) if word in (">", "<")), len(words))]
    if program == "torchrun" and "-m" in words:
        module, *words = words[words.index("-m") + 1 :]
        assert module == "perception.cli"
        program = "perceive"
    if program == "python" and words:
        program, *words = words
    if program == "-m" and words:
        program, *words = words
        program = {"perception.cli": "perceive", "memory.cli": "recall"}.get(program, program)
        if program.startswith("benchmarks."):
            path = program.replace(".", "/")
            program = f"{path}/__main__.py" if (ROOT / path).is_dir() else f"{path}.py"
    return (program, words) if program in MAINS or program.endswith(".py") else None


def parses(shown: ShownCommand) -> bool:
    """Return True if the program has a parser."""
    found = program_of(shown)
    return found is not None and (
        found[0] in MAINS or not (ROOT / found[0]).is_file() or "argparse" in (ROOT / found[0]).read_text()
    )


def distinct(*, whole: bool) -> list[ShownCommand]:
    found = {one.words: one for one in commands() if one.whole == whole and parses(one)}
    return list(found.values())


def test_pages_show_commands() -> None:
    assert len(distinct(whole=True)) > 120
    assert len(distinct(whole=False)) > 60


@pytest.mark.parametrize("shown", distinct(whole=True), ids=str)
def test_parsers_take_what_pages_show(shown: ShownCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    program, words = program_of(shown) or ("", [])
    if program.endswith(".py"):
        assert (ROOT / program).is_file()
        if program.startswith("demos/"):
            monkeypatch.syspath_prepend(str(ROOT / "demos"))
    assert not complaint(program, [_NUMBERS.sub("1", word) for word in words if word != "..."])


@pytest.mark.parametrize("shown", distinct(whole=False), ids=str)
def test_what_sentences_name_exists(shown: ShownCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    program, words = program_of(shown) or ("", [])
    if program.endswith(".py"):
        assert (ROOT / program).is_file()
        if program.startswith("demos/"):
            monkeypatch.syspath_prepend(str(ROOT / "demos"))
    elif words and not words[0].startswith("-"):
        assert words[0] in {"perceive": PERCEIVE, "recall": RECALL}.get(program, words[0])
    options = [word.partition("=")[0].rstrip(",;:") for word in words if word.startswith("--")]
    if options:
        assert set(options) <= options_of(program, words) | {"--help", "--version"}


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {
        word for one in commands() if one.words[0] == "make" for word in one.words[1:] if "=" not in word
    }
    assert len(named) > 4
    assert named <= targets


def test_what_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("page_commands.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```bash\nperceive detect A --outt B   # --hidden\n"
        "recall ask S 'it|s' | perceive track S --out O --nothing\n```\n"
        "Take `recall ask --when`.\n\n    perceive eval \\\n      --data D\n"
    )
    found = list(shown_commands(page))
    assert [one.words for one in found] == [
        ("perceive", "detect", "A", "--outt", "B"),
        ("recall", "ask", "S", "it|s"),
        ("perceive", "track", "S", "--out", "O", "--nothing"),
        ("perceive", "eval", "--data", "D"),
        ("recall", "ask", "--when"),
    ]
    assert "unrecognized arguments: --outt" in complaint("perceive", found[0].words[1:])
    assert not complaint("recall", found[1].words[1:])
    assert "--nothing" in complaint("perceive", found[2].words[1:])
    assert "--when" not in options_of("recall", found[4].words[1:])
    assert "no command 'nothing'" in complaint("recall", ["nothing"])
