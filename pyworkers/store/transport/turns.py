"""Turns: limits the threads that use a connection at once. The others wait, first come, first served.

Used by the blocking connections of producers and of ``api``. There is no lock, because a fork would copy a
locked one: each step is one atomic call, and is checked again where two threads may have taken it at once.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue

from redis.exceptions import TimeoutError


class Turns:
    """The turns of this process; a forked process starts with all of them free."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line = FreeTurns(most)

    def take(self, timeout_s: float | None) -> FreeTurns:
        """Wait for a turn; ``leave`` of the returned Line ends it. Raises redis-py's TimeoutError."""
        line = self._line
        if line.pid != os.getpid():
            # The threads that held a turn, or waited for one, do not exist in this process.
            line = self._line = FreeTurns(self._most)
        line.enter(timeout_s)
        return line


class FreeTurns:
    """The free turns, and the threads that wait for one."""

    def __init__(self, most: int) -> None:
        self.pid = os.getpid()
        self._most = most
        self._free: list[None] = [None] * most
        self._waiting: deque[SimpleQueue[None]] = deque()

    def enter(self, timeout_s: float | None) -> None:
        """Take a turn, after the threads that came before."""
        try:
            if not self._waiting:
                self._free.pop()
                return
        except IndexError:
            pass
        ticket: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(ticket)
        # A turn may have become free before the ticket was in the queue.
        self._call()
        try:
            ticket.get(timeout=timeout_s)
        except BaseException as error:
            self._give_up(ticket)
            if isinstance(error, Empty):
                text = f"none of the {self._most} connections became free within {timeout_s:g} s"
                raise TimeoutError(text) from None
            raise

    def leave(self) -> None:
        """End a turn."""
        self._free.append(None)
        if self._waiting:
            self._call()

    def _call(self) -> None:
        """Give free turns to waiting threads."""
        while self._free and self._waiting:
            with suppress(IndexError):
                self._free.pop()
                try:
                    ticket = self._waiting.popleft()
                except IndexError:
                    self._free.append(None)
                else:
                    ticket.put(None)

    def _give_up(self, ticket: SimpleQueue[None]) -> None:
        try:
            self._waiting.remove(ticket)
        except ValueError:
            # The ticket got its turn in the meantime.
            self.leave()
