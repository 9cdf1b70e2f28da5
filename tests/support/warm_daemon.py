"""Spark's daemon of Python workers, with everything imported that a worker of ours needs.

A worker is a fork of it, so that it is ready at once. A task that fails takes its worker with it, and many
tests let tasks fail.
"""

from __future__ import annotations

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
