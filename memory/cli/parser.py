"""How the words of a command line are read."""

from __future__ import annotations

import argparse
from typing import Any


class CommandParser(argparse.ArgumentParser):
    """Takes words before, between and after options: ``recall import STORE --poses POSES FILE``."""

    _within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of the base class, intermixed."""
        if self._within:
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False
