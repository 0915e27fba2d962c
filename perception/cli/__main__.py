"""``python -m perception.cli`` is the same as ``perceive``."""

from perception.cli import main

raise SystemExit(main())
