"""Packets of spinning LiDARs, and network captures of them."""
