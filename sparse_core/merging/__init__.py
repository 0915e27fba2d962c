"""Model merging: task vectors, TIES, DARE, breadcrumbs and interpolation, in memory and from disk.

In memory: :class:`TaskVector` and :func:`merge`. From disk, for models larger than memory:
:func:`load_recipe` and :func:`merge_files`, or the command ``sparsight-merge``. At run time:
:class:`MergeCache` and :class:`HotSwap`.
"""

from sparse_core.merging.api import merge
from sparse_core.merging.connectivity import PathLoss, loss_along_path, save_path_picture
from sparse_core.merging.disk import MergeReport, make_task_vector, merge_files
from sparse_core.merging.files.vector_files import VectorFileReport, load_task_vector, save_task_vector
from sparse_core.merging.hot_swap import HotSwap
from sparse_core.merging.merge_cache import Combination, MergeCache, MergeCacheStatistics
from sparse_core.merging.methods import METHODS
from sparse_core.merging.recipes.recipe import Recipe, load_recipe, parse_recipe
from sparse_core.merging.task_vector import TaskVector

__all__ = [
    "METHODS",
    "Combination",
    "HotSwap",
    "MergeCache",
    "MergeCacheStatistics",
    "MergeReport",
    "PathLoss",
    "Recipe",
    "TaskVector",
    "VectorFileReport",
    "load_recipe",
    "load_task_vector",
    "loss_along_path",
    "make_task_vector",
    "merge",
    "merge_files",
    "parse_recipe",
    "save_path_picture",
    "save_task_vector",
]
