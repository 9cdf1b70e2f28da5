"""DiscreetParser: a parser of arguments whose complaints do not show secrets.

A complaint quotes arguments, and by a typing error any of them may be a URL with a password.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from mutation_api.inputs.url_secrets import without_secrets

__all__ = ["DiscreetParser"]


class DiscreetParser(argparse.ArgumentParser):
    """Parses as its base does."""

    def error(self, message: str) -> NoReturn:
        """End with the usage and the message, without what may be a secret in it."""
        super().error(without_secrets(message))
