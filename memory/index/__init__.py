"""Vector search: exact, hashed, learned and by faiss. An index is a cache that the store can rebuild.

Import ``FaissIndex`` from ``memory.index.faiss_index``; it needs an optional package.
"""

from memory.index.calibration import calibrate
from memory.index.effort import Effort, IndexCalibration
from memory.index.evaluation import Clustered, clustered, recall
from memory.index.flat import FlatIndex
from memory.index.itq import ITQIndex
from memory.index.lsh import LSHIndex
from memory.index.neighbours import Among, LongTermIndex, Neighbours, VectorIndex
from memory.index.planner import Costs, Plan, plan
from memory.index.tiered import TieredIndex

__all__ = [
    "Among",
    "Clustered",
    "Costs",
    "Effort",
    "FlatIndex",
    "ITQIndex",
    "IndexCalibration",
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
