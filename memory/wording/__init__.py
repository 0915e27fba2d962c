"""Word matching: endings, case and misspellings."""

from memory.terms import fold
from memory.wording.spelling import distance, nearest
from memory.wording.stems import forms, stem, stems

__all__ = ["distance", "fold", "forms", "nearest", "stem", "stems"]
