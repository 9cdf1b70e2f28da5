"""What is damaged: each kind has a name, and a function that runs one case of it by a generator."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable

from tests.fuzz.answer_cases import ANSWER_CASES
from tests.fuzz.orc_cases import FILE_DAMAGES, orc_case
from tests.fuzz.text_cases import TEXT_CASES

Case = Callable[[random.Random], None]
"""Runs one case. Raises errors of this library, or what is a fault."""

KINDS: dict[str, Case] = {
    **{name: functools.partial(orc_case, damage=damage) for name, damage in FILE_DAMAGES.items()},
    **TEXT_CASES,
    **ANSWER_CASES,
}


def kind_of(seed: int) -> str:
    """The kind of a case."""
    return list(KINDS)[seed % len(KINDS)]
