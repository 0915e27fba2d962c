"""Commands for the files of a store: init, check, backup, export, stats."""
