# %% [markdown]
# # The memory of a week
#
# A robot passes the same objects many times a day for a week. The example shows what it keeps and merges,
# which questions it answers, and how to undo a mistake. Positions are metres in a map, times nanoseconds.
# Embeddings would come from a detector or an encoder. Here they are made up: one direction per object, with
# noise per observation.

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
# Label, caption, place, and the days on which the object is present.
OBJECTS = (
    ("charger", "charging station in the hall", (0.5, 5.5), range(7)),
    ("keys", "bunch of keys on the shelf in the hall", (1.0, 5.8), range(3)),
    ("keys", "bunch of keys on the kitchen table", (4.1, 1.2), range(3, 7)),
    ("mug", "red mug on the kitchen table", (3.8, 1.0), range(7)),
    ("dog", "brown dog asleep on the rug", (8.0, 3.5), (2, 5)),
    ("puddle", "puddle of water on the kitchen floor", (2.0, 2.5), (4,)),
)
looks = {caption: random.normal(size=64) for _, caption, _, _ in OBJECTS}


def observations(day: int) -> list[Memory]:
    """Return the observations of three rounds of a day, five per object."""
    found = []
    for hour in (9, 14, 20):
        for label, caption, place, days in OBJECTS:
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
# `observe` scores every observation by novelty and surprise. It stores the important ones and only counts
# the others on an existing memory. `add` would store all of them. Both return after the data is on disk.

# %%
seen = 0
with MemoryStore.open("week", dim=64) as store:
    for day in range(7):
        today = sorted(observations(day), key=lambda memory: memory.time_ns)
        seen += len(today)
        store.observe(today)
    kept = len(store)
    # Merge to one memory per object and place, with the visits of all.
    store.consolidate()
    print(f"{seen} observations, {kept} kept, {len(store)} after merging")

# %% [markdown]
# ## Ask
#
# Ask by name, or in plain words with `recall ask`. Answers are sentences with their source memories.

# %%
with MemoryStore.open("week", readonly=True) as store:
    ask = Questions(store)
    for answer in (ask.last_seen("keys"), ask.how_often("dog"), ask.near((4, 1), 1.0), ask.summarise()):
        print("-", answer)

# %% [markdown]
# ## Search
#
# Combine text, position, time and similarity.

# %%
with MemoryStore.open("week", readonly=True) as store:
    wet = store.query(Query(text="water floor", near=(2, 2), radius_m=3.0, k=1))[0]
    alike = store.query(Query(embedding=looks["brown dog asleep on the rug"], k=1))[0]
    print(wet.memory.caption, "|", alike.memory.caption, f"{alike.score:.2f}")

# %% [markdown]
# ## Explain, forget and undo

# %%
with MemoryStore.open("week") as store:
    id = wet.memory.id
    print(store.explain(id).reasons[0])
    operation = store.forget([id], reason="wiped up")
    print("forgotten:", len(store), "memories")
    store.undo(operation)
    print("undone:", len(store), "memories")
    draw_map(Path("week.png"), store.find(Filter()), title="A week in the house")
