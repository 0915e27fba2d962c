"""Tools of the Model Context Protocol: the store's questions, and those of other packages."""
