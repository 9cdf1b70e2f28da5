"""Replaces argument names in errors of the library by the options of the command."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

from mutation_api.errors import MutationError

__all__ = ["in_option_names", "option_names"]


def option_names(*arguments: str) -> dict[str, str]:
    """For :func:`in_option_names`: ``valid_txns`` becomes ``--valid-txns``, and so on."""
    return {name: f"--{name.replace('_', '-')}" for name in arguments}


@contextlib.contextmanager
def in_option_names(options: Mapping[str, str]) -> Iterator[None]:
    """Within the block, errors of the library name options instead of arguments.

    Args:
        options: text in the library's message -> option: ``{"num_buckets": "--buckets"}``. Parts of paths and
            of longer names are not replaced.
    """
    if not options:
        yield
        return
    words = "|".join(re.escape(word) for word in sorted(options, key=len, reverse=True))
    try:
        yield
    except MutationError as error:
        text = re.sub(rf"(?<![\w./-])(?:{words})(?![\w/-])", lambda found: options[found[0]], str(error))
        if text == str(error):
            raise
        raise type(error)(text) from error
