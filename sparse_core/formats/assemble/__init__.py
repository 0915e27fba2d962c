"""From coordinates to compressed rows, duplicates summed."""

from sparse_core.formats.assemble.api import assemble_csr
from sparse_core.formats.assemble.common import Assembled

__all__ = ["Assembled", "assemble_csr"]
