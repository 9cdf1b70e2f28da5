"""Run a benchmark: ``python -m benchmarks [NAME] [--quick] [--save]``; ``--help`` tells the names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import large_change_set, merge

BENCHMARKS = {"large_change_set": large_change_set, "merge": merge}
DEFAULT = "large_change_set"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named benchmark, the first one if none is named; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, DEFAULT)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    subparsers = parser.add_subparsers(dest="name", required=True)
    for name, module in BENCHMARKS.items():
        module.add_arguments(subparsers.add_parser(name, help=module.HELP, description=module.HELP))
    parsed = parser.parse_args(words)
    return int(BENCHMARKS[parsed.name].run(parsed))


if __name__ == "__main__":
    sys.exit(main())
