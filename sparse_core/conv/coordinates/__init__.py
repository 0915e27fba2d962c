"""Table of active coordinates, from a coordinate to its row."""

from sparse_core.conv.coordinates.api import CoordinateTable, build_table, table_from_keys

__all__ = ["CoordinateTable", "build_table", "table_from_keys"]
