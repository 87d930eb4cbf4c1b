"""Waiter: the blocking move of one job from a queue into an in-progress list.

Runs in the master's event loop, on a connection of its own, because the connection is busy while it waits. It
sends nothing twice: a repeated BRPOPLPUSH after a lost reply would take a second job.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.store.scripts import Commands
from pyworkers.store.transport.connections import CONNECT_TIMEOUT_S, errors_translated
from pyworkers.store.transport.link import Link
from pyworkers.store.transport.replies import integer, maybe_blob
from pyworkers.store.transport.wire import time_limit

# How long Redis blocks at a time: an idle queue costs 60 / 20 = 3 commands a minute.
LONGEST_BLOCK_S = 20.0
# Redis still serves the blocked connection of a master that is stopped (SIGSTOP, a suspended machine). The
# block must end before the lease, or a job would go to an owner whose lists were recovered already. A lease
# that is renewed has 5/6 of its time left at least (server/lease.py).
_PART_OF_LEASE = 2 / 3
# A reply later than this after the block means that the connection is half open.
PATIENCE_S = 2
_BRIEF_S = 0.1


class Waiter:
    """Waits for one job at a time. ``unblock`` ends the wait without losing a job."""

    def __init__(self, config: RedisConfig, lease_s: float = 30.0) -> None:
        self._block_s = min(LONGEST_BLOCK_S, lease_s * _PART_OF_LEASE)
        self._link = Link(config, self._block_s + PATIENCE_S)
        # The link's timeout is for one command; this one is for the whole move, with the connect.
        self._longest_s = CONNECT_TIMEOUT_S + self._block_s + 2 * PATIENCE_S
        self.blocked = False
        self._moves = 0

    @property
    def under_way(self) -> int:
        """The number of the move whose reply is awaited; 0 if none is."""
        return self._moves if self.blocked else 0

    async def wait(
        self, source: str, target: str, taken: Callable[[bytes], None], briefly: bool = False
    ) -> None:
        """Move the next job, call ``taken`` with it, and return; return without a job when the block expires.

        ``source`` and ``target`` are the keys of the queue and of the list; if they are equal, the job stays
        where it is. ``briefly``: the block expires after a tenth of a second. A move that neither returns nor
        fails before its timeout is ended, and its connection is replaced: a link closes when the wait for a
        reply is cancelled. Raises PyworkersError.
        """
        with errors_translated():
            async with time_limit(self._longest_s):
                await self._move(source, target, taken, _BRIEF_S if briefly else self._block_s)

    async def _move(self, source: str, target: str, taken: Callable[[bytes], None], block_s: float) -> None:
        def on_reply(raw: bytes | None) -> None:
            if raw is not None:
                taken(raw)

        self._moves += 1
        self.blocked = True
        try:
            if source == target:
                # From the end that is popped next to the same end.
                command = ("BLMOVE", source, target, "RIGHT", "RIGHT", block_s)
                await self._link.execute_command(*command, on_reply=on_reply, read=maybe_blob)
                return
            await self._link.execute_command("BRPOPLPUSH", source, target, block_s, on_reply=on_reply)
        finally:
            self.blocked = False

    async def unblock(self, control: Commands) -> None:
        """Make a running ``wait`` return at once. ``control`` is another connection, for the command."""
        if self.blocked and self._link.client_id is not None:
            # After a refusal (ACL) or an outage, the wait still ends by its own timeout.
            with suppress(PyworkersError), errors_translated():
                await control.execute_command("CLIENT", "UNBLOCK", self._link.client_id, read=integer)

    def drop_connection(self) -> None:
        """End a wait with an error: another server is the primary."""
        self._link.drop_connection()

    async def close(self) -> None:
        """Close the connection."""
        await self._link.aclose()
