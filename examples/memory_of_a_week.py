# %% [markdown]
# # The memory of a week
#
# A robot passes the same things many times a day for a week. What it keeps, what it merges, what it
# answers, and how a mistake is taken back. Positions are metres in a map, times nanoseconds; vectors would
# come from a detector or an encoder, and are made up here: one direction for each thing, with noise for
# every sight.

# %%
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from memory import Memory, MemoryStore, Query
from memory.picture import draw_map
from memory.query import Filter
from memory.questions import Questions

random = np.random.default_rng(0)
monday = datetime(2026, 1, 5, tzinfo=UTC)
# Label, caption, place, and the days on which it is there.
THINGS = (
    ("charger", "charging station in the hall", (0.5, 5.5), range(7)),
    ("keys", "bunch of keys on the shelf in the hall", (1.0, 5.8), range(3)),
    ("keys", "bunch of keys on the kitchen table", (4.1, 1.2), range(3, 7)),
    ("mug", "red mug on the kitchen table", (3.8, 1.0), range(7)),
    ("dog", "brown dog asleep on the rug", (8.0, 3.5), (2, 5)),
    ("puddle", "puddle of water on the kitchen floor", (2.0, 2.5), (4,)),
)
looks = {caption: random.normal(size=64) for _, caption, _, _ in THINGS}


def sights(day: int) -> list[Memory]:
    """What is seen on three rounds of a day, five times each."""
    found = []
    for hour in (9, 14, 20):
        for label, caption, place, days in THINGS:
            if day not in days:
                continue
            for look in range(5):
                at = monday + timedelta(days=day, hours=hour, seconds=2 * look)
                x, y = random.normal(place, 0.05)
                found.append(
                    Memory(
                        time_ns=round(at.timestamp()) * 10**9,
                        position=(x, y, 0.5),
                        label=label,
                        caption=caption,
                        embedding=looks[caption] + random.normal(size=64) * 0.1,
                        confidence=0.9,
                        map_id="house",
                    )
                )
    return found


# %% [markdown]
# ## Keep what matters
#
# `observe` scores every sight by how new and surprising it is, and counts the rest on the memory that
# stands for it. `add` would keep all. Either way, what a call returned is on the disk.

# %%
seen = 0
with MemoryStore.open("week", dim=64) as store:
    for day in range(7):
        today = sorted(sights(day), key=lambda memory: memory.time_ns)
        seen += len(today)
        store.observe(today)
    kept = len(store)
    # One memory a thing and place: merged, with the visits of all.
    store.consolidate()
    print(f"{seen} sights, {kept} kept, {len(store)} after merging")

# %% [markdown]
# ## Ask
#
# By name, or in plain words with `recall ask`. Answers are sentences with the memories behind them.

# %%
with MemoryStore.open("week", readonly=True) as store:
    ask = Questions(store)
    for answer in (ask.last_seen("keys"), ask.how_often("dog"), ask.near((4, 1), 1.0), ask.summarise()):
        print("-", answer)

# %% [markdown]
# ## Search
#
# Words, place, time and likeness in any combination.

# %%
with MemoryStore.open("week", readonly=True) as store:
    wet = store.query(Query(text="water floor", near=(2, 2), radius_m=3.0, k=1))[0]
    alike = store.query(Query(embedding=looks["brown dog asleep on the rug"], k=1))[0]
    print(wet.memory.caption, "|", alike.memory.caption, f"{alike.score:.2f}")

# %% [markdown]
# ## Why, forget, and undo

# %%
with MemoryStore.open("week") as store:
    id = wet.memory.id
    print(store.explain(id).reasons[0])
    operation = store.forget([id], reason="wiped up")
    print("forgotten:", len(store), "memories")
    store.undo(operation)
    print("undone:", len(store), "memories")
    draw_map(Path("week.png"), store.find(Filter()), title="A week in the house")
