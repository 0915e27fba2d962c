"""Packets of spinning sensors, and the captures that hold them."""
