"""Damaged databases and logs: nothing wrong is called sound, and a repair brings back what can be read."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from memory.errors import StoreError
from memory.persistence.sqlite import places
from memory.persistence.sqlite.database import SqliteDatabase
from memory.types import Memory

PAGE = 4096
Damage = Callable[[bytes, np.random.Generator], bytes]


def row_of(number: int, dim: int = 16) -> Memory:
    random = np.random.default_rng(number)
    return Memory(
        time_ns=1000 * number,
        position=(number % 31, number % 17, 0.5),
        yaw=0.1 * number,
        label=f"label {number % 9}",
        caption=f"thing number {number} beside the door",
        payload={"number": number, "words": ["some", "more", number]},
        evidence=f"bag {number}",
        covariance=np.eye(3) * (1 + number % 5) if number % 3 == 0 else None,
        visits=((1000 * number, 1000 * number, 2), (1000 * number + 9, 1000 * number + 9, 1))
        if number % 11 == 0
        else (),
        embedding=random.standard_normal(dim),
    )


def build(folder: Path, count: int) -> dict[int, Memory]:
    """A store with a past; what is in it by id."""
    with SqliteDatabase.open(folder, dim=16) as database:
        for start in range(0, count, 100):
            database.add([row_of(number) for number in range(start, min(start + 100, count))])
        database.remove([5, 6])
        database.undo(database.remove([7, 8]))
        database.update([dataclasses.replace(database.get([9])[0], caption="changed since")])
        database.mark([10], "gone")
        database.repose([11, 12], np.ones((2, 3)), np.zeros(2))
        database.touch({13: 1}, 5)
        return contents(database)


def contents(database: SqliteDatabase) -> dict[int, Memory]:
    return {int(row.id or 0): row for row in database.get(database.ids())}


def differs(one: Memory, other: Memory, *, but: set[str]) -> bool:
    """Whether any field but some is another one."""
    for field in dataclasses.fields(Memory):
        if field.name in but:
            continue
        a, b = getattr(one, field.name), getattr(other, field.name)
        same = np.array_equal(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else a == b
        if not same:
            return True
    return False


def zeroed(data: bytes, random: np.random.Generator) -> bytes:
    at = PAGE * int(random.integers(len(data) // PAGE))
    return data[:at] + bytes(PAGE) + data[at + PAGE :]


def swapped(data: bytes, random: np.random.Generator) -> bytes:
    one, other = sorted(PAGE * random.choice(len(data) // PAGE, 2, replace=False))
    middle = data[one + PAGE : other]
    return data[:one] + data[other : other + PAGE] + middle + data[one : one + PAGE] + data[other + PAGE :]


def flipped(data: bytes, random: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for at in random.integers(0, len(data), int(random.integers(1, 20))):
        changed[at] ^= 1 << int(random.integers(8))
    return bytes(changed)


def reworded(data: bytes, random: np.random.Generator) -> bytes:
    """Letters of a caption, a payload or a label become others."""
    found = [match.start() for match in re.finditer(rb"beside the|\"words\"|label |bag ", data)]
    at = found[int(random.integers(len(found)))]
    return data[:at] + random.choice([b"\xc3\xff\xfe", b"XYZ", b'"}{']) + data[at + 3 :]


def overwritten(data: bytes, random: np.random.Generator) -> bytes:
    """500 bytes of 0xFF near the end of a page."""
    at = PAGE * (1 + int(random.integers(len(data) // PAGE))) - 600
    return data[:at] + b"\xff" * 500 + data[at + 500 :]


DAMAGES: list[Damage] = [zeroed, swapped, flipped, reworded, overwritten]


def named_ids(lines: tuple[str, ...]) -> tuple[set[int], set[int]]:
    """Ids that a report calls lost, and those that lack a part only."""
    gone: set[int] = set()
    partly: set[int] = set()
    for line in lines:
        target = partly if re.match("vectors|visits|covariances", line) else gone
        for low, high in re.findall(r"(\d+)(?: to (\d+))?", line.partition("memor")[2]):
            target |= set(range(int(low), int(high or low) + 1))
    return gone, partly


def attack(folder: Path, expected: dict[int, Memory]) -> str:
    """Open, check, repair and compare; what is wrong, in a word, nothing otherwise."""
    try:
        try:
            with SqliteDatabase.open(folder, create=False) as database:
                sound = database.check().ok
                if sound:
                    found = contents(database)
                    same = found.keys() == expected.keys() and not any(
                        differs(found[id], expected[id], but=set()) for id in expected
                    )
                    return "" if same else "sound yet wrong"
                report = database.check(repair=True)
        except StoreError:
            report = SqliteDatabase.repair(folder)
    except StoreError as error:
        return f"gave up: {error}"
    except Exception as error:
        return f"another error: {type(error).__name__}: {error}"
    if not report.ok:
        return f"repair incomplete: {report}"
    gone, partly = named_ids(report.lost)
    try:
        with SqliteDatabase.open(folder, create=False) as database:
            found = contents(database)
            if not database.check().ok:
                return "repair incomplete"
    except Exception as error:
        return f"unreadable after repair: {type(error).__name__}: {error}"
    if unfounded := {id for id in gone if id in found or id > max(expected)}:
        return f"called lost without having been there: {sorted(unfounded)[:5]}"
    if unnamed := expected.keys() - found.keys() - gone:
        return f"lost without a word: {sorted(unnamed)[:5]}"
    if found.keys() - expected.keys():
        return "came back"
    for id, row in found.items():
        but = {"embedding", "covariance", "visits"} if id in partly else set()
        if differs(row, expected[id], but=but):
            return f"altered: {id}"
    return ""


def attack_all(tmp_path: Path, count: int, trials: Iterable[int]) -> Counter[str]:
    expected = build(tmp_path / "sound", count)
    data = (tmp_path / "sound" / "memory.db").read_bytes()
    found: Counter[str] = Counter()
    for trial in trials:
        random = np.random.default_rng(trial)
        folder = tmp_path / "trial"
        folder.mkdir()
        damage = DAMAGES[trial % len(DAMAGES)]
        shutil.copy(tmp_path / "sound" / "writer.lock", folder)
        (folder / "memory.db").write_bytes(damage(data, random))
        said = attack(folder, expected)
        if said:
            found[f"{damage.__name__} {trial}: {said}"] += 1
        shutil.rmtree(folder)
    return found


def test_damaged_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "TAIL", 50)
    assert attack_all(tmp_path, 150, range(10)) == {}


def test_lengths_that_exceed_the_memory_and_a_log_without_numbers(tmp_path: Path) -> None:
    assert attack_all(tmp_path, 1000, (39, 311)) == {}


@pytest.mark.slow
def test_350_damaged_databases(tmp_path: Path) -> None:
    assert attack_all(tmp_path, 1000, range(350)) == {}


def attack_logs(
    tmp_path: Path, kill: Callable[[Path, int], int], count: int, trials: int
) -> tuple[list[str], int]:
    """What went wrong with damaged write-ahead logs, and in how many of them memories were lost."""
    last = kill(tmp_path / "killed", count)
    data = (tmp_path / "killed" / "memory.db-wal").read_bytes()
    wrong, lost = [], 0
    for trial in range(trials):
        random = np.random.default_rng(trial)
        folder = tmp_path / "trial"
        shutil.copytree(tmp_path / "killed", folder)
        (folder / "memory.db-shm").unlink(missing_ok=True)
        if trial % 3 == 2:  # Without what the writer noted, the log must speak for itself.
            (folder / "writer.lock").unlink()
        damaged = (overwritten, flipped)[trial % 2](
            data[: len(data) // 2 if trial % 3 == 2 else len(data)], random
        )
        damaged += data[len(damaged) :]
        (folder / "memory.db-wal").write_bytes(damaged)
        try:
            with SqliteDatabase.open(folder) as database:
                there = set(database.ids().tolist())
                missing = set(range(1, last + 1)) - there
                lost += bool(missing)
                report = database.check()
                if missing and report.ok:
                    wrong.append(f"{trial}: {len(missing)} lost, and it is sound")
                if missing and trial % 3 != 2 and min(database.add([row_of(0)])) <= last:
                    wrong.append(f"{trial}: an id was used again")
                if not missing and not report.ok and "restored" in str(report):
                    wrong.append(f"{trial}: nothing is lost, and it says so: {report}")
                if not report.ok and not database.check(repair=True).ok:
                    wrong.append(f"{trial}: repair incomplete")
        except StoreError as error:
            wrong.append(f"{trial}: {error}")
        shutil.rmtree(folder)
    return wrong, lost


@pytest.mark.parametrize(("count", "trials"), [(40, 12), pytest.param(200, 300, marks=pytest.mark.slow)])
def test_damaged_logs_are_told(
    tmp_path: Path, killed_store: Callable[[Path, int], int], count: int, trials: int
) -> None:
    wrong, lost = attack_logs(tmp_path, killed_store, count, trials)
    assert wrong == []
    assert lost > trials // 4
