"""The sparse detector against its dense baseline, frames, levels, weights and archives."""
