"""Helpers without sparsity: files, tables, commands, services, threads, model surgery."""
