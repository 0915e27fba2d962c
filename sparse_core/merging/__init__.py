"""Model merging: task vectors, TIES, DARE, breadcrumbs and interpolation, in memory and from disk.

In memory: :class:`TaskVector` and :func:`merge`. From disk, for models larger than memory:
:func:`load_recipe` and :func:`merge_files`, or the command ``sparsight-merge``.
"""

from sparse_core.merging.api import merge
from sparse_core.merging.disk import MergeReport, make_task_vector, merge_files
from sparse_core.merging.files.vector_files import VectorFileReport, load_task_vector, save_task_vector
from sparse_core.merging.methods import METHODS
from sparse_core.merging.recipes.recipe import Recipe, load_recipe, parse_recipe
from sparse_core.merging.task_vector import TaskVector

__all__ = [
    "METHODS",
    "MergeReport",
    "Recipe",
    "TaskVector",
    "VectorFileReport",
    "load_recipe",
    "load_task_vector",
    "make_task_vector",
    "merge",
    "merge_files",
    "parse_recipe",
    "save_task_vector",
]
