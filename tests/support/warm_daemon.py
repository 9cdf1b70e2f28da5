"""Spark's daemon of Python workers, with everything imported that a worker of ours needs.

A worker is a fork of it, so that it is ready at once. A task that fails takes its worker with it, and many
tests let tasks fail.
"""

from __future__ import annotations

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import mutation_api.spark.read.bucket_search
import mutation_api.spark.write.job  # noqa: F401

if __name__ == "__main__":
    manager()
