"""Runs cases in child processes with bounds of memory and time; a case that ends its child is named.

``python -m tests.fuzz.children SEED …`` runs some here, one after another, without bounds.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import re
import resource
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metastore_client.errors import MetastoreError
from mutation_api.errors import CorruptFileError as CorruptFileError  # raised by a program in a variable
from mutation_api.errors import MutationError
from tests.fuzz.kinds import KINDS, kind_of

MOST_BYTES = 256 * 1024 * 1024
"""A case may take so much memory; its files are smaller than 1 MiB."""
MOST_SECONDS = 10
"""A case may use so much time of the processor."""
PATIENCE_SECONDS = 120
"""A case that has not ended after this time hangs, however busy the machine is."""
FAULT = "FUZZ_FAULT"
"""Variable of the environment with a program that runs instead of each case: a test of this module."""
_ADDRESS_BYTES = 6 * 1024**3
"""Bound of a child's address space, far above MOST_BYTES, as libraries map more than they use."""
_RUN_TOGETHER = 500


@dataclass(frozen=True)
class Failure:
    """A case that is a fault of the program, by its seed."""

    seed: int
    kind: str
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed} ({self.kind}): {self.what}"


def failures(seeds: Sequence[int]) -> Iterator[Failure]:
    """Run cases; yields those that fail. A child runs many, and is replaced after a death."""
    for start in range(0, len(seeds), _RUN_TOGETHER):
        left = list(seeds[start : start + _RUN_TOGETHER])
        while left:
            done = yield from _run(left)
            left = left[done:]


def _run(seeds: Sequence[int]) -> Generator[Failure, None, int]:
    """Give cases to one child. Returns how many are done: all, or those up to the one that ended it."""
    command = [sys.executable, "-m", "tests.fuzz.children", "--child"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdout.readline()  # what it imports is there
            for number, seed in enumerate(seeds):
                child.stdin.write(f"{seed}\n".encode())
                child.stdin.flush()
                ready, _, _ = select.select([child.stdout], [], [], PATIENCE_SECONDS)
                line = child.stdout.readline() if ready else b""
                if line:
                    what = json.loads(line)
                    if what:
                        yield Failure(seed, kind_of(seed), what)
                    continue
                if not ready:
                    child.kill()
                    yield Failure(seed, kind_of(seed), f"longer than {PATIENCE_SECONDS} s")
                else:
                    code = child.wait()
                    yield Failure(seed, kind_of(seed), f"the process ended with {code}: {_last_words(child)}")
                return number + 1
            return len(seeds)
        finally:
            with contextlib.suppress(OSError):
                child.stdin.close()
            child.kill()


def _last_words(child: subprocess.Popen[bytes]) -> str:
    assert child.stderr is not None
    return child.stderr.read()[-500:].decode(errors="replace")


def outcome(seed: int) -> str:
    """Run one case here; what is wrong with it, '' if nothing."""
    kind = kind_of(seed)
    _reset_peak()
    before, began = _memory("VmRSS"), time.process_time()
    what = ""
    try:
        fault = os.environ.get(FAULT)
        if fault is None:
            KINDS[kind](random.Random(seed))
        else:
            exec(fault)
    except (MutationError, MetastoreError):
        pass
    except Exception:
        what = "".join(traceback.format_exc().splitlines(keepends=True)[-14:])
    seconds, grown = time.process_time() - began, _memory("VmHWM") - before
    if grown > MOST_BYTES:
        what += f" {grown >> 20} MiB of memory"
    if seconds > MOST_SECONDS:
        what += f" {seconds:.1f} s of the processor"
    return what


def _reset_peak() -> None:
    """Let the peak of memory begin anew."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def _serve() -> None:
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_BYTES, _ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers: Any = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(outcome(int(line))), file=answers, flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        _serve()
    else:
        for text in sys.argv[1:]:
            print(text, kind_of(int(text)), outcome(int(text)) or "as it should be")
