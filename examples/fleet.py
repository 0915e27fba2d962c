# %% [markdown]
# # A memory of many robots
#
# Two robots remember in stores of their own, in folders that need no network. What they saw goes to a
# shared store when there is one in reach: a folder here, a PostgreSQL server or `recall serve` for real.
# Positions are metres in one map, times nanoseconds.

# %%
from datetime import UTC, datetime

import numpy as np

from memory import Memory, MemoryStore
from memory.errors import ForkedStoreError
from memory.merging.robots import seen_by
from memory.questions import Questions
from memory.sync import Inbox, Outbox, pull, sync
from memory.upkeep.withdrawal import withdraw

random = np.random.default_rng(0)
nine = round(datetime(2026, 1, 6, 9, tzinfo=UTC).timestamp()) * 10**9
MINUTE = 60 * 10**9
looks = {name: random.normal(size=32) for name in ("trolley", "charger", "ladder")}


def sight(name: str, x: float, minutes: int, label: str | None = None) -> Memory:
    """A thing at the wall, seen so many minutes after nine."""
    return Memory(
        time_ns=nine + minutes * MINUTE,
        position=(x + random.normal(0, 0.05), 0.0, 0.0),
        covariance=np.eye(3) * 0.05**2,
        label=label or name,
        embedding=looks[name] + random.normal(size=32) * 0.1,
        map_id="hall",
    )


# %% [markdown]
# ## Each for itself
#
# The first robot sees the trolley and the charger, the second the charger and, later, the trolley
# elsewhere. Nobody knows of the other.

# %%
with MemoryStore.open("robot-1", dim=32) as store:
    store.add([sight("trolley", 1.0, 0), sight("charger", 20.0, 5)])
with MemoryStore.open("robot-2", dim=32) as store:
    store.add([sight("charger", 20.0, 8), sight("trolley", 35.0, 40)])

# %% [markdown]
# ## Share
#
# `sync` sends what is new since the last time. The log of a store is its outbox, and how far the other side
# is stands there: it may break off at any moment and be called again. `recall sync robot-1 shared` does
# the same.

# %%
with MemoryStore.open("shared", dim=32) as shared:
    for robot in ("robot-1", "robot-2"):
        with MemoryStore.open(robot, readonly=True) as store:
            print(sync(Outbox(store.database, robot), Inbox(shared.database)))
    # The charger that both saw becomes one memory, which keeps who saw it.
    shared.consolidate(now_ns=nine + 60 * MINUTE)
    for memory in shared.get(shared.database.ids().tolist()):
        print(memory.label, round(memory.position[0], 1), sorted(seen_by(memory)))
    print(Questions(shared).last_seen("trolley"))
    assert len(shared) == 3

# %% [markdown]
# ## Bring back
#
# What the other saw is found in a robot's own store too, apart from what it saw itself.

# %%
with MemoryStore.open("robot-1") as store, MemoryStore.open("shared") as shared:
    pull(shared.database, store.database)
    answer = Questions(store).last_seen("trolley")
    print(answer)
    assert answer.memory is not None
    assert answer.memory.position[0] > 30

# %% [markdown]
# ## Take back
#
# The second robot's LiDAR was loose. What it said goes, out of what both saw too; the charger stays as the
# first saw it.

# %%
with MemoryStore.open("shared") as shared:
    print(withdraw(shared.database, "robot-2", reason="its LiDAR was loose"))
    shared.consolidate(now_ns=nine + 60 * MINUTE)
    left = {memory.label: sorted(seen_by(memory)) for memory in shared.get(shared.database.ids().tolist())}
    print(left)
    assert left == {"trolley": ["robot-1"], "charger": ["robot-1"]}

# %% [markdown]
# ## Put back
#
# A robot whose store is put back from a backup has another history than the one that was sent. That is
# noticed, and nothing is mixed up.

# %%
with MemoryStore.open("robot-1") as store:
    store.backup("copy")
    store.add([sight("ladder", 5.0, 50)])
    with MemoryStore.open("shared") as shared:
        sync(Outbox(store.database, "robot-1"), Inbox(shared.database))
with MemoryStore.open("copy") as store, MemoryStore.open("shared") as shared:
    try:
        sync(Outbox(store.database, "robot-1"), Inbox(shared.database))
    except ForkedStoreError as error:
        print(error)
