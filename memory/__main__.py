"""``python -m memory`` is the same as ``recall``."""

from memory.cli import main

raise SystemExit(main())
