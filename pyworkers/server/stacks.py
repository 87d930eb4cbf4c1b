"""StackReader: asks one worker process where a job is, and reads the stacks that it writes.

Runs in the master's event loop. The process writes the stacks of its threads from C, so also while it hangs
in a call or holds the GIL. Only code that still runs in it can say which threads and tasks the job has.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from pyworkers.ipc.page import STACKS, Page, page_size
from pyworkers.ipc.stacks import MOST_BYTES, arranged
from pyworkers.server.generations.reaper import WorkerSpec
from pyworkers.server.waiting import now, until

# A process that gets no processor answers late; one that is suspended, never.
_WRITTEN_S = 5.0
_DESCRIBED_S = 1.0
# faulthandler does not mark its end. The main thread is the last one, and its last frame is a module's.
_LAST = (b" in <module>\n", b"  ...\n")
_UNCHANGED_S = 0.3
_POLL_S = 0.02
# The main thread of a process with one job runs a loop: only then a task may have the job.
_LOOP = b" in run_forever\n"
_SILENT = (
    f"The process did not answer within {_WRITTEN_S:g} s: it is suspended, in a call of the system that no "
    "signal ends, or its code blocks the signal."
)
_BLOCKED = (
    "The process did not say which of its threads and tasks has the job: its main thread hangs, or a "
    "function in C holds the GIL."
)


class StackText(NamedTuple):
    """The stacks of a process, and why they are missing or incomplete; empty if they are not."""

    text: str
    problem: str = ""


class StackReader:
    """The file of a worker's page, with the ``signal`` to write stacks, and the one to look at the page."""

    def __init__(
        self,
        fd: int,
        page: Page,
        spec: WorkerSpec,
        signal: Callable[[int], None],
        attract: Callable[[], None],
    ) -> None:
        self._fd = fd
        self._page = page
        self._begin = page_size(spec.slots)
        self._mode = spec.mode
        self._signal = signal
        self._attract = attract
        self._turn = asyncio.Lock()
        self._closed = False

    def close(self) -> None:
        """Close the file: the process has ended."""
        self._closed = True
        os.close(self._fd)

    async def read(self, number: int) -> StackText:
        """The stacks of the process, this delivery's first; no text if the process has ended."""
        async with self._turn:
            self._clear()
            if not self._closed:
                self._signal(STACKS)
            if not await self._written():
                return StackText("", "" if self._closed else _SILENT)
            described = await self._described(number)
            text = arranged(self._read(), main_has_job=self._mode == "process")
            self._clear()
            return StackText(text, "" if described or not text else _BLOCKED)

    async def _written(self) -> bool:
        """Wait until the process has written its threads."""
        deadline, seen, since = now() + _WRITTEN_S, b"", now()
        while not self._closed and now() < deadline:
            found = self._read()
            if found != seen:
                seen, since = found, now()
            elif seen and (seen.endswith(_LAST) or now() - since > _UNCHANGED_S):
                return True
            await asyncio.sleep(_POLL_S)
        return bool(seen) and not self._closed

    async def _described(self, number: int) -> bool:
        """Have the process add what its Python code knows; True if it has, or need not."""
        if self._closed or (self._mode == "process" and _LOOP not in self._read()):
            # A signal could disturb the job, and the main thread has all of it.
            return True
        self._page.describe(number)
        self._attract()
        found = await until(lambda: self._closed or not self._page.to_describe, now() + _DESCRIBED_S)
        if not self._closed:
            self._page.describe(0)
        return found

    def _read(self) -> bytes:
        with suppress(OSError):
            return b"" if self._closed else os.pread(self._fd, MOST_BYTES, self._begin)
        return b""

    def _clear(self) -> None:
        """Remove what is written; the place where the process writes is the same for both."""
        if not self._closed:
            with suppress(OSError):
                os.ftruncate(self._fd, self._begin)
                os.lseek(self._fd, self._begin, os.SEEK_SET)
