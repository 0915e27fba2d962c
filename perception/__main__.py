"""``python -m perception`` runs ``perceive``."""

from perception.cli import main

raise SystemExit(main())
