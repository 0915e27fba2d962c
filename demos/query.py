"""A robot drives rounds in a house for some days, remembers what matters, and is asked about it.

The house, the rounds and the days are simulated, the same ones for the same seed. Vectors stand in for those
of an encoder: a caption's is the sum of one fixed random vector a word, with noise for every sight.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from memory import Hit, Memory, MemoryStore, Query
from sparse_core.common.commands import reported_file_errors
from sparse_core.common.files import replacing

DIM, HOUR_NS, DAY_NS, SECOND_NS = 128, 3600 * 10**9, 24 * 3600 * 10**9, 10**9
START_NS = round(datetime(2026, 1, 5, tzinfo=UTC).timestamp()) * SECOND_NS
#: x0, y0, x1, y1 in metres.
ROOMS = {
    "kitchen": (0, 0, 5, 4),
    "living room": (5, 0, 12, 5),
    "hall": (0, 4, 5, 6),
    "office": (0, 6, 5, 10),
    "bedroom": (5, 5, 12, 10),
}
#: Middle of the rooms, with doors between them: one round.
ROUND = [(2, 5), (2, 2), (4, 3), (8, 2), (10, 4), (8, 7), (10, 9), (6, 7), (4, 5), (2, 8), (4, 9), (2, 5)]
ROUND_HOURS, SPEED_MPS, SIGHT_M = (9, 14, 20), 0.5, 3.0


@dataclass(frozen=True)
class Thing:
    """Something in the house: where it is, from which day to before which."""

    label: str
    caption: str
    x: float
    y: float
    days: tuple[int, int] = (0, 99)
    hour: int | None = None


THINGS = [
    Thing("door", "front door of brown wood", 0.1, 5),
    Thing("keys", "bunch of keys on the shelf in the hall", 0.8, 5.7, (0, 2)),
    Thing("keys", "bunch of keys on the kitchen table", 3.1, 1.2, (2, 99)),
    Thing("table", "round table in the kitchen", 3, 1),
    Thing("chair", "wooden chair at the kitchen table", 2.2, 1),
    Thing("chair", "wooden chair at the kitchen table", 3.8, 1),
    Thing("mug", "red mug of coffee on the kitchen table", 2.8, 0.8, (0, 3)),
    Thing("mug", "red mug of coffee on the desk in the office", 1.2, 9.1, (3, 99)),
    Thing("sofa", "grey sofa with two cushions", 9, 0.8),
    Thing("television", "black television on the wall", 11.8, 2.5),
    Thing("plant", "tall green plant by the window", 6, 4.4),
    Thing("dog", "brown dog asleep on the rug", 8, 3.5, hour=20),
    Thing("desk", "white desk with a lamp in the office", 1, 9),
    Thing("chair", "black office chair with wheels", 1.5, 8.2),
    Thing("bed", "double bed with a blue blanket", 9, 8.5),
    Thing("wardrobe", "white wardrobe with a mirror", 6, 9.7),
    Thing("puddle", "puddle of spilled water on the kitchen floor", 1.5, 3, (3, 4), hour=14),
]


def encode(caption: str) -> np.ndarray:
    """Unit vector (128,) of a caption."""
    words = [word for word in caption.lower().split() if len(word) > 2]
    rows = [np.random.default_rng(zlib.crc32(word.encode())).normal(size=DIM) for word in words]
    total = np.sum(rows, axis=0)
    return (total / np.linalg.norm(total)).astype(np.float32)


def room_at(x: float, y: float) -> str:
    """Name of the room of a point."""
    return next(name for name, (x0, y0, x1, y1) in ROOMS.items() if x0 <= x <= x1 and y0 <= y <= y1)


def path() -> np.ndarray:
    """(n, 2) places of the robot on a round, one a second."""
    corners = np.array(ROUND, dtype=float)
    reached = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    along = np.arange(0.0, reached[-1], SPEED_MPS)
    return np.column_stack([np.interp(along, reached, corners[:, axis]) for axis in (0, 1)])


def rounds(days: int, rng: np.random.Generator) -> Iterator[list[Memory]]:
    """What the robot sees on each round."""
    vectors = {thing.caption: encode(thing.caption) for thing in THINGS}
    for day in range(days):
        for hour in ROUND_HOURS:
            start = START_NS + day * DAY_NS + hour * HOUR_NS
            seen = []
            for second, place in enumerate(path()):
                for thing in THINGS:
                    away = float(np.hypot(thing.x - place[0], thing.y - place[1]))
                    there = thing.days[0] <= day < thing.days[1] and thing.hour in (None, hour)
                    if there and away < SIGHT_M and room_at(*place) == room_at(thing.x, thing.y):
                        seen.append(
                            sight(thing, start + second * SECOND_NS, away, vectors[thing.caption], rng)
                        )
            yield seen


def sight(thing: Thing, time_ns: int, away: float, vector: np.ndarray, rng: np.random.Generator) -> Memory:
    """One look at a thing: the further away, the less certain."""
    sigma = 0.03 + 0.03 * away
    x, y = rng.normal((thing.x, thing.y), sigma)
    return Memory(
        time_ns=time_ns,
        position=(x, y, 0.5),
        covariance=np.diag([sigma**2, sigma**2, 0.01]),
        map_id="house",
        label=thing.label,
        caption=thing.caption,
        embedding=vector + rng.normal(0.0, 0.02, DIM).astype(np.float32),
        confidence=float(np.clip(1.0 - 0.15 * away + rng.normal(0.0, 0.02), 0.05, 1.0)),
        provenance="simulated detector",
    )


def show(title: str, hits: list[Hit]) -> list[Hit]:
    """Print the hits of a query."""
    print(f"\n{title}")
    for hit in hits:
        found = hit.memory
        x, y, _ = found.position
        when = datetime.fromtimestamp(found.time_ns / 1e9, UTC).strftime("%a %H:%M")
        parts = ", ".join(f"{name} {value:.2f}" for name, value in hit.parts.items())
        seen = f" seen {found.count} times" if found.count > 1 else ""
        print(f"  {found.id:>4}  {when}  ({x:4.1f}, {y:4.1f})  {found.caption}{seen}  {parts}")
    return hits


def draw(file: Path, memories: list[Memory], hits: list[Memory], title: str) -> Path:
    """The house from above: the round, what is remembered, and the hits with stars."""
    figure, axes = plt.subplots(figsize=(9, 7.5))
    for name, (x0, y0, x1, y1) in ROOMS.items():
        axes.add_patch(plt.Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor="0.3", linewidth=2))
        axes.text(x1 - 0.15, y1 - 0.15, name, ha="right", va="top", color="0.5")
    axes.plot(*path().T, color="0.8", linewidth=1, label="round of the robot")
    labels = sorted({memory.label for memory in memories})
    colours = plt.get_cmap("tab20")
    for place, label in enumerate(labels):
        of_label = [memory for memory in memories if memory.label == label]
        x, y = np.array([memory.position[:2] for memory in of_label]).T
        sizes = [20 + 4 * np.sqrt(memory.count) for memory in of_label]
        axes.scatter(x, y, s=sizes, color=colours(place % 20), alpha=0.8, label=label)
    for memory in hits:
        axes.scatter(
            *memory.position[:2], s=260, marker="*", facecolor="none", edgecolor="red", linewidth=1.5
        )
    axes.set(title=title, xlabel="x in metres", ylabel="y in metres", aspect="equal")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    with replacing(Path(file)) as temporary:
        figure.savefig(temporary, format="png", dpi=110, bbox_inches="tight")
    plt.close(figure)
    return file


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/query"), help="folder for the picture")
    parser.add_argument(
        "--store", type=Path, help="keep the store in this new folder, for the recall command"
    )
    parser.add_argument("--days", type=int, default=5, help="default: 5")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    options = parser.parse_args()
    if options.days < 1:
        raise SystemExit("query: --days must be at least 1")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.store or Path(scratch) / "store"
        if (folder / "memory.db").exists():
            raise SystemExit(f"query: {folder} holds a store already")
        with MemoryStore.open(folder, dim=DIM) as store:
            remember(store, options.days, options.seed)
            ask(store, options.days, options.out)
    if options.store:
        print(f"\nLook yourself: recall query {options.store} --text keys --near 3 1 --radius 2")


def remember(store: MemoryStore, days: int, seed: int) -> None:
    """Live through the days."""
    rng, started, seen = np.random.default_rng(seed), time.perf_counter(), 0
    for sights in rounds(days, rng):
        seen += len(sights)
        store.observe(sights)
    took = time.perf_counter() - started
    print(f"{days} days, {seen} sights, {len(store)} worth keeping ({took:.1f} s)")


def ask(store: MemoryStore, days: int, out: Path) -> None:
    """Ask in every way, consolidate, and draw."""
    now = START_NS + days * DAY_NS
    show("Words: 'kitchen keys'", store.query(Query(text="kitchen keys", k=3)))
    spilled = encode("water spilled on the floor")
    (puddle, *_) = show("Likeness: 'water spilled on the floor'", store.query(Query(embedding=spilled, k=2)))
    show("Place: within 1.5 m of the front door", store.query(Query(near=(0, 5), radius_m=1.5, k=3)))
    evening = (now - DAY_NS + 20 * HOUR_NS, now)
    show("Time: last evening, the dog", store.query(Query(between_ns=evening, labels=["dog"], k=2)))
    together = Query(
        embedding=encode("red mug of coffee"),
        text="mug",
        near=(1, 9),
        radius_m=3.0,
        between_ns=(START_NS, now),
        k=2,
    )
    show("All of it: like 'red mug of coffee', says 'mug', around the desk, any day", store.query(together))

    print(f"\nWhy is {puddle.memory.id} there?")
    for reason in store.explain(puddle.memory.id or 0).reasons:
        print(f"  {reason}")
    before = len(store)
    done = store.consolidate(now_ns=now)
    print(f"\nConsolidated: {before} memories became {len(store)}, by {len(done.merged)} merges")
    newest = show("Words again: 'keys'", store.query(Query(text="keys", k=5, order="recency")))
    if done.merged:
        _, sources = done.merged[0]
        print(f"\nWhat became of {sources[0]}? {store.explain(sources[0]).reasons[0]}")
    everything = [hit.memory for hit in store.query(Query(k=10_000))]
    title = f"{len(everything)} memories of {days} days; stars: where the keys were"
    print(f"\npicture: {draw(out / 'memories.png', everything, [hit.memory for hit in newest], title)}")


if __name__ == "__main__":
    with reported_file_errors("query"):
        main()
