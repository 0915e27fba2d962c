"""Requests that schemathesis makes of the service's own schema: every answer is one that it tells of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.serve import ServeOptions, create_app
from memory.store import MemoryStore
from memory.types import Memory

schemathesis = pytest.importorskip("schemathesis")
TOKEN = "sesame"
#: The library names the application so where there is no network.
HOST = "testserver"


@pytest.fixture
def known(tmp_path: Path) -> Iterator[MemoryStore]:
    """A store with a few memories, so that small ids are of something."""
    with MemoryStore.open(tmp_path / "robot-store", dim=3) as store:
        store.add(
            [
                Memory(time_ns=10**15 * row, label="Mug", caption="red mug", position=(row, 0, 0),
                       embedding=[1, row, 0], covariance=[[0.1, 0, 0], [0, 0.1, 0], [0, 0, 0.1]])
                for row in range(1, 6)
            ]
            + [Memory(time_ns=10**15, label="Mug", caption="red mug somewhere", embedding=[1, 7, 0])]
        )  # fmt: skip
        yield store


def examine(store: MemoryStore, *, token: str | None, examples: int, phases: tuple[str, ...]) -> Any:
    """Let the library ask; what it found, and how many checks of each sort it made."""
    from schemathesis.config import SchemathesisConfig
    from schemathesis.engine import from_schema

    app = create_app(
        store, token=token, options=ServeOptions(rate=0.0, hosts=(HOST,), threads=4, max_batch=50)
    )
    values: dict[str, Any] = {
        "seed": 1,
        "request-timeout": 60,
        "max-stream-events": 1,
        "continue-on-failure": True,
        "generation": {"max-examples": examples, "deterministic": True},
        # Values may fit the schema and mean nothing here: a vector of another length, an id that nobody has.
        "checks": {"positive_data_acceptance": {"enabled": False}},
        "phases": {
            name: {"enabled": name in phases} for name in ("examples", "coverage", "fuzzing", "stateful")
        },
    }
    if token is not None:
        values["auth"] = {"openapi": {"token": {"bearer": token}}}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, config=SchemathesisConfig.from_dict(values))
    checks: Counter[str] = Counter()
    failures: dict[tuple[str, ...], str] = {}
    for event in from_schema(schema).execute():
        assert type(event).__name__ not in ("NonFatalError", "FatalError"), event
        if type(event).__name__ != "ScenarioFinished":
            continue
        for made in event.recorder.checks.values():
            for check in made:
                checks[check.name] += 1
                if check.failure_info is not None:
                    failure = check.failure_info.failure
                    key = (str(event.label), check.name, failure.title, failure.message[:400])
                    failures.setdefault(key, check.failure_info.code_sample)
    return checks, failures


def assert_sound(checks: Counter[str], failures: dict[tuple[str, ...], str]) -> None:
    assert not failures, "\n\n".join(
        f"{key[0]} {key[1]}: {key[2]}\n{key[3]}\n{sample}" for key, sample in failures.items()
    )
    made = {
        "not_a_server_error", "status_code_conformance", "content_type_conformance",
        "response_schema_conformance", "response_headers_conformance", "negative_data_rejection",
        "unsupported_method", "allow_header_conformance", "ignored_auth", "use_after_free",
    }  # fmt: skip
    assert made <= set(checks), checks
    assert sum(checks.values()) > 1000


def test_what_the_schema_tells_is_what_is_answered(known: MemoryStore) -> None:
    checks, failures = examine(known, token=TOKEN, examples=3, phases=("coverage",))
    assert_sound(checks, failures)
    assert known.check().ok


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("token", [None, TOKEN])
def test_thousands_of_requests_and_their_sequences_find_nothing(
    known: MemoryStore, token: str | None
) -> None:
    phases = ("examples", "coverage", "fuzzing", "stateful")
    checks, failures = examine(known, token=token, examples=400, phases=phases)
    assert_sound(checks, failures)
    assert known.check().ok
