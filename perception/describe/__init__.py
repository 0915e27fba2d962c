"""Looks at a folder of one's own data and describes it: ``perceive init``."""

from perception.describe.evidence import Evidence, Surety
from perception.describe.folder import Described, describe_folder, write_files

__all__ = ["Described", "Evidence", "Surety", "describe_folder", "write_files"]
