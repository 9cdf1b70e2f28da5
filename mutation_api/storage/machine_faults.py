"""Which errors come from the machine that reads, and say nothing about a file."""

from __future__ import annotations

import errno

from mutation_api.errors import ReadError

__all__ = ["is_fault_of_machine"]


def is_fault_of_machine(error: BaseException) -> bool:
    """Whether a file may be sound although it could not be read.

    The operating system gives its own errors a number (too many open files, no permission, no memory); those
    of decoders have none. A missing file is one of the table.

    Args:
        error: of reading a file.
    """
    if isinstance(error, OSError):
        return error.errno not in (None, errno.ENOENT)
    return type(error) is ReadError
