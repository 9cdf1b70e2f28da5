"""Errors of the library that name its arguments, in the words that a user of the command typed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

from mutation_api.errors import MutationError

__all__ = ["in_option_names", "option_names"]


def option_names(*arguments: str) -> dict[str, str]:
    """For :func:`in_option_names`: ``valid_txns`` is ``--valid-txns``, and so on."""
    return {name: f"--{name.replace('_', '-')}" for name in arguments}


@contextlib.contextmanager
def in_option_names(options: Mapping[str, str]) -> Iterator[None]:
    """Within the block errors of ours name options where the library names arguments.

    Args:
        options: the library's words, and the option that says the same: ``{"num_buckets": "--buckets"}``.
            Parts of paths and of longer names are left alone.
    """
    words = "|".join(re.escape(word) for word in sorted(options, key=len, reverse=True))
    try:
        yield
    except MutationError as error:
        text = re.sub(rf"(?<![\w./-])(?:{words})(?![\w/-])", lambda found: options[found[0]], str(error))
        if text == str(error):
            raise
        raise type(error)(text) from error
