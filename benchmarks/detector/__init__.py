"""The sparse detector against its dense twin, frames, levels, weights and archives."""
