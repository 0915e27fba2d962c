"""Assembly of coordinates to compressed rows, summing duplicates."""

from sparse_core.formats.assemble.api import assemble_csr
from sparse_core.formats.assemble.common import Assembled

__all__ = ["Assembled", "assemble_csr"]
