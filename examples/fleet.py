# %% [markdown]
# # A shared memory of several robots
#
# Two robots have their own stores, in folders that need no network. They send their memories to a shared
# store when it is reachable: here a folder, in practice a PostgreSQL server or `recall serve`. Positions are
# metres in one map, times nanoseconds.

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


def observation(name: str, x: float, minutes: int) -> Memory:
    """Return an observation of an object at the wall, this many minutes after nine."""
    return Memory(
        time_ns=nine + minutes * MINUTE,
        position=(x + random.normal(0, 0.05), 0.0, 0.0),
        covariance=np.eye(3) * 0.05**2,
        label=name,
        embedding=looks[name] + random.normal(size=32) * 0.1,
        map_id="hall",
    )


# %% [markdown]
# ## Remember separately
#
# The first robot sees the trolley and the charger. The second sees the charger and, later, the trolley
# elsewhere.

# %%
with MemoryStore.open("robot-1", dim=32) as store:
    store.add([observation("trolley", 1.0, 0), observation("charger", 20.0, 5)])
with MemoryStore.open("robot-2", dim=32) as store:
    store.add([observation("charger", 20.0, 8), observation("trolley", 35.0, 40)])

# %% [markdown]
# ## Share
#
# `sync` sends everything new since the last call. The store's log is its outbox and records the progress of
# the other side, so `sync` can be interrupted and repeated. `recall sync robot-1 shared` does the same.

# %%
with MemoryStore.open("shared", dim=32) as shared:
    for robot in ("robot-1", "robot-2"):
        with MemoryStore.open(robot, readonly=True) as store:
            print(sync(Outbox(store.database, robot), Inbox(shared.database)))
    # The charger that both saw becomes one memory, which lists both robots.
    shared.consolidate(now_ns=nine + 60 * MINUTE)
    for memory in shared.get(shared.database.ids().tolist()):
        print(memory.label, round(memory.position[0], 1), sorted(seen_by(memory)))
    print(Questions(shared).last_seen("trolley"))
    assert len(shared) == 3

# %% [markdown]
# ## Pull
#
# Each robot can pull the memories of the others into its own store, where they stay separate from its own.

# %%
with MemoryStore.open("robot-1") as store, MemoryStore.open("shared") as shared:
    pull(shared.database, store.database)
    answer = Questions(store).last_seen("trolley")
    print(answer)
    assert answer.memory is not None
    assert answer.memory.position[0] > 30

# %% [markdown]
# ## Withdraw
#
# The second robot's LiDAR was loose. Its memories are removed, also from merged ones; the charger stays as
# the first robot saw it.

# %%
with MemoryStore.open("shared") as shared:
    print(withdraw(shared.database, "robot-2", reason="its LiDAR was loose"))
    shared.consolidate(now_ns=nine + 60 * MINUTE)
    left = {memory.label: sorted(seen_by(memory)) for memory in shared.get(shared.database.ids().tolist())}
    print(left)
    assert left == {"trolley": ["robot-1"], "charger": ["robot-1"]}

# %% [markdown]
# ## Restore a backup
#
# A store restored from a backup has another history than the one that was sent. `sync` detects this and
# refuses to mix the two.

# %%
with MemoryStore.open("robot-1") as store:
    store.backup("copy")
    store.add([observation("ladder", 5.0, 50)])
    with MemoryStore.open("shared") as shared:
        sync(Outbox(store.database, "robot-1"), Inbox(shared.database))
with MemoryStore.open("copy") as store, MemoryStore.open("shared") as shared:
    try:
        sync(Outbox(store.database, "robot-1"), Inbox(shared.database))
    except ForkedStoreError as error:
        print(error)
