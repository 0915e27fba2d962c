"""Compare the public surface with that of the last release.

A surface is a list of lines such as ``memory.MemoryStore.open(path, *, dim, read_only=)``. ``=`` marks
optional parameters. ``tests/architecture/test_public_surface.py`` writes it, and ``make release`` keeps one
in ``surfaces``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

SURFACES = Path(__file__).with_name("surfaces")

Version = tuple[int, int, int]


def parse_version(text: str) -> Version:
    """Return the three numbers of a version."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"{text!r} is not a version such as 0.2.0")
    major, minor, patch = map(int, found.groups())
    return major, minor, patch


def last_release(folder: Path = SURFACES, *, before: Version) -> Path | None:
    """Return the surface of the newest release before a version, or None."""
    known = {parse_version(path.stem): path for path in folder.glob("*.txt")}
    older = [version for version in known if version < before]
    return known[max(older)] if older else None


def broken_names(before: Sequence[str], now: Sequence[str]) -> dict[str, str]:
    """Return what breaks callers, by public name.

    These are names and parameters that are gone, parameters in another order, and those that a call must now
    give.
    """
    present = dict(map(_parts, now))
    broken: dict[str, str] = {}
    for name, parameters in map(_parts, before):
        if name not in present:
            broken[name] = "is gone"
            continue
        known, found = _names(parameters), _names(present[name])
        gone = [each for each in known if each not in found and each != "*"]
        required = {each for each in parameters if not each.endswith("=")}
        needed = [
            each for each in present[name] if each[:1] != "*" and each[-1:] != "=" and each not in required
        ]
        if gone:
            broken[name] = f"lacks {', '.join(gone)}"
        elif needed:
            broken[name] = f"now requires {', '.join(needed)}"
        elif _positional(known) != _positional(found)[: len(_positional(known))]:
            broken[name] = "takes its positional parameters in another order"
    return broken


def complaints(broken: dict[str, str], before: Version, now: Version, changes: str) -> list[str]:
    """Return what the release must not do: break in a patch version, or without a line in the changelog.

    Args:
        broken: see :func:`broken_names`.
        before, now: versions of both releases.
        changes: section of CHANGELOG.md about the new one.
    """
    # Up to 1.0 a minor version may break, later only a major one.
    stable = now[:1] == before[:1] if now[0] else now[:2] == before[:2]
    if stable:
        return [f"{name} {how}; a version with this number must not break" for name, how in broken.items()]
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", changes))))
    return [
        f"{name} {how}; CHANGELOG.md does not name it"
        for name, how in broken.items()
        if name.rpartition(".")[2] not in named
    ]


def check(version: str, lines: Sequence[str], changelog: str, folder: Path = SURFACES) -> list[str]:
    """Return what is wrong with a surface compared with the last release; nothing without an earlier one."""
    now = parse_version(version)
    last = last_release(folder, before=now)
    if last is None:
        return []
    section = changelog.partition(f"## [{version}]")[2].partition("\n## [")[0]
    broken = broken_names(last.read_text(encoding="utf-8").splitlines(), lines)
    return complaints(broken, parse_version(last.stem), now, section)


def _parts(line: str) -> tuple[str, list[str]]:
    name, _, parameters = line.partition("(")
    return name, [each for each in parameters.rstrip(")").split(", ") if each]


def _names(parameters: Sequence[str]) -> list[str]:
    return [each.rstrip("=") for each in parameters]


def _positional(parameters: Sequence[str]) -> list[str]:
    """Return the parameters that can be given without a name."""
    stars = [at for at, each in enumerate(parameters) if each.startswith("*")]
    return list(parameters[: stars[0]] if stars else parameters)
