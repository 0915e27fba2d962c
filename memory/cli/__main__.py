"""``python -m memory.cli`` is the same as ``recall``."""

from memory.cli import main

raise SystemExit(main())
