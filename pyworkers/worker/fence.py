"""Fence: ends jobs that must not overlap, before the lease of their server can end.

Runs in the worker process, on its own thread, which the first such job starts. The master may be frozen,
or cut off from Redis; so the process decides alone, by the deadlines in the page that it shares with the
master (ipc/page.py), which each renewal of the lease moves.

    renewal ─────────────► ask_at: Interrupted in the jobs ──► end_at: this process ends ──► the lease ends
"""

from __future__ import annotations

import os
import signal
import threading
import time
from queue import Empty, SimpleQueue

from pyworkers.errors import Interrupted
from pyworkers.ipc.page import ATTENTION, Page
from pyworkers.protocol.outcome import Outcome
from pyworkers.worker.execution import Execution

LATE = "the server may lose its lease: the job is given back"
# Between two signals to a job that was asked to end: one that comes just before a wait does not end it.
_AGAIN_S = 0.1


class Fence:
    """The fenced jobs of one process; ``shared`` if it runs several at once.

    The main thread, and the threads of jobs, take no lock of it: a request may be raised in them anywhere.
    """

    def __init__(self, page: Page, shared: bool) -> None:
        self._page = page
        self._shared = shared
        self._running: set[int] = set()
        """The deliveries of the fenced jobs that run."""
        self.asked: frozenset[int] = frozenset()
        """The deliveries that were asked to end."""
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._waits = False
        self._started = False

    # In the job

    def begin(self, execution: Execution) -> None:
        """Note a job that begins. Raises Interrupted if it is too late for another one."""
        if time.monotonic() >= self._page.ask_at_s:
            raise Interrupted(LATE)
        self._running.add(execution.delivery)
        if not self._started:
            self._started = True
            threading.Thread(target=self._watch, name="fence", daemon=True).start()
        elif self._waits:
            self._wake.put(None)

    def end(self, execution: Execution, outcome: Outcome) -> Outcome:
        """Note the end of a job; returns its outcome."""
        self._running.discard(execution.delivery)
        return outcome

    # On the thread

    def _watch(self) -> None:
        while True:
            self._waits = not self._running
            # Again: a job may have begun before it could see that this thread waits.
            if self._waits and not self._running:
                self._wake.get()
            self._waits = False
            self._sleep_until(self._page.ask_at_s)
            if time.monotonic() >= self._page.ask_at_s:
                self._end_jobs()

    def _sleep_until(self, at_s: float) -> None:
        try:
            self._wake.get(timeout=max(0.0, min(at_s - time.monotonic(), threading.TIMEOUT_MAX)))
        except Empty:
            return

    def _end_jobs(self) -> None:
        """Ask the jobs to end, until they have, the lease is renewed, or this process must end."""
        touched = False
        while time.monotonic() >= self._page.ask_at_s:
            numbers = self._running.copy()
            # Another object, because the main thread may iterate over this one.
            self.asked = self.asked | numbers
            touched = touched or bool(numbers)
            # A job that shares its process may leave code on threads behind.
            left = bool(numbers) or (self._shared and touched)
            if not left:
                break
            if time.monotonic() >= self._page.end_at_s:
                self._end_process()
            if numbers:
                signal.pthread_kill(threading.main_thread().ident or 0, ATTENTION)
            time.sleep(max(0.0, min(_AGAIN_S, self._page.end_at_s - time.monotonic())))
        self.asked = frozenset()

    def _end_process(self) -> None:
        """Kill this process, and the programs in its group. It logs nothing: a blocked log would delay it."""
        self._page.fence()
        os.killpg(0, signal.SIGKILL)
