"""The memory of processes, for people. Read by the master once per beat; about 15 µs a process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


def resident_kb(pids: Iterable[int]) -> int:
    """The resident memory of all these in KB, pages that they share counted for each; 0 without /proc."""
    total = 0
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return total * _PAGE_KB
