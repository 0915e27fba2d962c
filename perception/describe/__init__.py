"""Description of own folders, for ``perceive init``."""

from perception.describe.evidence import Evidence, Surety
from perception.describe.folder import TRAINING_NAME, FolderDescription, describe_folder, write_files

__all__ = ["TRAINING_NAME", "Evidence", "FolderDescription", "Surety", "describe_folder", "write_files"]
