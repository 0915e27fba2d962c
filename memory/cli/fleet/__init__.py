"""Commands for several robots and servers: sync, align, robots, trust, grant, archive, up."""
