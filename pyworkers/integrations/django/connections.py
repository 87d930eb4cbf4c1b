"""Database connections: closed around each job, and never inherited by a fork.

Used in the fork server and in worker processes; elsewhere nothing is closed.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from asgiref.sync import sync_to_async
from django.db import Error, connections
from django.db.backends.signals import connection_created

from pyworkers import CallNext, Message, Outcome
from pyworkers.middleware import AsyncCallNext

log = logging.getLogger("pyworkers")


class _Here(threading.local):
    """Whether the link is around code of this thread."""

    inside = False

    def note(self, inside: bool) -> None:
        self.inside = inside


class Connections:
    """The connections of this process."""

    def __init__(self) -> None:
        self._mode = ""
        self._forks = 0
        self._any = False
        # The link is around the code of a job once more where that changes its thread.
        self._here = _Here()
        self._in_async: ContextVar[bool] = ContextVar("in_async", default=False)
        connection_created.connect(self._note)

    def enter(self, mode: str) -> None:
        """Close connections around the jobs of this process from now on; ``mode``: of its group."""
        self._mode = mode

    def any(self) -> bool:
        """True once this process has opened a connection."""
        return self._any

    def close_before_forks(self) -> None:
        """Close all connections before each fork of this process: the fork server."""
        if not self._forks:
            os.register_at_fork(before=self._before_fork)
        self._forks = os.getpid()

    def around(self, message: Message, call_next: CallNext) -> Outcome:
        """The link around ``def`` code, whose connections belong to its thread."""
        if not self._mode or self._here.inside:
            return call_next(message)
        self._here.note(True)
        self._close()
        try:
            return call_next(message)
        finally:
            self._close()
            self._here.note(False)

    async def around_async(self, message: Message, call_next: AsyncCallNext) -> Outcome:
        """The link around ``async def`` code, whose connections belong to the thread of sync_to_async."""
        if not self._mode or self._in_async.get():
            return await call_next(message)
        inside = self._in_async.set(True)
        await self._close_async()
        try:
            return await call_next(message)
        finally:
            await self._close_async()
            self._in_async.reset(inside)

    def _close(self, *, shared: bool = False) -> None:
        """Close the connections of this thread: all, or in shared processes those past CONN_MAX_AGE.

        ``shared``: other jobs, which run, have this thread, too.
        """
        for connection in connections.all(initialized_only=True):
            connection.queries_log.clear()
            # A job has left its transaction open. The next one would be in it, and what both write is lost.
            is_left = connection.in_atomic_block and not shared
            # The state after an error is the same: the next query connects.
            with suppress(Error):
                if is_left or self._mode == "process":
                    connection.close()
                else:
                    connection.close_if_unusable_or_obsolete()
            if is_left:
                log.error("a job has left a transaction open: %r is rolled back", connection.alias)
                # Closed inside a transaction, it would refuse every later query.
                del connections[connection.alias]

    async def _close_async(self) -> None:
        if self._any:
            await sync_to_async(self._close)(shared=self._mode != "process")

    def _note(self, **_event: Any) -> None:
        self._any = True

    def _before_fork(self) -> None:
        # The programs that a job forks leave its transaction alone.
        if os.getpid() == self._forks:
            close_all()


def close_all() -> None:
    """Close the connections of this thread, and the pools of this process."""
    for connection in connections.all(initialized_only=True):
        connection.close()
        if connection.settings_dict["OPTIONS"].get("pool"):
            connection.close_pool()
