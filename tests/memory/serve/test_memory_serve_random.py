"""Whatever is sent: never an error of the server's own."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PATHS = ("memories", "query", "ask", "forget", "mark", "undo", "consolidate")
FIELDS = {
    "memories": ("memories", "observe"),
    "query": ("text", "embedding", "like", "encoder", "near", "radius_m", "polygon", "between_ns", "between",
              "labels", "kinds", "map_id", "min_confidence", "k", "order", "aggregate"),
    "ask": ("text", "question", "what", "near", "radius_m", "polygon", "between", "since", "labels", "kinds",
            "map_id", "k", "gap_s", "distance_m", "coming_from", "now"),
    "forget": ("ids", "secure", "reason"),
    "mark": ("ids", "state", "at", "why"),
    "undo": ("generation",),
    "consolidate": ("now",),
}  # fmt: skip
RECORD = ("time_ns", "time", "position", "x", "y", "z", "yaw", "covariance", "map_id", "kind", "label",
          "caption", "embedding", "embeddings", "confidence", "reward", "payload", "marked", "count",
          "first_seen_ns", "visits", "state", "importance", "id")  # fmt: skip

numbers = st.one_of(
    st.integers(-3, 6),
    st.integers(),
    st.floats(),
    st.sampled_from([2**63, -(2**63), 2**53, 2**53 + 1, 1e308, -1e308, 1e-320]),
)
words = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["object", "last_seen", "near", "between", "how_often", "summarise", "search", "pose_to",
                     "still_there", "similar_situations", "changed_since", "distance", "recency", "relevance",
                     "2026-01-01", "now", "default", "Mug", "what changed since yesterday",
                     "a mug near 1e9 2",
                     "what is near 3, 4 in the last 999999 weeks", "9999-12-31", "where is 1"]),
)  # fmt: skip
vectors = st.lists(numbers, min_size=2, max_size=3)
plain = st.one_of(st.none(), st.booleans(), numbers, words, vectors, st.lists(vectors, max_size=4))
anything = st.recursive(
    plain,
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=4), part, max_size=3),
    max_leaves=8,
)
records = st.dictionaries(st.sampled_from(RECORD), anything, max_size=6) | st.builds(
    lambda extra: {"time_ns": 5, **extra}, st.dictionaries(st.sampled_from(RECORD), anything, max_size=3)
)


def bodies(path: str) -> Any:
    values = st.one_of(anything, st.lists(records, max_size=3)) if path == "memories" else anything
    return st.dictionaries(st.sampled_from(FIELDS[path]), values, max_size=6)


requests = st.sampled_from(PATHS).flatmap(lambda path: st.tuples(st.just(path), bodies(path) | anything))


def test_random_requests_are_answered_or_refused(make_client: Callable[..., Any]) -> None:
    client = make_client(rate=0.0)
    headers = {"content-type": "application/json"}
    client.post("/api/memories", {"memories": [{"time_ns": 1, "label": "Mug", "embedding": [1, 2, 3]}]})

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(requests)
    def ask(request: tuple[str, Any]) -> None:
        path, body = request
        answer = client.ask("POST", f"/api/{path}", content=json.dumps(body), headers=headers)
        assert answer.status_code in (200, 400, 404, 409, 422), answer.text
        json.loads(answer.text, parse_constant=lambda word: 1 / 0)

    ask()


def test_random_addresses_are_answered_or_refused(make_client: Callable[..., Any]) -> None:
    client = make_client(rate=0.0)
    far = {"time_ns": 1, "label": "Mug", "position": [1e308, -1e308]}
    client.post("/api/memories", {"memories": [far]})
    names = ("text", "label", "kind", "state", "map_id", "min_confidence", "marked", "start", "end",
             "box", "circle", "order", "limit", "cursor", "vectors", "total", "after", "before")  # fmt: skip
    values = st.one_of(words, numbers.map(str), vectors.map(lambda row: ",".join(map(str, row))))
    paths = st.sampled_from(["memories", "log", "stats", "export", "health", "memories/1", "explain/1"])
    others = st.tuples(st.sampled_from(["memories", "explain"]), values).map("/".join)

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(paths | others, st.dictionaries(st.sampled_from(names), values, max_size=4))
    def ask(path: str, query: dict[str, str]) -> None:
        encoded = path.encode("utf-8", "surrogatepass")
        clean = {name: value.encode("utf-8", "replace").decode() for name, value in query.items()}
        address = "/api/" + urllib.parse.quote(encoded)
        answer = client.get(address, params=clean)
        assert answer.status_code in (200, 404, 422), answer.text

    ask()
