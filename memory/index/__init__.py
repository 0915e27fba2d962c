"""Vector search: exact, hashed, learned and by faiss; caches that are built again from the store.

``FaissIndex`` is imported from ``memory.index.faiss_index``: it needs the optional package.
"""

from memory.index.calibration import calibrate
from memory.index.effort import Calibration, Effort
from memory.index.evaluation import Clustered, clustered, recall
from memory.index.flat import FlatIndex
from memory.index.itq import ITQIndex
from memory.index.lsh import LSHIndex
from memory.index.neighbours import Among, LongTermIndex, Neighbours, VectorIndex
from memory.index.planner import Costs, Plan, plan
from memory.index.tiered import TieredIndex

__all__ = [
    "Among",
    "Calibration",
    "Clustered",
    "Costs",
    "Effort",
    "FlatIndex",
    "ITQIndex",
    "LSHIndex",
    "LongTermIndex",
    "Neighbours",
    "Plan",
    "TieredIndex",
    "VectorIndex",
    "calibrate",
    "clustered",
    "plan",
    "recall",
]
