"""Stacks: what a worker process writes behind the words of its page when the master asks where a job is.

Pure; used by both sides. First comes what faulthandler writes, from C: all threads, the latest first, so the
main thread last. Behind ``DESCRIBED`` is what Python code of the process adds, if it still runs any: which
threads have the job, by their numbers and names, and the stacks of its tasks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

DESCRIBED = "Job\n"
"""The line before the description."""
MOST_BYTES = 1 << 20
"""The most that is read of all that a process has written."""
_THREAD = re.compile(r"(?:Current t|T)hread (0x[0-9a-f]+)")
_OF_JOB = re.compile(r"Thread (0x[0-9a-f]+) ?(.*)")
_HEAD = "most recent call first"
# Below it are the start of the process and of its server, which are the same for each job.
_START = re.compile(r'/pyworkers/worker/process\.py", line \d+ in main$')


def arranged(written: bytes, *, main_has_job: bool) -> str:
    """The stacks for people: the job's first, then the other threads'.

    ``main_has_job``: the main thread is the job's if nothing else is said.
    """
    dumped, _, description = written.decode(errors="backslashreplace").partition(DESCRIBED)
    threads = _threads(dumped)
    names, tasks = _described(description)
    if not names and not tasks and main_has_job and threads:
        names = {[*threads][-1]: "main thread"}
    parts = [_part(f"Task {name} of the job", frames) for name, frames in tasks]
    parts += [
        _part(f"Thread of the job: {name or hex(number)}", threads[number])
        for number, name in names.items()
        if number in threads
    ]
    # The main thread first.
    others = [number for number in reversed(threads) if number not in names]
    parts += [_part(f"Another thread: {hex(number)}", threads[number]) for number in others]
    return "\n\n".join(parts)


def _threads(dumped: str) -> dict[int, list[str]]:
    """The frames of each thread by its number."""
    found: dict[int, list[str]] = {}
    frames: list[str] = []
    for line in dumped.splitlines():
        if head := _THREAD.match(line):
            frames = found[int(head[1], 16)] = []
        elif line.startswith("  ") and not (frames and _START.search(frames[-1])):
            frames.append(line)
    return found


def _described(text: str) -> tuple[dict[int, str], list[tuple[str, list[str]]]]:
    """The names of the threads of the job by their numbers, and its tasks with their frames."""
    names: dict[int, str] = {}
    tasks: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if head := _OF_JOB.fullmatch(line):
            names[int(head[1], 16)] = head[2]
        elif line.startswith("Task "):
            tasks.append((line.removeprefix("Task "), []))
        elif line.startswith("  ") and tasks:
            tasks[-1][1].append(line)
    return names, tasks


def _part(title: str, frames: Sequence[str]) -> str:
    # As a traceback has them.
    lines = (re.sub(r'(", line \d+) in ', r"\1, in ", line) for line in frames)
    return "\n".join([f"{title}, {_HEAD}", *lines])
