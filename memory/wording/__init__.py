"""Words that mean the same: endings, case and small misspellings."""

from memory.terms import fold
from memory.wording.spelling import distance, nearest
from memory.wording.stems import forms, stem, stems

__all__ = ["distance", "fold", "forms", "nearest", "stem", "stems"]
