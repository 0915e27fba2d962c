"""Questions as structured queries, and language models that translate into them."""

from memory.questions.translation.model import Translation, Translator
from memory.questions.translation.query import FIELDS, parse_query, query_of, schema

__all__ = ["FIELDS", "Translation", "Translator", "parse_query", "query_of", "schema"]
