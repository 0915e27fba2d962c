"""``python -m perception.cli`` runs ``perceive``."""

from perception.cli import main

raise SystemExit(main())
