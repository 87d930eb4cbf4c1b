"""Facts about a process, from /proc: its state, children, descriptors and memory."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path


def process_alive(pid: int) -> bool:
    """True if the process runs. A zombie does not: a container may have no process that collects it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if sys.platform != "linux":
        return True  # macOS has no /proc
    return state(pid) not in "ZX"


def state(pid: int) -> str:
    """The letter of /proc: S asleep, T stopped, Z zombie; X, too, for a process that does not exist."""
    try:
        return _stat(Path(f"/proc/{pid}/stat"))[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def children(pid: int) -> list[int]:
    """The pids of a process's children, zombies among them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(_stat(path)[1]) == pid:
                found.append(int(path.parent.name))
    return found


def _stat(path: Path) -> list[str]:
    """The fields after the program's name, which is in parentheses and may hold anything."""
    return path.read_text().rpartition(")")[2].split()


def descriptors(pid: int) -> int:
    """The number of descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def own_descriptors() -> set[int]:
    """The descriptors of this process, without the one that reads the list of them."""
    return {fd for fd in (int(entry.name) for entry in Path("/dev/fd").iterdir()) if _is_open(fd)}


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def close_garbage() -> None:
    """Close what earlier tests left to the garbage collector, which might close it while this test counts.

    Without the warning about it, which would be an error of the test that happens to call this.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@contextlib.contextmanager
def leaving_no_descriptor() -> Iterator[None]:
    """Fail if more or fewer descriptors of this process are open in the end than at first."""
    close_garbage()
    before = own_descriptors()
    yield
    after = own_descriptors()
    # One that was opened again may have another number.
    assert len(after) == len(before), (before, after)


def anonymous_kb(pid: int) -> int:
    """The memory of a process that is not mapped from a file, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
