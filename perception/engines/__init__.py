"""Work that is handed to processes: of this machine, or of a cluster by Ray."""
