"""Helpers that know nothing about sparsity: files, tables, commands, services, threads, model surgery."""
