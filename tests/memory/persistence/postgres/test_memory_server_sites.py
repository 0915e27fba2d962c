"""Sites with stores of their own, asked together by postgres_fdw, as docs/memory-server.md says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
import pytest
from psycopg import conninfo

from memory import Memory, MemoryStore
from memory.persistence.postgres.upkeep import Upkeep

DIM = 8
PAGE = Path(__file__).resolve().parents[4] / "docs" / "memory-server.md"


def fill(address: str, seed: int) -> np.ndarray:
    """A store of 600 memories with a graph; their vectors."""
    vectors = np.random.default_rng(seed).normal(size=(600, DIM)).astype(np.float32)
    with MemoryStore.open(address, dim=DIM) as store:
        store.add([
            Memory(time_ns=at, position=(at, seed, 0), label=f"l{at % 50}", embedding=vector)
            for at, vector in enumerate(vectors)
        ])  # fmt: skip
        assert isinstance(store.database, Upkeep)
        store.database.make_indexes(100)
    return vectors


def plan(connection: psycopg.Connection, sql: str) -> str:
    rows = connection.execute(f"EXPLAIN (VERBOSE, COSTS OFF) {sql}".encode()).fetchall()
    return "\n".join(line for (line,) in rows)


def test_sites_are_asked_together(
    postgresql: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    here, there = postgresql(), postgresql()
    vectors = [fill(here, 0), fill(there, 1)]
    with MemoryStore.open(there) as store:
        assert isinstance(store.database, Upkeep)
        reader = store.database.grant("asks from elsewhere")
        assert reader is not None
    known = conninfo.conninfo_to_dict(reader)
    setup, question = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    asked = vectors[1][7]
    for name, value in {
        "'HOST'": f"'{known['host']}'", "'PORT'": f"'{known['port']}'", "'DATABASE'": f"'{known['dbname']}'",
        "'USER'": f"'{known['user']}'", "'PASSWORD'": f"'{known['password']}'",
        "SCHEMA_THERE": str(known["options"]).split("=")[1].split(",")[0], "(DIM)": f"({DIM})",
        "VECTOR": str(asked.tolist()),
    }.items():  # fmt: skip
        setup, question = setup.replace(name, value), question.replace(name, value)
    with psycopg.connect(here) as connection:  # Undone at the end.
        for statement in setup.split(";\n"):
            connection.execute(statement.encode())
        found = connection.execute(question.rstrip().rstrip(";").encode()).fetchall()
        scores = [1 - each @ asked / np.linalg.norm(each, axis=1) / np.linalg.norm(asked) for each in vectors]
        both = sorted((score, site, at + 1) for site, of in enumerate(scores) for at, score in enumerate(of))
        expected = {("here" if site == 0 else "yard", id) for _, site, id in both[:10]}
        assert len({(site, id) for site, id, _ in found} & expected) >= 9
        assert found[0][:2] == ("yard", 8)
        remote = plan(connection, question.rstrip().rstrip(";")).split("Remote SQL: ")[1]
        assert "ORDER BY" in remote
        joined = (
            "SELECT e.id FROM yard.embedding e JOIN yard.memory m USING (id) WHERE e.slot = 0 AND m.label ="
            f" 'l3' ORDER BY e.half::halfvec({DIM}) <=> '{asked.tolist()}' LIMIT 10"
        )
        assert "INNER JOIN" in plan(connection, joined)
        assert len(connection.execute(joined.encode()).fetchall()) == 10
        boxed = "SELECT id FROM yard.memory WHERE point(x, y) <@ box(point(5, 0), point(9, 2))"
        assert "<@" in plan(connection, boxed).split("Remote SQL")[1]
        assert len(connection.execute(boxed.encode()).fetchall()) == 5
        connection.rollback()
