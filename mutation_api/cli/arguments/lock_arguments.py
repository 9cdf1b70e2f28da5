"""The option that says how long a command waits for the lock on its tables."""

from __future__ import annotations

import argparse

from mutation_api.client.builder import LOCK_TIMEOUT_SECONDS_DEFAULT

__all__ = ["add_lock_timeout_argument"]


def add_lock_timeout_argument(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,  # argparse has no public name for it
    for_whom: str,
) -> None:
    """Declare ``--lock-timeout``; ``for_whom``: who may hold the lock."""
    parser.add_argument(
        "--lock-timeout",
        type=float,
        default=LOCK_TIMEOUT_SECONDS_DEFAULT,
        metavar="SECONDS",
        help=f"how long to wait for {for_whom} (default: %(default)g)",
    )
